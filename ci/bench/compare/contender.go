package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"headwater/ci/fdbcluster"
	"headwater/ci/frontends"
)

// contender is a server that can be started afresh.
type contender struct {
	name string
	// durability is what an answered append survives.
	durability string
	// pseudo tells the ceiling: nothing is stored, so nothing can be verified.
	pseudo bool
	start  func(ctx context.Context) (*instance, error)
}

// instance is a running server.
type instance struct {
	url string
	pid int
	// stop ends the server and removes its data.
	stop func() error
}

// errAbsent tells a contender that this machine can't run.
var errAbsent = errors.New("not here")

// yard prepares the contenders: what is built or started once for all runs.
type yard struct {
	dir      string // scratch, on the disk that is measured
	log      io.Writer
	ours     string // the binary
	ourFDB   string // the same with FoundationDB
	cluster  *fdbcluster.Cluster
	nodeDir  string
	peersBin string
}

const (
	nodeDir  = "ci/bench/compare/node"
	peersDir = "bin/peers"
	// crate is the peer of --crates; its version is what was compared.
	crate, crateVersion = "durable-streams", "0.1.5"
)

func (y *yard) contenders() map[string]contender {
	all := []contender{
		{name: "ceiling", durability: "stores nothing", pseudo: true, start: func(ctx context.Context) (*instance, error) {
			address, err := freeAddress(ctx)
			if err != nil {
				return nil, err
			}
			return y.spawn(ctx, address, nil, y.ours, "bench", "ceiling", "--listen", address)
		}},
		{name: "headwater-embedded", durability: "fsync before the answer; one machine", start: y.headwater(frontends.Embedded)},
		{name: "headwater-memory", durability: "none: gone with the process", start: y.headwater(frontends.Memory)},
		{name: "headwater-fdb", durability: "FoundationDB (single ssd): fsync before the answer; one machine here", start: y.headwater(frontends.FDB)},
		{name: "node-memory", durability: "none: gone with the process", start: func(ctx context.Context) (*instance, error) { return y.node(ctx, false) }},
		{name: "node-file", durability: "fdatasync before the answer; one machine", start: func(ctx context.Context) (*instance, error) { return y.node(ctx, true) }},
		{name: "rust-wal", durability: "fdatasync before the answer; one machine", start: func(ctx context.Context) (*instance, error) { return y.rust(ctx, "wal") }},
		{name: "rust-memory", durability: "page cache: survives the process, not the machine", start: func(ctx context.Context) (*instance, error) { return y.rust(ctx, "memory") }},
	}
	byName := map[string]contender{}
	for _, c := range all {
		byName[c.name] = c
	}
	return byName
}

// order is that of the tables.
var order = []string{"ceiling", "headwater-embedded", "headwater-memory", "headwater-fdb", "node-memory", "node-file", "rust-wal", "rust-memory"}

// prepare builds and installs what the named contenders need, and returns those
// that can't be had, with the reason.
func (y *yard) prepare(ctx context.Context, names []string) (absent map[string]error, err error) {
	absent = map[string]error{}
	if y.ours, err = frontends.Build(ctx, y.dir, false, y.log); err != nil {
		return nil, err
	}
	y.nodeDir, y.peersBin = nodeDir, filepath.Join(peersDir, "bin")
	installed := map[string]error{}
	once := func(what string, f func() error) error {
		if _, tried := installed[what]; !tried {
			installed[what] = f()
		}
		return installed[what]
	}
	for _, name := range names {
		kind, _, _ := strings.Cut(name, "-")
		var err error
		switch {
		case name == "headwater-fdb":
			err = y.prepareFDB(ctx)
		case kind == "node":
			err = once(kind, func() error { return y.run(ctx, y.nodeDir, "npm", "ci", "--no-audit", "--no-fund") })
		case kind == "rust":
			err = once(kind, func() error {
				return y.run(ctx, ".", "cargo", "install", crate, "--version", crateVersion, "--locked", "--root", peersDir)
			})
		}
		if err != nil {
			absent[name] = err
		}
	}
	return absent, nil
}

