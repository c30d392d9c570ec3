package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"headwater/ci/frontends"
	"headwater/ci/tally"
)

// The number of tests of the public suite, version 0.3.6: a run of fewer has not
// run the suite. Subscriptions are on the base surface only.
const (
	coreTests         = 332
	subscriptionTests = 6
)

const conformanceDir = "ci/conformance"

// A suite runs its tests against base URLs and counts them. An error means that
// it could not be run; failed tests are no error.
type suite func(ctx context.Context, t target, urls []string) (tally.Counts, error)

var suites = map[string]suite{
	"conformance": conformance,
	"client":      client,
	"extensions":  extensions,
}

// runSuite starts the servers of t, unless there are some, runs s, and stops them.
func runSuite(ctx context.Context, s suite, t target) (counts tally.Counts, err error) {
	switch {
	case len(t.urls) > 0:
		return s(ctx, t, t.urls)
	case t.store == frontends.FDB && t.clusterFile == "":
		err = withCluster(ctx, func(file string) error {
			t.clusterFile = file
			var err error
			counts, err = runOnServers(ctx, s, t)
			return err
		})
		return counts, err
	default:
		return runOnServers(ctx, s, t)
	}
}

func runOnServers(ctx context.Context, s suite, t target) (counts tally.Counts, err error) {
	if t.binary == "" {
		if t.binary, err = frontends.Build(ctx, "bin", t.store == frontends.FDB, os.Stderr); err != nil {
			return tally.Counts{}, err
		}
	}
	log, err := openServerLog(t.serverLog)
	if err != nil {
		return tally.Counts{}, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	set, err := frontends.Start(ctx, frontends.Options{
		Binary: t.binary, Store: t.store, N: t.frontends, ClusterFile: t.clusterFile, Log: log,
		// The public suite receives webhooks on localhost, and takes turns as a
		// load balancer does, which says what it was asked for.
		Args: []string{"--webhook-localhost", "--trusted-proxies=127.0.0.1"},
	})
	if err != nil {
		return tally.Counts{}, errors.Join(err, tailOf(log))
	}
	t.pids, t.admins = set.PIDs(), set.AdminURLs()
	counts, err = s(ctx, t, set.URLs())
	if stopErr := set.Stop(); stopErr != nil {
		err = errors.Join(err, stopErr, tailOf(log))
	}
	return counts, err
}

func openServerLog(name string) (*os.File, error) {
	if name != "" {
		return os.Create(name)
	}
	f, err := os.CreateTemp("", "headwater-server-*.log")
	if err != nil {
		return nil, err
	}
	// The name is not needed: what matters of it is shown by tailOf.
	return f, os.Remove(f.Name())
}

// tailOf returns the end of a server log as an error, so that it is seen beside
// the failure it explains.
func tailOf(log *os.File) error {
	const most = 8 << 10
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	b := make([]byte, min(size, most))
	if _, err := log.ReadAt(b, size-int64(len(b))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("the servers' log ends:\n%s", b)
}

func conformance(ctx context.Context, t target, urls []string) (tally.Counts, error) {
	want := coreTests
	if t.surface == "base" {
		want += subscriptionTests
	}
	counts, err := vitest(ctx, t, urls, "suite.test.mjs")
	if ran := counts.Passed + counts.Failed; err == nil && t.only == "" && ran < want {
		err = fmt.Errorf("only %d tests ran, the suite has %d", ran, want)
	}
	return counts, err
}

func client(ctx context.Context, t target, urls []string) (tally.Counts, error) {
	return vitest(ctx, t, urls, "client.test.mjs")
}

func vitest(ctx context.Context, t target, urls []string, file string) (tally.Counts, error) {
	if err := installNodeModules(ctx); err != nil {
		return tally.Counts{}, err
	}
	results := filepath.Join(conformanceDir, "results")
	if err := os.MkdirAll(results, 0o755); err != nil {
		return tally.Counts{}, err
	}
	report, err := os.CreateTemp(results, strings.TrimSuffix(file, ".test.mjs")+"-*.json")
	if err != nil {
		return tally.Counts{}, err
	}
	defer report.Close()
	name, err := filepath.Abs(report.Name())
	if err != nil {
		return tally.Counts{}, err
	}
	args := []string{"--no-install", "vitest", "run", file, "--reporter=dot", "--reporter=json", "--outputFile=" + name}
	if t.only != "" {
		args = append(args, "-t", t.only)
	}
	cmd := exec.CommandContext(ctx, "npx", args...)
	cmd.Dir = conformanceDir
	cmd.Env = append(os.Environ(), "HEADWATER_URLS="+strings.Join(urls, ","), "HEADWATER_SURFACE="+t.surface, "NO_COLOR=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	runErr := cmd.Run()
	counts, err := tally.Vitest(report)
	if err != nil {
		return counts, errors.Join(runErr, err)
	}
	// Vitest also fails where no test did, on an unhandled rejection for one.
	if runErr != nil && counts.Failed == 0 {
		return counts, fmt.Errorf("vitest: %w", runErr)
	}
	return counts, nil
}

// installNodeModules installs what the lock file pins, where it is newer than
// what is installed.
func installNodeModules(ctx context.Context) error {
	lock, err := os.Stat(filepath.Join(conformanceDir, "package-lock.json"))
	if err != nil {
		return err
	}
	installed, err := os.Stat(filepath.Join(conformanceDir, "node_modules", ".package-lock.json"))
	if err == nil && !installed.ModTime().Before(lock.ModTime()) {
		return nil
	}
	cmd := exec.CommandContext(ctx, "npm", "ci")
	cmd.Dir = conformanceDir
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("npm ci (Node 20 or later is needed): %w", err)
	}
	return nil
}

func extensions(ctx context.Context, t target, urls []string) (tally.Counts, error) {
	args := []string{"-count=1", "-timeout", "2h", "./ci/extensions"}
	if t.only != "" {
		args = append([]string{"-run", t.only}, args...)
	}
	env := []string{"HEADWATER_URLS=" + strings.Join(urls, ","), "HEADWATER_SURFACE=" + t.surface, "HEADWATER_PIDS=" + strings.Trim(fmt.Sprint(t.pids), "[]")}
	if len(t.admins) > 0 {
		env = append(env, "HEADWATER_ADMIN_URLS="+strings.Join(t.admins, ","))
	}
	if t.rounds > 0 {
		env = append(env, "HEADWATER_ROUNDS="+strconv.Itoa(t.rounds))
	}
	table, err := os.CreateTemp("", "headwater-sections-*")
	if err != nil {
		return tally.Counts{}, err
	}
	defer os.Remove(table.Name()) //nolint:errcheck // a temporary file
	defer table.Close()
	counts, err := goTest(ctx, append(env, "HEADWATER_TABLE="+table.Name()), args...)
	_, copyErr := io.Copy(os.Stdout, table)
	return counts, errors.Join(err, copyErr)
}

// goTest runs "go test -json" and shows what a person would have seen.
func goTest(ctx context.Context, env []string, args ...string) (tally.Counts, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stdout
	out, err := cmd.StdoutPipe()
	if err != nil {
		return tally.Counts{}, err
	}
	if err := cmd.Start(); err != nil {
		return tally.Counts{}, err
	}
	counts, err := tally.Go(out, os.Stdout)
	if waitErr := cmd.Wait(); waitErr != nil && counts.Failed == 0 {
		err = errors.Join(err, fmt.Errorf("go test: %w", waitErr))
	}
	return counts, err
}
