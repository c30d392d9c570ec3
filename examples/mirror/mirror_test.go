package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// server is a headwater process that tests kill and start again on one port
// and one data directory.
type server struct {
	t         *testing.T
	bin, data string
	addr      string
	client    *http.Client
	cmd       *exec.Cmd
}

func newServer(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, bin: filepath.Join(dir, "headwater"), data: filepath.Join(dir, "data"), client: &http.Client{Timeout: 20 * time.Second}}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.bin, "headwater/cmd/headwater")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.bin, "serve", "--listen", s.addr, "--store", "embedded", "--data-dir", s.data)
	s.cmd.Stderr = io.Discard
	if testing.Verbose() {
		s.cmd.Stderr = os.Stderr
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 400 {
		resp, err := s.client.Get("http://" + s.addr + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(25 * time.Millisecond)
	}
	s.t.Error("the server is not ready after 10 s")
}

// killNowAndThen kills the server at random moments, and starts it again, until
// ctx ends. The function it returns waits for that and counts the kills.
func (s *server) killNowAndThen(ctx context.Context) (kills func() int) {
	n := 0
	done := make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(200+rand.IntN(600)) * time.Millisecond):
				s.kill()
				s.start()
				n++
			}
		}
	}()
	s.t.Cleanup(func() { stop(); <-done })
	return func() int {
		stop()
		<-done
		return n
	}
}

// kill ends the process at once, as a crash would.
func (s *server) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// send makes one request, again and again while the server is away, and
// returns the status of its answer.
func (s *server) send(ctx context.Context, method, url string, h map[string]string, body []byte) (int, http.Header, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return 0, nil, err
		}
		for k, v := range h {
			req.Header.Set(k, v)
		}
		resp, err := s.client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if err == nil && resp.StatusCode < 500 {
				return resp.StatusCode, resp.Header, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// The mirror's state is that of the model at every offset both know, through
// kills of the server, snapshots, retention that passes the mirror by, and a
// stream that is deleted and made anew.
func TestMirrorFollowsThroughKillsAndRetention(t *testing.T) {
	srv := newServer(t)
	url := "http://" + srv.addr + "/demo/state"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	jsonType := map[string]string{"Content-Type": "application/json"}
	if status, _, err := srv.send(ctx, http.MethodPut, url, jsonType, nil); err != nil || status != http.StatusCreated {
		t.Fatal(status, err)
	}

	m := newMirror(url)
	mctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); m.run(mctx) }()
	defer func() { stop(); <-done }()

	model := state{}
	history := map[string]state{} // by offset
	kills := srv.killNowAndThen(mctx)
	rounds, life := 300, 0
	if testing.Short() {
		rounds = 80
	}
	seq := 0
	for i := range rounds {
		v := rand.Int64N(1000)
		c := change{Key: fmt.Sprint("k", rand.IntN(8)), Value: &v}
		if rand.IntN(4) == 0 {
			c.Value = nil
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		// A writer with a producer's identity can send again what a kill left
		// in doubt, and it is applied once.
		h := map[string]string{
			"Content-Type": "application/json", "Producer-Id": "writer",
			"Producer-Epoch": fmt.Sprint(life), "Producer-Seq": fmt.Sprint(seq),
		}
		status, got, err := srv.send(ctx, http.MethodPost, url, h, text)
		if err != nil || status != http.StatusOK && status != http.StatusNoContent {
			t.Fatal(status, err)
		}
		seq++
		// Slow enough for the server to be killed now and then.
		time.Sleep(rand.N(20 * time.Millisecond))
		if err := model.apply(text); err != nil {
			t.Fatal(err)
		}
		history[got.Get("Stream-Next-Offset")] = model.clone()
		if rand.IntN(12) == 0 {
			srv.snapshot(ctx, t, url, model, got.Get("Stream-Next-Offset"))
		}
		if i == rounds/2 {
			// Sent again after a kill, a delete that was applied finds nothing.
			if status, _, err := srv.send(ctx, http.MethodDelete, url, nil, nil); err != nil || status != http.StatusNoContent && status != http.StatusNotFound {
				t.Fatal(status, err)
			}
			if status, _, err := srv.send(ctx, http.MethodPut, url, jsonType, nil); err != nil || status >= 300 {
				t.Fatal(status, err)
			}
			model, history, seq, life = state{}, map[string]state{}, 0, life+1
		}
		if s, at := m.copyState(); history[at] != nil && !maps.Equal(s, history[at]) {
			t.Fatalf("at %s the mirror has %v, the model %v", at, s, history[at])
		}
	}
	for !settled(m, model) {
		if ctx.Err() != nil {
			s, at := m.copyState()
			t.Fatalf("the mirror stays at %s with %v, the model has %v", at, s, model)
		}
		time.Sleep(20 * time.Millisecond)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t.Logf("%d kills, %d bootstraps", kills(), m.bootstraps)
	if n := kills(); n == 0 {
		t.Error("the server was never killed")
	}
	if m.bootstraps < 2 {
		t.Error("the mirror was never made to rebuild")
	}
}

func settled(m *mirror, model state) bool {
	s, _ := m.copyState()
	return maps.Equal(s, model)
}

// snapshot publishes the model's state and drops what lies before it. A
// mirror that is behind then meets 410.
func (s *server) snapshot(ctx context.Context, t *testing.T, url string, model state, offset string) {
	t.Helper()
	body, err := json.Marshal(model)
	if err != nil {
		t.Fatal(err)
	}
	status, _, err := s.send(ctx, http.MethodPut, url+"/snapshot/"+offset, map[string]string{"Content-Type": "application/json"}, body)
	if err != nil || status != http.StatusNoContent {
		t.Fatal("snapshot:", status, err)
	}
	status, _, err = s.send(ctx, http.MethodPut, url+"/retention/"+offset, nil, nil)
	if err != nil || status != http.StatusNoContent {
		t.Fatal("retention:", status, err)
	}
}

func TestAResponseMayEndInsideAMessage(t *testing.T) {
	var calls atomic.Int64
	m := newMirror("http://stream.invalid")
	m.client.Transport = transport(func(r *http.Request) (*http.Response, error) {
		text := `{"key":"a","va`
		if calls.Add(1) == 2 {
			text = "lue\":7}\n"
		}
		h := http.Header{"Stream-Next-Offset": {fmt.Sprint(calls.Load())}}
		return &http.Response{StatusCode: http.StatusOK, Header: h, Body: io.NopCloser(bytes.NewBufferString(text)), Request: r}, nil
	})
	m.offset = "0"
	for range 2 {
		if err := m.follow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s, at := m.copyState(); at != "2" || s["a"] != 7 {
		t.Fatalf("%v at %s", s, at)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
