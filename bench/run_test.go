package bench

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// short is a workload small enough for a test.
func short(name, url string) Config {
	c := Config{Workload: name, URL: url, Duration: 200 * time.Millisecond, Warmup: 50 * time.Millisecond, Timeout: 2 * time.Second}
	switch name {
	case "append-many":
		c.Streams, c.Writers = 30, 7
	case "append-large":
		c.Streams, c.Writers, c.Size = 3, 2, 300_000
	case "catch-up":
		c.Total, c.Batch, c.Readers = 1_000_000, 3, 2
	case "tail-latency", "long-poll":
		c.Rate = 200
	case "fan-out":
		c.Readers, c.Streams, c.Rate = 20, 3, 300
	case "idle":
		c.Readers, c.Streams = 30, 3
	}
	return c
}

func TestWorkloads(t *testing.T) {
	for _, name := range Workloads() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{longPollFor: 20 * time.Millisecond}
			c := short(name, serveFake(t, f))
			c.PID = os.Getpid()
			var progress bytes.Buffer
			c.Progress = &progress
			res, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if res.Ops == 0 && name != "idle" {
				t.Error("nothing was measured")
			}
			if res.Verification.Records == 0 {
				t.Error("nothing was verified")
			}
			if live := workloads[name].live; live && (res.Delivery == nil || res.Delivery.Count < res.Latency.Count) {
				t.Errorf("appends %+v, deliveries %+v", res.Latency, res.Delivery)
			}
			if len(f.streams) != 0 {
				t.Errorf("%d streams are left in the server", len(f.streams))
			}
			if progress.Len() == 0 {
				t.Error("no progress was shown")
			}
			var out bytes.Buffer
			if err := res.Print(&out); err != nil || !strings.Contains(out.String(), "verified") {
				t.Errorf("printed %v:\n%s", err, &out)
			}
		})
	}
}

// TestRepresentations drives live readers through every way in which the
// protocol carries records, and through event streams that end.
func TestRepresentations(t *testing.T) {
	for _, contentType := range []string{"text/plain", "application/json", "application/octet-stream"} {
		for _, live := range []string{LiveSSE, LiveLongPoll} {
			t.Run(contentType+" "+live, func(t *testing.T) {
				t.Parallel()
				c := short("fan-out", serveFake(t, &fake{eventsPerStream: 40, longPollFor: 20 * time.Millisecond}))
				c.ContentType, c.Live, c.Layout = contentType, live, LayoutBucket
				c.Duration = 600 * time.Millisecond
				res, err := Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if res.Verification.Records == 0 {
					t.Error("nothing was received")
				}
			})
		}
	}
}

// TestViolations breaks each promise once and expects the run to fail for it.
func TestViolations(t *testing.T) {
	const at = 20
	faults := map[string]struct {
		store func(n int, messages [][]byte, message []byte) [][]byte
		count func(v Verification) int64
	}{
		"lost": {func(n int, ms [][]byte, m []byte) [][]byte {
			if n == at {
				return ms
			}
			return append(ms, m)
		}, func(v Verification) int64 { return v.Lost }},
		"duplicate": {func(n int, ms [][]byte, m []byte) [][]byte {
			if n == at {
				ms = append(ms, m)
			}
			return append(ms, m)
		}, func(v Verification) int64 { return v.Duplicate }},
		"reordered": {func(n int, ms [][]byte, m []byte) [][]byte {
			if n == at {
				return slices.Insert(ms, len(ms)-1, m)
			}
			return append(ms, m)
		}, func(v Verification) int64 { return v.Reordered }},
		"corrupt": {func(n int, ms [][]byte, m []byte) [][]byte {
			if n == at {
				m = bytes.Clone(m)
				m[len(m)-5] ^= 1
			}
			return append(ms, m)
		}, func(v Verification) int64 { return v.Corrupt }},
		"cut short": {func(n int, ms [][]byte, m []byte) [][]byte {
			if n == at {
				m = m[:len(m)-1]
			}
			return append(ms, m)
		}, func(v Verification) int64 { return v.Corrupt }},
	}
	for name, f := range faults {
		for _, w := range []string{"append-one", "append-many", "catch-up", "tail-latency", "producers"} {
			if name == "reordered" && w == "catch-up" {
				continue // its neighbours are of different writers, whose order is free
			}
			t.Run(name+" "+w, func(t *testing.T) {
				t.Parallel()
				c := short(w, serveFake(t, &fake{store: f.store}))
				c.Streams, c.Timeout = 1, time.Second
				if w != "catch-up" {
					c.Writers = 1
				}
				res, err := Run(t.Context(), c)
				if !errors.Is(err, ErrViolation) {
					t.Fatalf("got error %v", err)
				}
				// A live reader that was there before the swap sees another fault.
				if f.count(res.Verification) == 0 && !(name == "reordered" && w == "tail-latency") {
					t.Errorf("found %v", res.Verification)
				}
			})
		}
	}
}

// TestLiveViolation loses one event on its way to the readers only.
func TestLiveViolation(t *testing.T) {
	c := short("fan-out", serveFake(t, &fake{deliver: func(n int, m []byte) []byte {
		if n == 5 {
			return nil
		}
		return m
	}}))
	c.Timeout = time.Second
	res, err := Run(t.Context(), c)
	if want := int64(c.Readers); !errors.Is(err, ErrViolation) || res.Verification.Lost != want {
		t.Errorf("got %v, %d lost; want %d", err, res.Verification.Lost, want)
	}
}

