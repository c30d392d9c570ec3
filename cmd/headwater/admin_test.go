package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"headwater/admin"
	"headwater/ci/frontends"
)

// admin waits for the line that says where the admin plane is.
func (c *command) admin() string {
	c.t.Helper()
	for line := range c.stderr.ch {
		if strings.Contains(line, "admin plane is up") {
			return served.FindString(line)
		}
	}
	c.t.Fatalf("exit code %d:\n%s", c.wait(), c.stderr.text())
	return ""
}

// The admin plane has a listener of its own, and each has nothing of the other.
func TestAdminPlaneIsApart(t *testing.T) {
	c := start(t, "serve", "--store", "memory", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	plane := c.admin()
	url := c.url()
	if code, _ := request(t, "PUT", url+"/buckets/stream", "x", "Content-Type", "text/plain"); code != 201 {
		t.Errorf("a bucket may be called buckets: %d", code)
	}
	for _, path := range []string{"/metrics", "/stats", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=1"} {
		if code, body := request(t, "GET", url+path, ""); code < 400 || code >= 500 || !strings.Contains(body, `"code"`) {
			t.Errorf("%s on the client listener: %d %q", path, code, body)
		}
	}
	// There this is a stream, and its deletion bars nothing.
	if code, _ := request(t, "DELETE", url+"/buckets/stream", ""); code != 204 {
		t.Errorf("DELETE of a stream: %d", code)
	}
	code, body := request(t, "GET", plane+"/metrics", "")
	for _, line := range []string{
		`headwater_http_requests_total{method="PUT",route="stream",status="201",surface="bucket"} 1`,
		`headwater_http_requests_total{method="DELETE",route="stream",status="204",surface="bucket"} 1`,
		`headwater_http_received_bytes_total{route="stream"} 1`,
		`headwater_lane_commits_total{path="cold"} 1`,
		`engine="memory"`, "headwater_live_readers 0", "headwater_subscription_busy ",
	} {
		if code != 200 || !strings.Contains(body, line) {
			t.Errorf("%d, no line %s", code, line)
		}
	}
	for _, path := range []string{"/stats", "/debug/pprof/goroutine?debug=1"} {
		if code, body := request(t, "GET", plane+path, ""); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := request(t, "PUT", plane+"/v1/stream/s", ""); code != 404 {
		t.Errorf("a stream on the admin plane: %d", code)
	}
	c.stop()
	if code := c.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, c.stderr.text())
	}
}

func TestAdminListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := start(t, "serve", "--store", "memory", "--listen", "127.0.0.1:0", "--admin-listen", taken.Addr().String())
	if code := c.wait(); code != exitUsage || !strings.Contains(c.stderr.text(), "--admin-listen") {
		t.Errorf("exit code %d:\n%s", code, c.stderr.text())
	}
	for _, args := range [][]string{{"--admin-listen", ""}, {"--admin-listen="}} {
		c := start(t, append([]string{"serve", "--store", "memory", "--listen", "127.0.0.1:0"}, args...)...)
		if code, _ := request(t, "GET", c.url()+"/readyz", ""); code != 200 {
			t.Errorf("%q: %d", args, code)
		}
		c.stop()
		if code := c.wait(); code != 0 || strings.Contains(c.stderr.text(), "admin") {
			t.Errorf("%q: exit code %d:\n%s", args, code, c.stderr.text())
		}
	}
}

// A purge asks first, and only the bucket's id is a yes.
func TestPurgeCommand(t *testing.T) {
	c := start(t, "serve", "--store", "memory", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	plane := c.admin()
	url := c.url()
	for _, s := range []string{"/pets/a", "/pets/b"} {
		if code, _ := request(t, "PUT", url+s, "x", "Content-Type", "text/plain"); code != 201 {
			t.Fatalf("create: %d", code)
		}
	}
	ctx := t.Context()
	purge := func(cmd purgeCmd, in input) (string, string, error) {
		var stdout, stderr strings.Builder
		err := cmd.Run(ctx, output{&stdout, &stderr}, in)
		return stdout.String(), stderr.String(), err
	}
	typed := func(s string) input { return input{strings.NewReader(s), true} }
	var usage usageError
	for what, in := range map[string]input{
		"nobody can be asked": {strings.NewReader("pets\n"), false}, "no": typed("no\n"), "yes": typed("y\n"), "nothing": typed(""), "another": typed("petshop\n"),
	} {
		if stdout, _, err := purge(purgeCmd{Bucket: "pets", Admin: plane}, in); !errors.As(err, &usage) || stdout != "" {
			t.Errorf("%s: %q %v", what, stdout, err)
		}
	}
	if code, _ := request(t, "HEAD", url+"/pets/a", ""); code != 200 {
		t.Errorf("nobody said yes, and the stream is gone: %d", code)
	}
	if _, _, err := purge(purgeCmd{Bucket: "v1", Admin: plane, Yes: true}, input{}); !errors.As(err, &usage) || !strings.Contains(err.Error(), "invalid_bucket_id") {
		t.Errorf("a bad id: %v", err)
	}
	stdout, stderr, err := purge(purgeCmd{Bucket: "pets", Admin: plane + "/"}, typed("pets\n"))
	if err != nil || stdout != "pets: purged, 2 streams removed\n" || !strings.Contains(stderr, "can ever be created") {
		t.Errorf("%q %q %v", stdout, stderr, err)
	}
	if code, _ := request(t, "PUT", url+"/pets/a", "x", "Content-Type", "text/plain"); code != 404 {
		t.Errorf("create after a purge: %d", code)
	}
	// By the command line, and where nothing is left.
	var all strings.Builder
	if code := run(ctx, []string{"purge", "pets", "--yes", "--admin", plane}, &all, &all); code != 0 || !strings.Contains(all.String(), "purged, 0 streams") {
		t.Errorf("exit code %d: %s", code, all.String())
	}
	c.stop()
	if code := c.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, c.stderr.text())
	}
	if _, _, err := purge(purgeCmd{Bucket: "pets", Admin: plane, Yes: true}, input{}); err == nil || errors.As(err, &usage) {
		t.Errorf("a server that is gone: %v", err)
	}
}

