package fdbcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds the start of one server, stopTimeout its end.
const (
	startTimeout = 40 * time.Second
	stopTimeout  = 10 * time.Second
)

// Options shape a throw-away cluster.
type Options struct {
	// Engine is the storage engine, as in fdbcli's configure; empty means ssd.
	// memory starts a little faster, and stalls for good at 1 GB of data.
	Engine string
	// Knobs are server knobs, "name=value", e.g.
	// "max_read_transaction_life_versions=1000000" for transactions that are too
	// old after one second.
	Knobs []string
}

// Start starts a throw-away cluster of one process, replication single, on a
// free port of 127.0.0.1. It returns [ErrNone] where fdbserver or fdbcli is not
// on PATH. The caller closes the cluster.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	server, err := exec.LookPath("fdbserver")
	if err == nil {
		_, err = exec.LookPath("fdbcli")
	}
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNone, err)
	}
	if opts.Engine == "" {
		opts.Engine = "ssd"
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	sweep()

	// The port is free when it is chosen and may be taken a moment later.
	const attempts = 3
	for range attempts {
		var c *Cluster
		if c, err = startServer(ctx, server, opts); err == nil || ctx.Err() != nil {
			return c, err
		}
	}
	return nil, err
}

func startServer(ctx context.Context, server string, opts Options) (*Cluster, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("fdbcluster: %w", err)
	}
	p, err := startIn(ctx, dir, server, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fdbcluster: start %s: %w", server, err), os.RemoveAll(dir))
	}
	c := &Cluster{File: clusterFile(dir), PID: p.cmd.Process.Pid, stop: func() error {
		return errors.Join(p.kill(), os.RemoveAll(dir))
	}}
	if err := configure(ctx, c, p, opts.Engine); err != nil {
		tail, _ := os.ReadFile(filepath.Join(dir, "out"))
		return nil, errors.Join(fmt.Errorf("fdbcluster: %w; fdbserver says: %s", err, tail), c.Close())
	}
	return c, nil
}

func clusterFile(dir string) string { return filepath.Join(dir, "fdb.cluster") }

func startIn(ctx context.Context, dir, server string, opts Options) (*process, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := os.WriteFile(clusterFile(dir), []byte("headwater:test@"+address+"\n"), 0o600); err != nil {
		return nil, err
	}
	// A file and no pipe: go test waits for all who hold its pipes.
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		return nil, err
	}
	defer out.Close()

	args := []string{
		"-p", address, "-C", clusterFile(dir), "-d", filepath.Join(dir, "d"), "-L", dir,
		"--logsize", "10MiB", "--maxlogssize", "20MiB",
		"--memory", "4GiB", "--cache-memory", "256MiB",
		"--locality-machineid", "m1", "--locality-zoneid", "z1",
	}
	for _, knob := range opts.Knobs {
		name, value, ok := strings.Cut(knob, "=")
		if !ok {
			return nil, fmt.Errorf("knob %q is not name=value", knob)
		}
		args = append(args, "--knob_"+name+"="+value)
	}
	// The context is that of the start; the server outlives it.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), server, args...)
	cmd.Env = plainEnv()
	cmd.Stdout, cmd.Stderr = out, out
	return spawn(cmd)
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// configure creates the database and waits until it answers.
func configure(ctx context.Context, c *Cluster, p *process, engine string) error {
	created := false
	for {
		var err error
		if !created {
			_, err = c.CLI(ctx, "configure new single "+engine)
			// A command that was carried out but not answered in time is repeated.
			created = err == nil || strings.Contains(err.Error(), "already exists")
		}
		if created {
			if _, err = c.CLI(ctx, "getversion"); err == nil {
				return nil
			}
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the server ended: %w", p.err)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// process is a child that ends with this process.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once err is set
	err   error
}

// spawn starts cmd from a thread that stays until cmd ends: the kernel's signal
// to a child of a dead parent goes out when the thread that started it ends, and
// Go ends threads as it likes.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		defer close(p.ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the server at once: nobody needs its data.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("process %d did not end within %v of SIGKILL", p.cmd.Process.Pid, stopTimeout)
	}
}

// dirPrefix begins the names of data folders; the process id of their owner
// follows.
const dirPrefix = "hwfdb-"

// sweep removes the folders of owners that died without closing their clusters.
// What can't be removed is left for the next time.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range dirs {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		if pid, err := strconv.Atoi(owner); err == nil && !alive(pid) {
			_ = os.RemoveAll(dir)
		}
	}
}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}
