package fdbcluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestFindTakesTheNamedCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fdb.cluster")
	t.Setenv(clusterFileEnv, file)
	if _, err := Find(t.Context()); err == nil || errors.Is(err, ErrNone) {
		t.Fatalf("a cluster file that is not there: %v, want an error that fails tests", err)
	}
	if err := os.WriteFile(file, []byte("a:b@127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Find(t.Context())
	if err != nil || c.File != file || c.Throwaway() {
		t.Fatalf("Find: %+v, %v", c, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("Close touched a cluster that is not ours: %v", err)
	}
}

// barren makes a machine without a cluster.
func barren(t *testing.T) {
	t.Setenv(clusterFileEnv, "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none.sock"))
}

func TestFindNone(t *testing.T) {
	barren(t)
	if c, err := Find(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("Find: %+v, %v, want ErrNone", c, err)
	}
}

const role = "FDBCLUSTER_TEST_ROLE"

// again is this test binary, run once more for one test.
func again(t *testing.T, test, name string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), role+"="+name)
	return cmd
}

func TestSkipsLoudlyOnce(t *testing.T) {
	if os.Getenv(role) == "skip" {
		for i := range 3 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				Open(t)
				t.Error("Open returned without a cluster")
			})
		}
		return
	}
	barren(t)
	cmd := again(t, t.Name(), "skip")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	if n := strings.Count(stdout.String(), "--- SKIP"); n != 3 {
		t.Errorf("%d tests skipped, want 3:\n%s", n, &stdout)
	}
	if n := strings.Count(stderr.String(), SkipText); n != 1 {
		t.Errorf("%d lines to standard error, want 1:\n%s", n, &stderr)
	}
}

func TestServerThatEnds(t *testing.T) {
	bin, tmp := t.TempDir(), t.TempDir()
	for name, script := range map[string]string{
		"fdbserver": "#!/bin/sh\necho broken server >&2\nexit 3\n",
		"fdbcli":    "#!/bin/sh\nexit 1\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(clusterFileEnv, "")
	t.Setenv("PATH", bin+":/bin:/usr/bin")
	t.Setenv("TMPDIR", tmp)
	_, err := Find(t.Context())
	if err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "broken server") {
		t.Errorf("Find: %v, want what the server printed", err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
}

func TestThrowaway(t *testing.T) {
	c, err := Start(t.Context(), Options{Engine: "memory", Knobs: []string{"max_read_transaction_life_versions=1000000"}})
	check(t, err)
	out, err := c.CLI(t.Context(), "writemode on; set k v; get k")
	if err != nil || !strings.Contains(out, "`v'") {
		t.Errorf("fdbcli: %q, %v", out, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if alive(c.PID) {
		t.Error("the server outlived Close")
	}
	if _, err := os.Stat(filepath.Dir(c.File)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder outlived Close: %v", err)
	}
}

// TestDiesWithItsOwner kills a process that has a cluster, and looks for what is
// left of it.
func TestDiesWithItsOwner(t *testing.T) {
	if os.Getenv(role) == "owner" {
		c, err := Start(t.Context(), Options{Engine: "memory"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("CLUSTER", c.PID, c.File)
		select {} // until killed
	}
	if _, err := exec.LookPath("fdbserver"); err != nil {
		t.Skipf("%s: %v", SkipText, err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	cmd := again(t, t.Name(), "owner")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var file string
	for lines := bufio.NewScanner(stdout); file == "" && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "CLUSTER %d %s", &pid, &file)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if file == "" {
		t.Fatal("the owner started no cluster")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for alive(pid) {
		select {
		case <-ctx.Done():
			t.Fatalf("server %d outlived its owner", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
	sweep()
	if _, err := os.Stat(filepath.Dir(file)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead owner's folder is still there: %v", err)
	}
}

func TestOpenShares(t *testing.T) {
	first := Open(t)
	if second := Open(t); first != second {
		t.Errorf("two clusters in one process: %s and %s", first, second)
	}
}
