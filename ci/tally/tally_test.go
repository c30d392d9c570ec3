package tally

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestGoCountsLeaves(t *testing.T) {
	events := `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"seen\n"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"run","Package":"p","Test":"TestA/y"}
{"Action":"fail","Package":"p","Test":"TestA/y"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`
	var log bytes.Buffer
	c, err := Go(strings.NewReader(events), &log)
	if err != nil {
		t.Fatal(err)
	}
	if c.String() != "1 passed, 1 failed, 1 skipped" || !slices.Equal(c.Failures, []string{"p TestA/y"}) {
		t.Errorf("got %v %q", c, c.Failures)
	}
	if log.String() != "" {
		t.Errorf("log is %q", log.String())
	}
}

func TestGoShowsFailures(t *testing.T) {
	events := `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"fine\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"wrong\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- FAIL: TestB\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"panic: no\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`
	var log bytes.Buffer
	if _, err := Go(strings.NewReader(events), &log); err != nil {
		t.Fatal(err)
	}
	if want := "wrong\n--- FAIL: TestB\nFAIL\tp\t0.1s\npanic: no\n"; log.String() != want {
		t.Errorf("log is %q, want %q", log.String(), want)
	}
}

func TestGoBlamesSomebody(t *testing.T) {
	for name, tc := range map[string]struct{ events, failure string }{
		"build": {
			`{"ImportPath":"q","Action":"build-output","Output":"q.go:1: no\n"}
{"ImportPath":"q","Action":"build-fail"}
{"Action":"fail","Package":"q","FailedBuild":"q"}
`, "q",
		},
		"parent alone": {
			`{"Action":"run","Package":"q","Test":"TestA"}
{"Action":"run","Package":"q","Test":"TestA/x"}
{"Action":"pass","Package":"q","Test":"TestA/x"}
{"Action":"fail","Package":"q","Test":"TestA"}
{"Action":"fail","Package":"q"}
`, "q TestA",
		},
		"died in a test": {
			`{"Action":"run","Package":"q","Test":"TestA"}
{"Action":"output","Package":"q","Test":"TestA","Output":"panic: no\n"}
{"Action":"fail","Package":"q"}
`, "q TestA",
		},
		"died before tests": {`{"Action":"fail","Package":"q"}` + "\n", "q"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Go(strings.NewReader(tc.events), &bytes.Buffer{})
			if err != nil {
				t.Fatal(err)
			}
			if c.Failed != 1 || !slices.Equal(c.Failures, []string{tc.failure}) {
				t.Errorf("got %v %q, want one failure, of %q", c, c.Failures, tc.failure)
			}
		})
	}
}

func TestGoPassesThroughWhatIsNoEvent(t *testing.T) {
	var log bytes.Buffer
	c, err := Go(strings.NewReader("go: no such module\n{\"a\":1}\nlast"), &log)
	if err != nil {
		t.Fatal(err)
	}
	if c.Total() != 0 || log.String() != "go: no such module\n{\"a\":1}\nlast" {
		t.Errorf("got %v, log %q", c, log.String())
	}
}

func TestVitest(t *testing.T) {
	report := `{"numTotalTests":3,"testResults":[
{"name":"/a.test.mjs","status":"failed","message":"","assertionResults":[
 {"fullName":"g one","status":"passed","failureMessages":[]},
 {"fullName":"g two","status":"failed","failureMessages":["no"]},
 {"fullName":"g three","status":"skipped","failureMessages":[]}]},
{"name":"/b.test.mjs","status":"failed","message":"cannot load","assertionResults":[]}]}`
	c, err := Vitest(strings.NewReader(report))
	if err != nil {
		t.Fatal(err)
	}
	if c.String() != "1 passed, 2 failed, 1 skipped" || !slices.Equal(c.Failures, []string{"/b.test.mjs", "g two"}) {
		t.Errorf("got %v %q", c, c.Failures)
	}
	if _, err := Vitest(strings.NewReader("")); err == nil {
		t.Error("an empty report was accepted")
	}
}