// TestUnclearAnswers: what was refused or answered with an error may be there
// or not. A refusal alone is no failure of the run.
func TestUnclearAnswers(t *testing.T) {
	for _, stored := range []bool{true, false} {
		res, err := Run(t.Context(), short("append-one", serveFake(t, &fake{answer: func(n int) (int, bool) {
			if n%10 == 0 {
				return http.StatusServiceUnavailable, !stored
			}
			return 0, false
		}})))
		if err != nil || res.Refused["503"] == 0 {
			t.Errorf("stored=%v: got %v, refused %v", stored, err, res.Refused)
		}
	}
	f := &fake{answer: func(n int) (int, bool) {
		if n == 10 {
			return http.StatusTeapot, true
		}
		return 0, false
	}}
	if _, err := Run(t.Context(), short("append-one", serveFake(t, f))); !errors.Is(err, ErrUnclean) {
		t.Errorf("one answer 418: got %v", err)
	}
	f = &fake{answer: func(n int) (int, bool) {
		if n == 10 {
			panic(http.ErrAbortHandler)
		}
		return 0, false
	}}
	res, err := Run(t.Context(), short("append-one", serveFake(t, f)))
	if !errors.Is(err, ErrUnclean) || !res.Verification.OK() {
		t.Errorf("one connection cut: got %v, %v", err, res.Verification)
	}
}

// TestOmission stalls a server that is else instant. At 200 operations a second
// over one connection some sixty wait for the stall to end, and the open loop
// must show all of them; the closed one sees a single slow answer.
func TestOmission(t *testing.T) {
	const stall = 300 * time.Millisecond
	measure := func(rate float64) Latency {
		f := &fake{answer: func(n int) (int, bool) {
			if n == 30 {
				time.Sleep(stall)
			}
			return 0, false
		}}
		c := short("append-one", serveFake(t, f))
		c.Writers, c.Rate, c.Warmup, c.Duration = 1, rate, 0, time.Second
		res, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if res.Open != (rate > 0) || !strings.Contains(res.Loop, map[bool]string{true: "open", false: "closed"}[res.Open]) {
			t.Errorf("the result says %q", res.Loop)
		}
		return *res.Latency
	}
	// 300 ms are 30 % of the time, so the 90th percentile is far within it.
	if open := measure(200); open.P90 < 100 || open.Max < 250 {
		t.Errorf("open loop: p90 %.1f ms, max %.1f ms hide a stall of %v", open.P90, open.Max, stall)
	}
	if closed := measure(0); closed.P90 > 100 || closed.Max < 250 {
		t.Errorf("closed loop: p90 %.1f ms, max %.1f ms", closed.P90, closed.Max)
	}
}

// TestBacklog: a server that can't keep up with the rate ends the run in
// bounded time, and the run says so.
func TestBacklog(t *testing.T) {
	c := short("append-one", serveFake(t, &fake{answer: func(int) (int, bool) {
		time.Sleep(50 * time.Millisecond)
		return 0, false
	}}))
	c.Writers, c.Rate, c.Duration, c.Timeout = 1, 1000, time.Second, 500*time.Millisecond
	begun := time.Now()
	_, err := Run(t.Context(), c)
	if !errors.Is(err, ErrUnclean) || !strings.Contains(err.Error(), "gave up") {
		t.Errorf("got %v", err)
	}
	// The backlog itself is of 50 s.
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, w := range []string{"append-one", "fan-out", "idle", "catch-up"} {
		c := short(w, serveFake(t, &fake{}))
		c.Duration = time.Hour
		if _, err := Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v", w, err)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, url := range []string{"http://192.0.2.1:80", "http://[2001:db8::1]:80", "https://127.0.0.1", "127.0.0.1:80", "http://user@127.0.0.1", "http://127.0.0.1/?a=b", ""} {
		if _, err := Run(t.Context(), short("append-one", url)); err == nil {
			t.Errorf("%q is driven", url)
		}
	}
	c := Config{Layout: LayoutBase, AllowRemote: true}
	if got, err := parseTarget(t.Context(), c, "http://192.0.2.1:8080/x/"); err != nil || got.address != "192.0.2.1:8080" || got.prefix != "/x/v1/stream/" {
		t.Errorf("remote, allowed: %+v, %v", got, err)
	}
}

func TestConfigBounds(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"workload": func(c *Config) { c.Workload = "none" },
		"writers":  func(c *Config) { c.Writers = 1 << 20 },
		"streams":  func(c *Config) { c.Streams = 1 << 30 },
		"size":     func(c *Config) { c.Size = 10 },
		"rate":     func(c *Config) { c.Rate = -1 },
		"duration": func(c *Config) { c.Duration = -1 },
		"live":     func(c *Config) { c.Live = "pigeon" },
		"type":     func(c *Config) { c.ContentType = "a\r\nb: c" },
		"layout":   func(c *Config) { c.Layout = "round" },
	} {
		c := short("append-one", "http://127.0.0.1:1")
		change(&c)
		var refused *net.OpError
		if _, err := Run(t.Context(), c); err == nil || errors.As(err, &refused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCeiling(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- ServeCeiling(ctx, l) }()
	for _, layout := range []string{LayoutBase, LayoutBucket} {
		c := short("append-one", "http://"+l.Addr().String())
		c.NoVerify, c.Layout = true, layout
		if res, err := Run(t.Context(), c); err != nil || res.Ops == 0 || !res.Verification.Skipped {
			t.Errorf("%s: %v, %+v", layout, err, res)
		}
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
