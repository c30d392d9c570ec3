package tally

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
)

// Counts is how many tests ended in which way, and which ones failed.
type Counts struct {
	Passed, Failed, Skipped int
	// Failures names the failed tests, in the order of their names.
	Failures []string
}

// Total is the number of tests that ran or were skipped.
func (c Counts) Total() int { return c.Passed + c.Failed + c.Skipped }

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	c.Passed += d.Passed
	c.Failed += d.Failed
	c.Skipped += d.Skipped
	c.Failures = append(c.Failures, d.Failures...)
}

// String is the last line of a run.
func (c Counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.Passed, c.Failed, c.Skipped)
}

func (c *Counts) fail(name string) {
	c.Failed++
	c.Failures = append(c.Failures, name)
}

// goEvent is one line of "go test -json" (see "go doc test2json").
type goEvent struct {
	Action  string
	Package string
	Test    string
	Output  string
	// ImportPath and FailedBuild are those of build events (Go 1.24 and later).
	ImportPath  string
	FailedBuild string
}

// Go reads the output of "go test -json" and writes to log what "go test"
// without -v would have: what packages print, and of tests those that failed.
// Lines that are no events, such as the complaints of a compiler, are passed
// through to log.
func Go(r io.Reader, log io.Writer) (Counts, error) {
	outcome := map[string]map[string]string{} // package, test, last action
	parents := map[string]bool{}              // package and test that had subtests
	broken := map[string]bool{}               // packages that failed
	said := output{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e goEvent
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				if _, werr := io.WriteString(log, line); werr != nil {
					return Counts{}, werr
				}
			} else {
				if _, werr := io.WriteString(log, said.take(e)); werr != nil {
					return Counts{}, werr
				}
				record(e, outcome, parents, broken)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Counts{}, fmt.Errorf("reading test events: %w", err)
		}
	}
	return count(outcome, parents, broken), nil
}

// output is what tests under way have printed, by package and test. A test that
// never ends, since its process died, is printed with its package.
type output map[string]map[string][]string

// take files e's text, or returns what is to be printed now that e happened.
func (o output) take(e goEvent) string {
	if o[e.Package] == nil {
		o[e.Package] = map[string][]string{}
	}
	tests := o[e.Package]
	switch {
	case e.Action == "output" && e.Test != "" && !strings.HasPrefix(e.Output, "=== "):
		tests[e.Test] = append(tests[e.Test], e.Output)
	case (e.Action == "output" || e.Action == "build-output") && e.Test == "":
		return e.Output
	case e.Action == "pass" || e.Action == "skip":
		delete(tests, e.Test)
	case e.Action == "fail" && e.Test != "":
		text := strings.Join(tests[e.Test], "")
		delete(tests, e.Test)
		return text
	case e.Action == "fail":
		var text strings.Builder
		for _, lines := range tests {
			text.WriteString(strings.Join(lines, ""))
		}
		delete(o, e.Package)
		return text.String()
	}
	return ""
}

func record(e goEvent, outcome map[string]map[string]string, parents, broken map[string]bool) {
	switch {
	case e.Test == "" && e.Action == "fail":
		broken[e.Package] = true
	case e.Test != "":
		if outcome[e.Package] == nil {
			outcome[e.Package] = map[string]string{}
		}
		switch e.Action {
		case "run", "pass", "fail", "skip":
			outcome[e.Package][e.Test] = e.Action
		}
		for i, c := range e.Test {
			if c == '/' {
				parents[e.Package+" "+e.Test[:i]] = true
			}
		}
	}
}

func count(outcome map[string]map[string]string, parents, broken map[string]bool) Counts {
	var c Counts
	blamed := map[string]bool{}
	for pkg, tests := range outcome {
		for test, action := range tests {
			name := pkg + " " + test
			if parents[name] {
				continue
			}
			switch action {
			case "pass":
				c.Passed++
			case "skip":
				c.Skipped++
			default: // failed, or began and never ended
				c.fail(name)
				blamed[pkg] = true
			}
		}
		// A parent that fails after its subtests passed has nobody else to blame.
		for test, action := range tests {
			name := pkg + " " + test
			if action == "fail" && parents[name] && !childFailed(test, tests) {
				c.fail(name)
				blamed[pkg] = true
			}
		}
	}
	for pkg := range broken {
		if !blamed[pkg] {
			c.fail(pkg)
		}
	}
	sort.Strings(c.Failures)
	return c
}

func childFailed(parent string, tests map[string]string) bool {
	for test, action := range tests {
		if strings.HasPrefix(test, parent+"/") && action != "pass" && action != "skip" {
			return true
		}
	}
	return false
}

// vitestReport is what we read of the report of vitest's JSON reporter.
type vitestReport struct {
	TestResults []struct {
		Name             string
		Status           string
		Message          string
		AssertionResults []struct {
			FullName        string
			Status          string
			FailureMessages []string
		}
	}
}

// Vitest reads a report of vitest's JSON reporter.
func Vitest(r io.Reader) (Counts, error) {
	var report vitestReport
	if err := json.NewDecoder(r).Decode(&report); err != nil {
		return Counts{}, fmt.Errorf("reading vitest's report: %w", err)
	}
	var c Counts
	for _, file := range report.TestResults {
		before := c.Failed
		for _, t := range file.AssertionResults {
			switch t.Status {
			case "passed":
				c.Passed++
			case "failed":
				c.fail(t.FullName)
			default: // skipped, pending, todo, disabled
				c.Skipped++
			}
		}
		if file.Status == "failed" && c.Failed == before {
			c.fail(file.Name)
		}
	}
	sort.Strings(c.Failures)
	return c, nil
}
