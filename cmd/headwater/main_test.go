package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is an output that is read line by line while it is written.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
	ch  chan string
}

func newLines(r io.Reader) *lines {
	l := &lines{ch: make(chan string, 1000)}
	go func() {
		defer close(l.ch)
		for s := bufio.NewScanner(r); s.Scan(); {
			l.mu.Lock()
			l.all.WriteString(s.Text() + "\n")
			l.mu.Unlock()
			l.ch <- s.Text()
		}
	}()
	return l
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// command runs the program until stop, and returns its exit code then.
type command struct {
	t      *testing.T
	stderr *lines
	stop   context.CancelFunc
	code   chan int
}

func start(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	c := &command{t, newLines(r), cancel, make(chan int, 1)}
	go func() {
		code := run(ctx, args, io.Discard, w)
		_ = w.Close()
		c.code <- code
	}()
	t.Cleanup(cancel)
	return c
}

// wait returns the exit code.
func (c *command) wait() int {
	c.t.Helper()
	select {
	case code := <-c.code:
		for range c.stderr.ch { // until the pipe is read to its end
		}
		return code
	case <-time.After(30 * time.Second):
		c.t.Fatalf("does not end; said\n%s", c.stderr.text())
		return 0
	}
}

var served = regexp.MustCompile(`https?://[^ "]+`)

// url waits for the line that says where the server is.
func (c *command) url() string {
	c.t.Helper()
	for line := range c.stderr.ch {
		if strings.Contains(line, "serv") {
			if u := served.FindString(line); u != "" {
				return u
			}
		}
	}
	c.t.Fatalf("exit code %d:\n%s", c.wait(), c.stderr.text())
	return ""
}

func request(t *testing.T, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestServeKeepsWhatItAcknowledged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir}
	first := start(t, args...)
	url := first.url()
	if !strings.Contains(first.stderr.text(), dir) {
		t.Errorf("greeting does not name the directory:\n%s", first.stderr.text())
	}
	if code, _ := request(t, "PUT", url+"/v1/stream/s", "hello", "Content-Type", "text/plain"); code != 201 {
		t.Errorf("create: %d", code)
	}
	if code, body := request(t, "GET", url+"/readyz", ""); code != 200 || body != "ok\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}

	// The directory and the port are taken, and the messages say so.
	second := start(t, args...)
	if code := second.wait(); code != exitUsage || !strings.Contains(second.stderr.text(), dir+" is in use") {
		t.Errorf("exit code %d:\n%s", code, second.stderr.text())
	}
	third := start(t, "serve", "--store", "memory", "--listen", strings.TrimPrefix(url, "http://"))
	if code := third.wait(); code != exitUsage || !strings.Contains(third.stderr.text(), "--listen") {
		t.Errorf("exit code %d:\n%s", code, third.stderr.text())
	}

	first.stop()
	if code := first.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, first.stderr.text())
	}
	again := start(t, args...)
	if code, body := request(t, "GET", again.url()+"/v1/stream/s", ""); code != 200 || body != "hello" {
		t.Errorf("after a restart: %d %q", code, body)
	}
	again.stop()
	if code := again.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, again.stderr.text())
	}
}

// A flag is stronger than the environment, and that than the file.
func TestConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headwater.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parse := func(args ...string) (*serveCmd, error) {
		var c cli
		parser, err := kong.New(&c, options(context.Background(), output{io.Discard, io.Discard})...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = parser.Parse(append([]string{"serve"}, args...))
		return &c.Serve, err
	}
	write("listen: 127.0.0.1:1\nmax-body: 1MiB\nmax-requests: 7\nsse-max-age: 90s\nh2c: true\ntrusted-proxies: [10.0.0.0/8, \"::1\"]\nlog-level: debug\nstore: memory\n")
	t.Setenv("HEADWATER_LISTEN", "127.0.0.1:2")
	t.Setenv("HEADWATER_MAX_REQUESTS", "8")
	c, err := parse("--config", file, "--listen", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.MaxRequests != 8 || c.MaxBody != 1<<20 || c.SSEMaxAge != 90*time.Second || !c.H2C || c.Store != "memory" {
		t.Errorf("%+v", c)
	}
	if len(c.TrustedProxies) != 2 || c.TrustedProxies[0].String() != "10.0.0.0/8" || c.TrustedProxies[1].String() != "::1/128" {
		t.Errorf("trusted proxies %v", c.TrustedProxies)
	}
	if c, err = parse("--config", file); err != nil || c.Listen != "127.0.0.1:2" {
		t.Errorf("%v, %v", c.Listen, err)
	}
	t.Setenv("HEADWATER_CONFIG", file)
	if c, err = parse(); err != nil || c.MaxBody != 1<<20 {
		t.Errorf("%v, %v", c.MaxBody, err)
	}
	for what, text := range map[string]string{
		"unknown key":       "listne: x\n",
		"nested":            "serve:\n  listen: x\n",
		"value of no type":  "data-dir: {a: b}\n",
		"bad size":          "max-body: lots\n",
		"bad choice":        "store: oracle\n",
		"bad duration":      "sse-max-age: soon\n",
		"no YAML":           "listen: [\n",
		"the file itself":   "config: other.yaml\n",
		"bad network":       "trusted-proxies: [example.com]\n",
		"negative duration": "max-body: -1\n",
	} {
		write(text)
		if c, err := parse(); err == nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
	write("")
	if _, err := parse(); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	t.Setenv("HEADWATER_CONFIG", filepath.Join(t.TempDir(), "none.yaml"))
	if _, err := parse(); err == nil {
		t.Error("a missing file is no error")
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"--help"}, 0, "Usage: headwater", ""},
		{[]string{"serve", "--help"}, 0, "HEADWATER_MAX_BODY", ""},
		{[]string{"version"}, 0, "headwater dev", ""},
		{nil, exitUsage, "", "expected one of"},
		{[]string{"serve", "--store", "oracle"}, exitUsage, "", "--store"},
		{[]string{"serve", "--max-body", "0"}, exitUsage, "", "no size"},
		{[]string{"serve", "--tls-cert", "x"}, exitUsage, "", "--tls-key"},
		{[]string{"serve", "--listen", "nonsense"}, exitUsage, "", "listen on nonsense"},
		{[]string{"serve", "--nonsense"}, exitUsage, "", "--nonsense"},
	} {
		var stdout, stderr strings.Builder
		code := run(t.Context(), c.args, &stdout, &stderr)
		if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%q: exit code %d, %q, %q", c.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]byteSize{"1": 1, "4096": 4096, "10B": 10, "64KiB": 64 << 10, "32MiB": 32 << 20, "1GiB": 1 << 30, "5 MB": 5e6, "2GB": 2e9, "3kB": 3000} {
		var b byteSize
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q: %d, %v", text, b, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1.5MiB", "MiB", "1TiB", "x", "9223372036854775807KiB", "1e3"} {
		var b byteSize
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: %d", text, b)
		}
	}
}

func TestDialable(t *testing.T) {
	for addr, want := range map[string]string{"0.0.0.0:80": "localhost:80", "[::]:80": "localhost:80", "127.0.0.1:80": "127.0.0.1:80", "[::1]:80": "[::1]:80"} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := dialable(a); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}
