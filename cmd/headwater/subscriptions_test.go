package main

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"
)

// An operator sees why a hook is not delivered, and has it tried again.
func TestSubscriptionsCommand(t *testing.T) {
	dir := t.TempDir()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hook := "http://" + closed.Addr().String() + "/hook"
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	subscriptions := func(args ...string) (code int, text string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append(append([]string{"subscriptions"}, args...), "--data-dir", dir), &stdout, &stderr)
		return code, stdout.String() + stderr.String()
	}

	c := start(t, "serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--webhook-localhost")
	root := c.url() + "/v1/stream/"
	if code, body := request(t, "PUT", root+"__ds/subscriptions/s", `{"type":"webhook","pattern":"a/*","webhook":{"url":"`+hook+`"},"description":"the one"}`); code != 201 {
		t.Fatal(code, body)
	}
	if code, body := request(t, "PUT", root+"a/b", "x", "Content-Type", "text/plain"); code != 201 {
		t.Fatal(code, body)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, body := request(t, "GET", root+"__ds/subscriptions/s", "")
		if strings.Contains(body, `"status":"failed"`) && strings.Contains(body, `"last_error":"connection"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(body)
		}
	}
	if code, text := subscriptions("list"); code != exitUsage || !strings.Contains(text, "in use") {
		t.Errorf("beside a server: %d %s", code, text)
	}
	c.stop()
	if code := c.wait(); code != 0 {
		t.Fatal(code, c.stderr.text())
	}

	for _, args := range [][]string{{"list"}, {"list", "--failed"}, {"list", "--bucket="}, {"show", "s"}} {
		code, text := subscriptions(args...)
		if code != 0 {
			t.Fatal(args, code, text)
		}
		for _, want := range []string{"s", "failed", "backoff", "connection", hook} {
			if !strings.Contains(text, want) {
				t.Errorf("%v does not say %q:\n%s", args, want, text)
			}
		}
	}
	if _, text := subscriptions("show", "s"); !strings.Contains(text, "a/b") || !strings.Contains(text, "the one") {
		t.Error(text)
	}
	if code, text := subscriptions("list", "--bucket=other"); code != 0 || strings.Contains(text, hook) {
		t.Error(code, text)
	}
	if code, text := subscriptions("retry", "s"); code != 0 || !strings.Contains(text, "failed") {
		t.Error(code, text)
	}
	for _, args := range [][]string{{"show", "none"}, {"retry", "none"}, {"show", "s", "--bucket=other"}, {"show"}} {
		if code, text := subscriptions(args...); code != exitUsage {
			t.Error(args, code, text)
		}
	}
}
