package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"headwater/ci/tally"
)

// golangciLint is run from its module, so that nothing needs to be installed.
const golangciLint = "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"

// errChecksFailed is told by the summary; nothing more needs to be printed,
// which keeps the counts the last line.
var errChecksFailed = errors.New("checks failed")

// errSkipped is wrapped by a step that can't run here, with the reason.
var errSkipped = errors.New("skipped")

// A step is one check. One without tests of its own counts as one test.
type step struct {
	name string
	run  func(context.Context) (tally.Counts, error)
}

type outcome struct {
	step   string
	counts tally.Counts
	err    error
	took   time.Duration
}

// check runs the steps named by only, or all of them. A failed step does not
// keep the others from running; the last line printed is the sum of the counts.
func check(ctx context.Context, only string) error {
	steps, err := chooseSteps(only)
	if err != nil {
		return err
	}
	var outcomes []outcome
	run := func() {
		for _, s := range steps {
			outcomes = append(outcomes, runStep(ctx, s))
		}
	}
	if !clientLibrary(ctx) {
		run()
		return summarize(outcomes)
	}
	// One cluster for all steps: tests find it by the variable.
	err = withCluster(ctx, func(file string) error {
		if err := os.Setenv("FDB_CLUSTER_FILE", file); err != nil {
			return err
		}
		run()
		return nil
	})
	if outcomes == nil {
		if !errors.Is(err, errNoCluster) {
			outcomes = append(outcomes, failure("cluster", err))
		}
		run()
	} else if err != nil {
		outcomes = append(outcomes, failure("cluster", err))
	}
	return summarize(outcomes)
}

func runStep(ctx context.Context, s step) outcome {
	fmt.Printf("\n=== %s\n", s.name)
	start := time.Now()
	counts, err := s.run(ctx)
	switch {
	case errors.Is(err, errSkipped):
		counts.Skipped++
	case err != nil && counts.Failed == 0:
		counts.Failed++
		counts.Failures = append(counts.Failures, s.name)
	case err == nil && counts.Total() == 0:
		counts.Passed++
	}
	if err != nil {
		fmt.Println(err)
	}
	return outcome{s.name, counts, err, time.Since(start)}
}

// failure is the outcome of what failed beside the steps.
func failure(name string, err error) outcome {
	fmt.Println(err)
	return outcome{name, tally.Counts{Failed: 1, Failures: []string{err.Error()}}, err, 0}
}

func summarize(outcomes []outcome) error {
	var sum tally.Counts
	fmt.Printf("\n=== summary\n")
	for _, o := range outcomes {
		sum.Add(o.counts)
		fmt.Printf("%-28s %7.1fs  %v\n", o.step, o.took.Seconds(), o.counts)
	}
	for _, o := range outcomes {
		for _, name := range o.counts.Failures {
			fmt.Printf("failed: %s: %s\n", o.step, name)
		}
		if errors.Is(o.err, errSkipped) {
			fmt.Printf("skipped: %s: %v\n", o.step, o.err)
		}
	}
	fmt.Println(sum)
	if sum.Failed > 0 {
		return errChecksFailed
	}
	return nil
}

