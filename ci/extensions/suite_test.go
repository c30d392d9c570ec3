package extensions

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headwater/ci/frontends"
)

// A testCase is one normative sentence.
type testCase struct {
	// section is where the spec has it, as its own heading is numbered.
	section string
	name    string
	run     func(*env)
}

// only restricts cases to a surface.
func only(surface string, cases ...testCase) []testCase {
	for i, c := range cases {
		cases[i].run = func(e *env) {
			if e.surface != surface {
				e.Skip("only on surface " + surface)
			}
			c.run(e)
		}
	}
	return cases
}

func allCases() []testCase {
	return slices.Concat(
		jsonTextCases(),
		bucketCases(),
		publishCases(),
		retentionCases(),
		headCases(),
		incarnationCases(),
		preconditionCases(),
		liveEndCases(),
		readSnapshotCases(),
		bootstrapCases(),
		forkCases(),
		encodingCases(),
		longPollCases(),
		consistencyCases(),
		sizeCases(),
		representationCases(),
		sseCases(),
		raceCases(),
		largeCases(),
	)
}

// service is the servers under test.
type service struct {
	bases []string
	// pids are the servers' processes, and admins the base URLs of their admin
	// planes, where they are known.
	pids   []int
	admins []string
	turn   atomic.Uint64
	client *http.Client
	// run makes names that no other run has used.
	run    string
	serial atomic.Uint64
	rounds int
}

// env is what one case on one surface has at hand.
type env struct {
	*testing.T
	*service
	surface string
}

func TestExt(t *testing.T) {
	svc := newService(t)
	var table tableOfSections
	t.Cleanup(func() { table.show(t) })
	for _, c := range allCases() {
		t.Run(c.section+"_"+c.name, func(t *testing.T) {
			t.Parallel()
			for _, surface := range surfaces(t) {
				t.Run(surface, func(t *testing.T) {
					t.Parallel()
					t.Cleanup(func() { table.record(c.section, t) })
					c.run(&env{t, svc, surface})
				})
			}
		})
	}
}

func surfaces(t *testing.T) []string {
	switch s := os.Getenv("HEADWATER_SURFACE"); s {
	case "", "both":
		return []string{"base", "bucket"}
	case "base", "bucket":
		return []string{s}
	default:
		t.Fatalf("HEADWATER_SURFACE=%q", s)
		return nil
	}
}

func newService(t *testing.T) *service {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	svc := &service{
		run:    hex.EncodeToString(id[:]),
		rounds: 25,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}},
	}
	t.Cleanup(svc.client.CloseIdleConnections)
	if s := os.Getenv("HEADWATER_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("HEADWATER_ROUNDS=%q", s)
		}
		svc.rounds = n
	}
	for s := range strings.FieldsSeq(os.Getenv("HEADWATER_PIDS")) {
		pid, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("HEADWATER_PIDS: %v", err)
		}
		svc.pids = append(svc.pids, pid)
	}
	if s := os.Getenv("HEADWATER_ADMIN_URLS"); s != "" {
		svc.admins = strings.Split(s, ",")
	}
	if s := os.Getenv("HEADWATER_URLS"); s != "" {
		for u := range strings.SplitSeq(s, ",") {
			svc.bases = append(svc.bases, strings.TrimRight(u, "/"))
		}
		return svc
	}
	set := startServer(t)
	svc.bases, svc.pids, svc.admins = set.URLs(), set.PIDs(), set.AdminURLs()
	return svc
}

// startServer builds the server and runs it on the embedded engine.
func startServer(t *testing.T) *frontends.Set {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	binary, err := frontends.Build(ctx, t.TempDir(), false, t.Output(), buildFlags()...)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.CreateTemp(t.TempDir(), "server-*.log")
	if err != nil {
		t.Fatal(err)
	}
	set, err := frontends.Start(ctx, frontends.Options{Binary: binary, Store: frontends.Embedded, N: 1, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil {
				t.Logf("the server's log ends:\n%s", text[max(0, len(text)-8<<10):])
			}
		}
		_ = log.Close()
	})
	return set
}

// base is the server the next request goes to.
func (s *service) base() string {
	return s.bases[s.turn.Add(1)%uint64(len(s.bases))]
}

// bucket is the bucket this run's streams are in on the bucketed surface.
func (s *service) bucket() string { return "ext-" + s.run }

// name is a stream name nobody used before.
func (s *service) name() string { return fmt.Sprintf("s-%s-%d", s.run, s.serial.Add(1)) }

// path is where the stream called name is on the surface under test.
func (e *env) path(name string) string {
	if e.surface == "bucket" {
		return "/" + e.bucket() + "/" + name
	}
	return "/v1/stream/" + name
}

// tableOfSections counts outcomes by section. Safe for concurrent use.
type tableOfSections struct {
	mu   sync.Mutex
	rows map[string]*[3]int // passed, failed, skipped
}

func (t *tableOfSections) record(section string, test *testing.T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[string]*[3]int{}
	}
	if t.rows[section] == nil {
		t.rows[section] = &[3]int{}
	}
	switch {
	case test.Failed():
		t.rows[section][1]++
	case test.Skipped():
		t.rows[section][2]++
	default:
		t.rows[section][0]++
	}
}

// show prints the table, or writes it to the file HEADWATER_TABLE names.
func (t *tableOfSections) show(test *testing.T) {
	out := os.Stdout
	if name := os.Getenv("HEADWATER_TABLE"); name != "" {
		f, err := os.Create(name)
		if err != nil {
			test.Error(err)
			return
		}
		defer f.Close()
		out = f
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(out, "%-10s %7s %7s %7s\n", "section", "passed", "failed", "skipped")
	for _, s := range slices.Sorted(maps.Keys(t.rows)) {
		r := t.rows[s]
		fmt.Fprintf(out, "%-10s %7d %7d %7d\n", s, r[0], r[1], r[2])
	}
}
