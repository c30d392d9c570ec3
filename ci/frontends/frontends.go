package frontends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The stores a server can be started on, as its --store flag names them.
const (
	Memory   = "memory"
	Embedded = "embedded"
	FDB      = "fdb"
)

const (
	readyWithin = 30 * time.Second
	stopWithin  = 20 * time.Second
	// portTries bounds how often a port is chosen anew after another process
	// took it between our choice and the server's listening.
	portTries = 3
)

// Options says what to start.
type Options struct {
	// Binary is the path of the headwater binary.
	Binary string
	// Store is Memory, Embedded or FDB.
	Store string
	// N is the number of processes. More than one needs FDB: the other stores
	// belong to one process.
	N int
	// ClusterFile names the cluster; FDB only.
	ClusterFile string
	// Args are further arguments of "headwater serve".
	Args []string
	// Log receives what the servers print.
	Log io.Writer
}

// Set is a group of running servers over one store.
type Set struct {
	servers []*server
	scratch string
}

type server struct {
	url    string
	admin  string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait; read after exited is closed
}

// Build compiles the server into dir and returns the binary's path. With fdb
// the binary needs FoundationDB's client library. flags are further ones of "go
// build", such as -race.
func Build(ctx context.Context, dir string, fdb bool, log io.Writer, flags ...string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "headwater")
	args := append([]string{"build", "-o", out}, flags...)
	cgo := "CGO_ENABLED=0"
	if fdb {
		args = append(args, "-tags", "foundationdb")
	}
	if fdb || slices.Contains(flags, "-race") {
		cgo = "CGO_ENABLED=1"
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/headwater")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), cgo)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the server: %w", err)
	}
	return out, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod))), nil
}

// Start starts o.N servers and returns when all of them answer on /readyz.
func Start(ctx context.Context, o Options) (*Set, error) {
	if o.N < 1 {
		return nil, fmt.Errorf("%d frontends asked for", o.N)
	}
	if o.N > 1 && o.Store != FDB {
		return nil, fmt.Errorf("%d frontends over store %q: only %s can be shared", o.N, o.Store, FDB)
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	scratch, err := os.MkdirTemp("", "headwater-frontends-")
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}
	set := &Set{scratch: scratch}
	for range o.N {
		s, err := startOne(ctx, o, scratch)
		if err != nil {
			return nil, errors.Join(err, set.Stop())
		}
		set.servers = append(set.servers, s)
	}
	return set, nil
}

// URLs are the base URLs of the servers, without a trailing slash.
func (s *Set) URLs() []string {
	urls := make([]string, len(s.servers))
	for i, srv := range s.servers {
		urls[i] = srv.url
	}
	return urls
}

// AdminURLs are the base URLs of the servers' admin planes, in the order of URLs.
func (s *Set) AdminURLs() []string {
	urls := make([]string, len(s.servers))
	for i, srv := range s.servers {
		urls[i] = srv.admin
	}
	return urls
}

// PIDs are the process ids of the servers, in the order of URLs.
func (s *Set) PIDs() []int {
	pids := make([]int, len(s.servers))
	for i, srv := range s.servers {
		pids[i] = srv.cmd.Process.Pid
	}
	return pids
}

// Stop ends the servers with SIGTERM, then SIGKILL, and removes their data. Its
// error says which of them had died before it was asked to, or would not drain.
func (s *Set) Stop() error {
	var errs []error
	for _, srv := range s.servers {
		errs = append(errs, srv.stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.scratch))...)
}

func (s *server) stop() error {
	select {
	case <-s.exited:
		return fmt.Errorf("server at %s had died: %w", s.url, errors.Join(s.err, errors.New("before it was told to stop")))
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping server at %s: %w", s.url, err)
	}
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-s.exited:
		if s.err != nil {
			return fmt.Errorf("server at %s, after SIGTERM: %w", s.url, s.err)
		}
		return nil
	case <-timer.C:
		err := s.cmd.Process.Kill()
		<-s.exited
		return errors.Join(fmt.Errorf("server at %s did not stop within %v of SIGTERM", s.url, stopWithin), err)
	}
}

func startOne(ctx context.Context, o Options, scratch string) (*server, error) {
	var err error
	for range portTries {
		var s *server
		if s, err = tryStart(ctx, o, scratch); err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func tryStart(ctx context.Context, o Options, scratch string) (*server, error) {
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--listen", addr, "--admin-listen", admin, "--store", o.Store}
	switch o.Store {
	case Embedded:
		args = append(args, "--data-dir", filepath.Join(scratch, "data"))
	case FDB:
		args = append(args, "--cluster-file", o.ClusterFile)
	}
	// Not exec.CommandContext: it would kill the server when ctx ends, and Stop
	// is to see whether the server can drain.
	s := &server{
		url:    "http://" + addr,
		admin:  "http://" + admin,
		cmd:    exec.Command(o.Binary, append(args, o.Args...)...), //nolint:noctx // Stop ends it, see above
		exited: make(chan struct{}),
	}
	s.cmd.Stdout, s.cmd.Stderr = o.Log, o.Log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", o.Binary, err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.awaitReady(ctx); err != nil {
		_ = s.cmd.Process.Kill() // it may be gone already; what matters is err
		<-s.exited
		return nil, err
	}
	return s, nil
}

// freeAddress chooses a port nobody listens on. Another process may take it
// before the server does; tryStart then fails and is tried again.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("choosing a port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	var last error
	for {
		ready, err := probe(ctx, s.url+"/readyz")
		if ready {
			select {
			case <-s.exited: // who answered is another process on our port
				return fmt.Errorf("server at %s exited: %w", s.url, errors.Join(s.err, errors.New("its port was taken")))
			default:
				return nil
			}
		}
		last = err
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-timer.C:
		case <-s.exited:
			timer.Stop()
			return fmt.Errorf("server at %s exited before it was ready: %w", s.url, errors.Join(s.err, last))
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("server at %s not ready in %v: %w", s.url, readyWithin, errors.Join(ctx.Err(), last))
		}
	}
}

func probe(ctx context.Context, url string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s answers %s", url, res.Status)
	}
	return true, nil
}