func chooseSteps(only string) ([]step, error) {
	all := allSteps()
	if only == "" {
		return all, nil
	}
	var chosen []step
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(s step) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no step %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func allSteps() []step {
	steps := []step{
		{"fmt", checkFormat},
		{"vet", func(ctx context.Context) (tally.Counts, error) { return tally.Counts{}, goWithTags(ctx, "vet") }},
		{"lint", lint},
		{"build-pure-go", buildPureGo},
		{"test", func(ctx context.Context) (tally.Counts, error) { return testAll(ctx, false) }},
		{"race", func(ctx context.Context) (tally.Counts, error) { return testAll(ctx, true) }},
	}
	for _, surface := range []string{"base", "bucket"} {
		for _, name := range []string{"conformance", "client"} {
			steps = append(steps, suiteStep(name, target{store: "embedded", frontends: 1, surface: surface}))
		}
	}
	for _, surface := range []string{"base", "bucket"} {
		for _, name := range []string{"conformance", "client", "extensions"} {
			steps = append(steps, suiteStep(name, target{store: "fdb", frontends: 2, surface: surface}))
		}
	}
	return steps
}

func suiteStep(name string, t target) step {
	return step{
		name: fmt.Sprintf("%s-%s-%s", name, t.store, t.surface),
		run: func(ctx context.Context) (tally.Counts, error) {
			if t.store == "fdb" && !clientLibrary(ctx) {
				return tally.Counts{}, fmt.Errorf("%w: no FoundationDB client library", errSkipped)
			}
			counts, err := runSuite(ctx, suites[name], t)
			if errors.Is(err, errNoCluster) {
				err = fmt.Errorf("%w: %w", errSkipped, err)
			}
			return counts, err
		},
	}
}

func checkFormat(ctx context.Context) (tally.Counts, error) {
	files, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "*.go").Output()
	if err != nil {
		return tally.Counts{}, fmt.Errorf("git ls-files: %w", err)
	}
	args := []string{"-l"}
	for name := range strings.SplitSeq(string(files), "\x00") {
		if _, err := os.Stat(name); name != "" && err == nil { // a removed file stays listed until it is committed
			args = append(args, name)
		}
	}
	out, err := exec.CommandContext(ctx, "gofmt", args...).CombinedOutput()
	if err == nil && len(out) > 0 {
		err = errors.New("not formatted, run make fmt")
	}
	if err != nil {
		err = fmt.Errorf("gofmt: %w\n%s", err, out)
	}
	return tally.Counts{}, err
}

func lint(ctx context.Context) (tally.Counts, error) {
	// Where it can't be fetched there is nothing to run; that is no finding.
	if out, err := exec.CommandContext(ctx, "go", "run", golangciLint, "version").CombinedOutput(); err != nil {
		return tally.Counts{}, fmt.Errorf("%w: %s can't be had: %w\n%s", errSkipped, golangciLint, err, out)
	}
	args := []string{"run", golangciLint, "run", "--allow-parallel-runners"}
	if clientLibrary(ctx) {
		args = append(args, "--build-tags", "foundationdb")
	}
	return tally.Counts{}, streamGo(ctx, nil, append(args, "./...")...)
}

func buildPureGo(ctx context.Context) (tally.Counts, error) {
	return tally.Counts{}, streamGo(ctx, []string{"CGO_ENABLED=0"}, "build", "./...")
}

// testAll runs all Go tests, the extension suite on the embedded engine among them.
func testAll(ctx context.Context, race bool) (tally.Counts, error) {
	args := []string{"-count=1"}
	env := []string{"CGO_ENABLED=0"}
	if clientLibrary(ctx) {
		args = append(args, "-tags", "foundationdb")
		env = []string{"CGO_ENABLED=1"}
	}
	if race {
		if _, err := exec.LookPath("cc"); err != nil {
			return tally.Counts{}, fmt.Errorf("%w: the race detector needs a C compiler: %w", errSkipped, err)
		}
		args = append(args, "-race", "-short")
		env = []string{"CGO_ENABLED=1"}
	}
	return goTest(ctx, env, append(args, "./...")...)
}

func goWithTags(ctx context.Context, verb string) error {
	if clientLibrary(ctx) {
		return streamGo(ctx, nil, verb, "-tags", "foundationdb", "./...")
	}
	return streamGo(ctx, []string{"CGO_ENABLED=0"}, verb, "./...")
}

// clientLibrary tells whether FoundationDB's client library can be compiled against.
func clientLibrary(ctx context.Context) bool {
	out, err := exec.CommandContext(ctx, "sh", "ci/fdbclient-probe.sh", "bin/.fdbclient").Output()
	return err == nil && string(bytes.TrimSpace(out)) == "1"
}

func streamGo(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", args[0], err)
	}
	return nil
}
