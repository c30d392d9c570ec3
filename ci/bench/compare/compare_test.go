package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headwater/bench"
)

func TestMedian(t *testing.T) {
	for want, vs := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 2, 3}, 7: {7}} {
		if got := median(vs); got != want {
			t.Errorf("median of %v is %v", vs, got)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234: "1.23 k", 12345: "12.3 k", 123456: "123 k"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
	if got := number(math.NaN()); got != "–" {
		t.Errorf("NaN is written %q", got)
	}
}

func TestBetter(t *testing.T) {
	if got := opsPerSec.better(10, 5); got != 2 {
		t.Errorf("10 ops/s against 5: %v", got)
	}
	if got := delivery99.better(10, 5); got != 0.5 {
		t.Errorf("10 ms against 5: %v", got)
	}
	if got := opsPerSec.better(1, 0); !math.IsNaN(got) {
		t.Errorf("against nothing: %v", got)
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"--cases", "none"}, {"--servers", "none"}, {"--cases", "append-one-64-half"}, {"--rounds", "0"}, {"stray"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
	o, err := parse(nil)
	if err != nil || len(o.cases) != len(cases) || len(o.servers) != len(order)-2 {
		t.Errorf("by default: %+v, %v", o, err)
	}
}

func TestCasesAreRunnable(t *testing.T) {
	for _, c := range cases {
		if bench.About(c.config.Workload) == "" {
			t.Errorf("%s: no workload %q", c.name, c.config.Workload)
		}
		if _, ok := findCase(c.halfOf); c.halfOf != "" && !ok {
			t.Errorf("%s: no case %q", c.name, c.halfOf)
		}
	}
	for _, name := range order {
		if _, ok := (&yard{}).contenders()[name]; !ok || colours[name] == "" {
			t.Errorf("%s: no contender or no colour", name)
		}
	}
}

func sampleFigures() figures {
	f := figures{Machine: machine{Cores: 2, CPU: "<test & co>"}, Rounds: 3, Absent: map[string]string{"headwater-fdb": "not\nhere"}}
	add := func(c, server string, ops, delivery float64, failure string) {
		r := bench.Result{OpsPerSec: ops, Latency: &bench.Latency{P50: 1, P99: 2}}
		if delivery > 0 {
			r.Delivery = &bench.Latency{P99: delivery}
		}
		f.Runs = append(f.Runs, measured{Case: c, Server: server, Result: r, Failure: failure})
	}
	for _, ops := range []float64{40_000, 50_000, 60_000} {
		add("append-one-64", "ceiling", ops, 0, "")
		add("append-one-64", "headwater-embedded", ops/2, 0, "")
	}
	add("append-one-64", "node-file", 500, 0, "")
	add("append-one-64", "node-file", 0, 0, "it broke")
	add("append-one-64", "node-memory", 0, 0, "it broke")
	add("fan-out-1", "headwater-embedded", 50, 4, "")
	add("fan-out-1", "node-memory", 50, 400, "")
	return f
}

func TestMarkdown(t *testing.T) {
	got := markdown(sampleFigures(), "compare")
	for _, want := range []string{
		"| headwater-embedded | **25.0 k** (20.0 k–30.0 k) | 0.50 | 50.0 |",
		"| node-memory | failed |",
		"node-file failed in 1 of 2 runs: it broke",
		"not measured: not; here",
		"| headwater-embedded | **4.00** (4.00–4.00) | 100 |",
		"compare.svg",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestSVG(t *testing.T) {
	p, err := svg(sampleFigures())
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(string(p)))
	rects := 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, p)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "rect" {
			rects++
			for _, a := range e.Attr {
				if a.Name.Local == "width" && strings.HasPrefix(a.Value, "-") {
					t.Errorf("a bar of width %s", a.Value)
				}
			}
		}
	}
	if rects != 1+4+2 {
		t.Errorf("%d bars", rects-1)
	}
}

// TestCompete measures two ceilings in turns, one of which can't be started.
func TestCompete(t *testing.T) {
	c := contender{name: "ceiling", pseudo: true, start: func(ctx context.Context) (*instance, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		stopped := make(chan error, 1)
		go func() { stopped <- bench.ServeCeiling(ctx, l) }()
		return &instance{url: "http://" + l.Addr().String(), pid: os.Getpid(), stop: func() error {
			cancel()
			return <-stopped
		}}, nil
	}}
	o := options{duration: 50 * time.Millisecond, warmup: 10 * time.Millisecond}
	one, _ := findCase("append-one-64")
	half, _ := findCase("append-one-64-half")
	m := measure(t.Context(), o, one, c, 0)
	if m.Failure != "" || m.Result.OpsPerSec == 0 {
		t.Fatalf("got %+v", m)
	}
	if m = measure(t.Context(), o, half, c, 1000); m.Failure != "" || m.Result.Rate != 500 || !m.Result.Open {
		t.Errorf("at half of the rate: %+v", m)
	}
	if m = measure(t.Context(), o, half, c, 0); m.Failure == "" {
		t.Error("half of nothing was measured")
	}
	c.start = func(context.Context) (*instance, error) { return nil, errAbsent }
	if m = measure(t.Context(), o, one, c, 0); m.Failure == "" {
		t.Error("a server that was not started was measured")
	}
}

func TestSpawn(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	gone := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	y := &yard{log: io.Discard}
	i, err := y.spawn(t.Context(), "", []string{gone}, "sh", "-c", "echo hello; echo http://127.0.0.1:1; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	if i.url != "http://127.0.0.1:1" {
		t.Errorf("its URL is %q", i.url)
	}
	if err := i.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("its data is still there")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := y.spawn(ctx, "127.0.0.1:1", nil, "sleep", "60"); err == nil {
		t.Error("a server that never listened is ready")
	}
}

func TestFsyncLoop(t *testing.T) {
	p50, p99, err := fsyncLoop(t.TempDir(), 10)
	if err != nil || p50 <= 0 || p99 < p50 {
		t.Errorf("got %v, %v, %v", p50, p99, err)
	}
}

// TestWrite writes, and reads back what --render reads.
func TestWrite(t *testing.T) {
	out := filepath.Join(t.TempDir(), "docs", "compare")
	if err := write(out, sampleFigures()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(out + ".md")
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"--render", "--out", out}); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(out + ".md")
	if err != nil || string(before) != string(after) {
		t.Errorf("rendered again it is different: %v", err)
	}
	p, err := os.ReadFile(out + ".json")
	if err != nil || !json.Valid(p) {
		t.Errorf("the figures are no JSON: %v", err)
	}
}
