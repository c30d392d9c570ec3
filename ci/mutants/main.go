package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "regexp of the mutants to run, and of their tests: name/test")
	verbose := flags.Bool("v", false, "print what the tests said")
	tags := flags.String("tags", "", "build tags for the tests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pick, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	r := runner{verbose: *verbose, tags: *tags, clean: make(map[test]bool)}
	defer r.cleanup()
	ran, survived := 0, 0
	for _, m := range mutants {
		for _, t := range m.caughtBy {
			if !pick.MatchString(m.name + "/" + t.run) {
				continue
			}
			caught, took, err := r.try(ctx, m, t)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", m.name, t, err)
			}
			ran++
			verdict := "caught"
			if !caught {
				verdict = "SURVIVED"
				survived++
			}
			fmt.Printf("%-8s %5.1fs  %-34s %s\n", verdict, took.Seconds(), m.name, t)
		}
	}
	fmt.Printf("%d mutants, %d trials, %d survived\n", len(mutants), ran, survived)
	if survived > 0 {
		return errors.New("a bug was not caught")
	}
	if ran == 0 {
		return errors.New("no mutant matches")
	}
	return nil
}

// test is one run of go test.
type test struct {
	pkg, run string
	// args are for the test binary, separated by spaces.
	args string
}

func (t test) String() string { return strings.TrimSpace(t.pkg + " " + t.run + " " + t.args) }

// edit puts one piece of a file in the place of another.
type edit struct{ file, old, new string }

// mutant is one bug.
type mutant struct {
	name     string
	edits    []edit
	caughtBy []test
}

type runner struct {
	verbose bool
	tags    string
	// clean are the tests that were seen to pass without a bug.
	clean map[test]bool
	dirs  []string
}

func (r *runner) cleanup() {
	for _, d := range r.dirs {
		_ = os.RemoveAll(d)
	}
}

// try reports whether t fails under m, and passes without it.
func (r *runner) try(ctx context.Context, m mutant, t test) (caught bool, took time.Duration, err error) {
	if !r.clean[t] {
		ok, _, err := r.test(ctx, t, "")
		if err != nil {
			return false, 0, err
		}
		if !ok {
			return false, 0, errors.New("it fails without any bug")
		}
		r.clean[t] = true
	}
	overlay, err := r.overlay(m)
	if err != nil {
		return false, 0, err
	}
	ok, took, err := r.test(ctx, t, overlay)
	return !ok, took, err
}

// overlay writes the changed files and returns the file that names them.
func (r *runner) overlay(m mutant) (string, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	r.dirs = append(r.dirs, dir)
	texts := make(map[string]string)
	for _, e := range m.edits {
		text, ok := texts[e.file]
		if !ok {
			b, err := os.ReadFile(e.file)
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s holds %d times what was to be replaced:\n%s", e.file, n, e.old)
		}
		texts[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := make(map[string]string)
	for file, text := range texts {
		abs, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[abs] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, b, 0o600)
}

// buildFailed is what the go command prints where there was no test to fail.
var buildFailed = regexp.MustCompile(`(?m)\[(build|setup) failed\]|^FAIL.*no test|warning: no tests to run|^go: `)

// test runs t and reports whether it passed.
func (r *runner) test(ctx context.Context, t test, overlay string) (ok bool, took time.Duration, err error) {
	args := []string{"test", "-count=1", "-timeout=120s", "-run", t.run}
	if r.tags != "" {
		args = append(args, "-tags", r.tags)
	}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(append(args, t.pkg), strings.Fields(t.args)...)
	start := time.Now()
	cmd := exec.CommandContext(ctx, "go", args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	took = time.Since(start)
	if r.verbose {
		fmt.Println(out.String())
	}
	var exit *exec.ExitError
	switch {
	case buildFailed.Match(out.Bytes()):
		return false, took, fmt.Errorf("go %s: %s", strings.Join(args, " "), out.String())
	case err == nil:
		return true, took, nil
	case errors.As(err, &exit) && ctx.Err() == nil:
		return false, took, nil
	}
	return false, took, err
}