func (y *yard) prepareFDB(ctx context.Context) (err error) {
	y.cluster, err = fdbcluster.Find(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errAbsent, err)
	}
	dir := filepath.Join(y.dir, "fdb")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	y.ourFDB, err = frontends.Build(ctx, dir, true, y.log)
	return err
}

func (y *yard) close() error {
	var err error
	if y.cluster != nil {
		err = y.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(y.dir))
}

func (y *yard) run(ctx context.Context, dir, name string, args ...string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("%w: %w", errAbsent, err)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, y.log, y.log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

func (y *yard) headwater(store string) func(ctx context.Context) (*instance, error) {
	return func(ctx context.Context) (*instance, error) {
		o := frontends.Options{Binary: y.ours, Store: store, N: 1, Log: y.log}
		if store == frontends.FDB {
			o.Binary, o.ClusterFile = y.ourFDB, y.cluster.File
			// Runs share the cluster, each under a prefix of its own.
			o.Args = []string{"--key-prefix", fmt.Sprintf("bench-%d", time.Now().UnixNano())}
		}
		set, err := frontends.Start(ctx, o)
		if err != nil {
			return nil, err
		}
		return &instance{url: set.URLs()[0], pid: set.PIDs()[0], stop: set.Stop}, nil
	}
}

func (y *yard) node(ctx context.Context, file bool) (*instance, error) {
	args := []string{filepath.Join(y.nodeDir, "start.mjs")}
	var remove []string
	if file {
		dir, err := os.MkdirTemp(y.dir, "node-")
		if err != nil {
			return nil, err
		}
		args, remove = append(args, dir), append(remove, dir)
	}
	return y.spawn(ctx, "", remove, "node", args...)
}

func (y *yard) rust(ctx context.Context, durability string) (*instance, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(y.dir, "rust-")
	if err != nil {
		return nil, err
	}
	return y.spawn(ctx, address, []string{dir}, filepath.Join(y.peersBin, "durable-streams-server"),
		"--host", host, "--port", port, "--data-dir", dir, "--durability", durability)
}

const (
	readyWithin = 30 * time.Second
	stopWithin  = 20 * time.Second
)

// spawn starts a server and waits until it accepts connections at address; for
// "" it prints its URL.
func (y *yard) spawn(ctx context.Context, address string, remove []string, name string, args ...string) (*instance, error) {
	// Not exec.CommandContext: it would kill the server when ctx ends, and stop
	// lets it end by itself first.
	cmd := exec.Command(name, args...) //nolint:noctx // see above
	cmd.Stderr = y.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	urls := make(chan string, 1)
	exited := make(chan error, 1)
	go func() {
		// To the end, or the server would wait for somebody to read its lines.
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if line := lines.Text(); strings.HasPrefix(line, "http://") {
				select {
				case urls <- line:
				default:
				}
			}
		}
		exited <- cmd.Wait()
	}()
	i := &instance{pid: cmd.Process.Pid, stop: func() error { return stopProcess(cmd.Process, exited, remove) }}
	ready, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if address == "" {
		select {
		case i.url = <-urls:
			return i, nil
		case <-ready.Done():
			return nil, errors.Join(fmt.Errorf("%s did not say where it listens: %w", name, ready.Err()), i.stop())
		}
	}
	i.url = "http://" + address
	if err := accepts(ready, address); err != nil {
		return nil, errors.Join(fmt.Errorf("%s at %s: %w", name, address, err), i.stop())
	}
	return i, nil
}

func stopProcess(p *os.Process, exited <-chan error, remove []string) error {
	err := p.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-exited: //nolint:errcheck // how a peer leaves is its own affair
	case <-timer.C:
		err = errors.Join(err, p.Kill())
		<-exited //nolint:errcheck // killed
	}
	for _, dir := range remove {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

func accepts(ctx context.Context, address string) error {
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