// An answer that ends without a last line is a purge that was cut off.
func TestPurgeCommandNoticesTheEnd(t *testing.T) {
	for body, want := range map[string]string{
		"{\"bucket\":\"pets\",\"removed\":0}\n{\"bucket\":\"pets\",\"removed\":1":                  "cut off",
		"{\"bucket\":\"pets\",\"removed\":100}\n":                                                  "cut off",
		"{\"bucket\":\"pets\",\"removed\":100,\"error\":\"the store does not answer\"}\n":          "the store does not answer, after 100 streams",
		"{\"bucket\":\"pets\",\"removed\":0}\n{\"bucket\":\"pets\",\"removed\":1,\"done\":true}\n": "",
		"": "cut off",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		cmd := purgeCmd{Bucket: "pets", Admin: srv.URL, Yes: true}
		err := cmd.Run(t.Context(), output{io.Discard, io.Discard}, input{})
		srv.Close()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
}

// A server that is killed in the middle of a purge has fenced the bucket for
// good, and another purge completes it.
func TestPurgeOutlivesAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the server")
	}
	dir := t.TempDir()
	binary, err := frontends.Build(t.Context(), dir, false, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	first := process(t, binary, filepath.Join(dir, "data"))
	const streams = 350
	todo := make(chan int)
	failed := make(chan error, 1)
	go func() {
		defer close(todo)
		for i := range streams {
			todo <- i
		}
	}()
	done := make(chan struct{})
	for range 16 {
		go func() {
			for i := range todo {
				if err := put(fmt.Sprintf("%s/pets/s%d", first.url, i)); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
			done <- struct{}{}
		}()
	}
	for range 16 {
		<-done
	}
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}

	res, err := send(t, first.admin)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(res.Body)
	for range 2 { // the fence, and the first page
		lines.Scan()
	}
	first.kill()
	_ = res.Body.Close()

	second := process(t, binary, filepath.Join(dir, "data"))
	if err := put(second.url + "/pets/new"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("create in a bucket whose purge was cut off: %v", err)
	}
	res, err = send(t, second.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var last admin.Progress
	for d := json.NewDecoder(res.Body); err == nil; err = d.Decode(&last) { // the last line counts
	}
	if !errors.Is(err, io.EOF) || !last.Done || last.Removed == streams {
		t.Errorf("%v, %+v", err, last)
	}
	t.Logf("the second purge removed %d of %d streams", last.Removed, streams)
	for i := range streams {
		if code, _ := request(t, "HEAD", fmt.Sprintf("%s/pets/s%d", second.url, i), ""); code != 404 {
			t.Fatalf("stream %d: %d", i, code)
		}
	}
	second.kill()
}

var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func put(url string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, url, strings.NewReader("x"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/plain")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		return fmt.Errorf("PUT %s: %s", url, res.Status)
	}
	return nil
}

func send(t *testing.T, plane string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, plane+"/buckets/pets", http.NoBody)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// server is a process of its own, so that it can be killed.
type server struct {
	url, admin string
	cmd        *exec.Cmd
	ended      bool
	t          *testing.T
}

func process(t *testing.T, binary, data string) *server {
	t.Helper()
	cmd := exec.Command(binary, "serve", "--data-dir", data, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{cmd: cmd, t: t}
	t.Cleanup(s.kill)
	c := &command{t: t, stderr: newLines(stderr)}
	s.admin = c.admin()
	s.url = c.url()
	return s
}

func (s *server) kill() {
	if s.ended {
		return
	}
	s.ended = true
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		s.t.Error(err)
	}
	_ = s.cmd.Wait() // it was killed
}
