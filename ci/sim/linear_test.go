package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"headwater/ci/engines"
	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/kvtest"
	"headwater/frontend"
	"headwater/keys"
)

// server is one frontend as a client of one stream sees it.
type server interface {
	ask(ctx context.Context, name string, r request) (answer, error)
}

// errNothing is the answer that nothing was applied, for a reason that
// promises nothing.
var errNothing = errors.New("nothing was applied")

const linearType = "text/plain"

// direct asks a frontend's store.
type direct struct{ f *front }

func (d direct) ask(ctx context.Context, name string, r request) (a answer, err error) {
	pre := fdblayer.Precondition{Incarnation: r.pre, Set: r.pre != (keys.Incarnation{})}
	switch r.kind {
	case "create":
		var c fdblayer.CreateResult
		c, err = d.f.Create(ctx, fdblayer.CreateRequest{ID: sid(name), ContentType: linearType})
		a = answer{created: c.Created, inc: c.Stream.Incarnation, next: c.Stream.Tail, closed: c.Stream.Closed}
	case "append", "close":
		req := fdblayer.AppendRequest{ID: sid(name), ContentType: linearType, Body: []byte(r.body), Close: r.kind == "close", Precondition: pre}
		if r.producer > 0 {
			req.Producer = &fdblayer.Producer{ID: strconv.Itoa(r.producer), Seq: uint64(r.seq)}
		}
		var c fdblayer.AppendResult
		c, err = d.f.Append(ctx, req)
		a = answer{inc: c.Incarnation, next: c.Next, closed: c.Closed, duplicate: c.Duplicate}
	case "delete":
		err = d.f.Delete(ctx, sid(name), pre)
	case "read":
		var p fdblayer.Piece
		p, err = d.f.Read(ctx, fdblayer.ReadRequest{ID: sid(name), From: fdblayer.From{AtStart: true}, MaxBytes: 8 << 20, Precondition: pre})
		a = answer{inc: p.Stream.Incarnation, next: p.Next, closed: p.Closed, chain: chainOf(string(p.Data))}
	}
	if d.f.lossy != nil && err != nil && d.f.lossy.dead.Load() {
		return answer{unknown: true}, nil
	}
	var e *fdblayer.Error
	switch {
	case err == nil:
		return a, nil
	case !errors.As(err, &e):
		return answer{unknown: true}, nil
	}
	return refusal(e.Code, e.Incarnation, e.Offset, e.HasOffset)
}

// refusal is the answer that an error code is.
func refusal(code fdblayer.Code, inc keys.Incarnation, next keys.Offset, hasNext bool) (answer, error) {
	switch code {
	case fdblayer.CodeUnknownOutcome:
		return answer{unknown: true}, nil
	case fdblayer.CodeUnavailable, fdblayer.CodeOverloaded, fdblayer.CodeDraining:
		return answer{}, errNothing
	}
	return answer{code: code, inc: inc, next: next, nowhere: !hasNext}, nil
}

func chainOf(data string) (chain uint64) {
	for _, line := range strings.SplitAfter(data, "\n") {
		if line != "" {
			chain = extend(chain, line)
		}
	}
	return chain
}

// overHTTP asks a frontend as a client would.
type overHTTP struct {
	base   string
	client *http.Client
}

func (h overHTTP) ask(ctx context.Context, name string, r request) (answer, error) {
	method := map[string]string{"create": "PUT", "append": "POST", "close": "POST", "delete": "DELETE", "read": "GET"}[r.kind]
	url := h.base + "/v1/stream/" + name
	if r.kind == "read" {
		url += "?offset=-1"
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	if r.kind == "create" || r.body != "" {
		req.Header.Set("Content-Type", linearType)
	}
	if r.kind == "close" {
		req.Header.Set("Stream-Closed", "true")
	}
	if r.producer > 0 {
		req.Header.Set("Producer-Id", strconv.Itoa(r.producer))
		req.Header.Set("Producer-Epoch", "0")
		req.Header.Set("Producer-Seq", strconv.Itoa(r.seq))
	}
	if r.pre != (keys.Incarnation{}) {
		req.Header.Set("Stream-Incarnation", r.pre.String())
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return answer{unknown: true}, nil // a cut connection answers nothing
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{unknown: true}, nil
	}
	return h.read(r, resp, body)
}

func (h overHTTP) read(r request, resp *http.Response, body []byte) (a answer, err error) {
	if v := resp.Header.Get("Stream-Incarnation"); v != "" {
		if a.inc, err = keys.ParseIncarnation(v); err != nil {
			return a, err
		}
	}
	next := resp.Header.Get("Stream-Next-Offset")
	if next != "" {
		if a.next, err = keys.ParseOffset(next); err != nil {
			return a, err
		}
	}
	if resp.StatusCode >= 400 {
		var p struct{ Code fdblayer.Code }
		if err := json.Unmarshal(body, &p); err != nil {
			return a, fmt.Errorf("%s: %q", resp.Status, body)
		}
		return refusal(p.Code, a.inc, a.next, next != "")
	}
	a.created = resp.StatusCode == http.StatusCreated
	a.closed = resp.Header.Get("Stream-Closed") == "true"
	// A producer's new append is 200, a repeated one 204.
	a.duplicate = r.producer > 0 && r.body != "" && resp.StatusCode == http.StatusNoContent
	if r.kind == "read" {
		if resp.Header.Get("Stream-Up-To-Date") != "true" {
			return a, errors.New("a read did not reach the tail")
		}
		a.chain = chainOf(string(body))
	}
	return a, nil
}

// writer is one client of a linearizability run.
type writer struct {
	id      int
	dice    *dice
	streams []*recorder
	any     func() server
	// next is the producer's next number in each stream, and doubt the body
	// whose outcome is not known yet.
	next  map[*recorder]int
	doubt map[*recorder]string
	last  map[*recorder]keys.Incarnation
	count *maker
}

// maker numbers bodies and creations.
type maker struct {
	mu sync.Mutex
	n  int
}

func (m *maker) next() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	return m.n
}

func (w *writer) step(ctx context.Context, prefix string) error {
	i := w.dice.n(len(w.streams))
	rec := w.streams[i]
	n := w.count.next()
	r := request{kind: "append", body: body(n, 8+w.dice.n(40))}
	switch k := w.dice.n(100); {
	case k < 12:
		r = request{kind: "create", maker: n}
	case k < 17:
		r = request{kind: "delete"}
	case k < 22:
		r.kind = "close"
		if w.dice.in(1, 2) {
			r.body = ""
		}
	case k < 50:
		r = request{kind: "read"}
	case k < 70:
		// A producer's number is sent again until it is known to be applied,
		// over whatever lives the stream has.
		r.producer, r.seq = w.id+1, w.next[rec]
		if b := w.doubt[rec]; b != "" {
			r.body = b
		}
	}
	if r.kind != "create" && w.dice.in(1, 6) {
		r.pre = w.last[rec]
	}
	call := rec.now()
	a, err := w.any().ask(ctx, prefix+strconv.Itoa(i), r)
	if errors.Is(err, errNothing) {
		return nil
	}
	if err != nil {
		return err
	}
	rec.add(w.id, call, r, a)
	if a.inc != (keys.Incarnation{}) {
		w.last[rec] = a.inc
	}
	if r.producer == 0 {
		return nil
	}
	switch {
	case a.unknown:
		w.doubt[rec] = r.body
	case a.code == "":
		w.next[rec]++
		w.doubt[rec] = ""
	default: // the life that knew the producer is over, or is closed
		w.next[rec], w.doubt[rec] = 0, ""
	}
	return nil
}

// check holds a history against the model; a picture of one that fails is
// written to testdata/failed, which git ignores.
func check(t *testing.T, rec *recorder, name string) (ops, unknown int) {
	t.Helper()
	m := model(rec.made)
	det := m.ToModel()
	history, unknown := rec.history()
	res, info := porcupine.CheckOperationsVerbose(det, history, 20*time.Second)
	switch res {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Logf("%s: %d operations, %d of unknown outcome: not decided in time", name, len(history), unknown)
	case porcupine.Illegal:
		dir := filepath.Join("testdata", "failed")
		file := filepath.Join(dir, name+".html")
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = porcupine.VisualizePath(det, info, file)
		}
		text := make([]string, 0, len(history)+1)
		for _, last := range history {
			if !porcupine.CheckOperations(det, until(history, last.Return)) {
				text = append(text, fmt.Sprintf("no order explains what was answered until %d:", last.Return))
				break
			}
		}
		for _, o := range history {
			text = append(text, fmt.Sprintf("[%d,%d] client %d: %s", o.Call, o.Return, o.ClientId, m.DescribeOperation(o.Input, o.Output)))
		}
		_ = os.WriteFile(filepath.Join(dir, name+".txt"), []byte(strings.Join(text, "\n")), 0o600)
		t.Errorf("%s: %d operations, %d of unknown outcome: not linearizable; see %s %v", name, len(history), unknown, file, err)
	}
	return len(history), unknown
}

const linearClients = 5

func (m *maker) writers(seed uint64, recs []*recorder, any func() server) (ws []*writer) {
	for i := range linearClients {
		ws = append(ws, &writer{
			id: i, dice: newDice(seed, uint64(i)), streams: recs, any: any, count: m,
			next: map[*recorder]int{}, doubt: map[*recorder]string{}, last: map[*recorder]keys.Incarnation{},
		})
	}
	return ws
}

// TestLinearizable checks histories of faulty frontends in virtual time.
func TestLinearizable(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	runs := *runsFlag * 3
	if testing.Short() {
		runs = 2
	}
	ops, unknown := 0, 0
	for i := range uint64(runs) {
		recs := []*recorder{newRecorder(), newRecorder()}
		ok := t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { linearRun(t, seed+i, recs) })
			for j, rec := range recs {
				n, u := check(t, rec, fmt.Sprintf("%d-%d", seed+i, j))
				ops, unknown = ops+n, unknown+u
			}
		})
		if !ok {
			t.Fatalf("run this history again with -run=TestLinearizable$ -seed=%d -runs=1", seed+i)
		}
	}
	t.Logf("seeds from %d: %d histories, %d operations, %d of unknown outcome", seed, 2*runs, ops, unknown)
}

func linearRun(t *testing.T, seed uint64, recs []*recorder) {
	c := newCluster(t, seed, frontends)
	c.weather.Store(int32(c.dice.n(30)))
	var working, chaos sync.WaitGroup
	done := make(chan struct{})
	m := &maker{}
	for _, w := range m.writers(seed, recs, func() server { return direct{c.any()} }) {
		working.Go(func() {
			for range *stepsFlag {
				time.Sleep(w.dice.upTo(20 * time.Millisecond))
				if err := w.step(context.Background(), "s"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	chaos.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(c.dice.upTo(3 * time.Second)):
				c.replace(c.dice.in(2, 3))
			}
		}
	})
	working.Wait()
	close(done)
	chaos.Wait()
	c.weather.Store(0)
	c.close()
}

// TestLinearizableOverHTTP checks histories of whole frontends on every
// engine, in real time, whose commits go wrong now and then.
func TestLinearizableOverHTTP(t *testing.T) {
	engines.Each(t, func(t *testing.T, db kv.Database) {
		seed := *seedFlag
		if seed == 0 {
			seed = rand.Uint64N(1 << 40)
		}
		runs := 4
		if testing.Short() {
			runs = 1
		}
		ops, unknown, faults := 0, 0, 0
		for run := range uint64(runs) {
			recs := []*recorder{newRecorder(), newRecorder()}
			faults += httpRun(t, db, seed+run, recs)
			for j, rec := range recs {
				n, u := check(t, rec, fmt.Sprintf("http-%d-%d", seed+run, j))
				ops, unknown = ops+n, unknown+u
			}
		}
		t.Logf("seeds from %d: %d histories, %d operations, %d of unknown outcome, %d faulty commits", seed, 2*runs, ops, unknown, faults)
		if faults == 0 {
			t.Error("no fault was met")
		}
	})
}

func httpRun(t *testing.T, db kv.Database, seed uint64, recs []*recorder) (faults int) {
	prefix := fmt.Appendf(nil, "linear-%d-%d", seed, time.Now().UnixNano())
	var servers []server
	var ends []func() int
	for i := range frontends {
		s, end := httpFrontend(t, db, prefix, seed+uint64(i)<<32)
		servers, ends = append(servers, s), append(ends, end)
	}
	d := newDice(seed, 7)
	m := &maker{}
	var wg sync.WaitGroup
	for _, w := range m.writers(seed, recs, func() server { return servers[d.n(len(servers))] }) {
		wg.Go(func() {
			for range *stepsFlag {
				if err := w.step(t.Context(), "linear"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, end := range ends {
		faults += end()
	}
	return faults
}

// httpFrontend starts a frontend whose commits go wrong one time in ten; end
// stops it and returns how many did.
func httpFrontend(t *testing.T, db kv.Database, prefix []byte, seed uint64) (s server, end func() int) {
	late := newDice(seed, 9)
	usual := kvtest.Random(seed, 0.1, kvtest.Usual()...)
	f := kvtest.Faulty(keepOpen{db}, nil)
	store, err := fdblayer.Open(t.Context(), f, fdblayer.Options{
		Prefix: prefix, Lanes: 2, CommitTimeout: 400 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.SetPlan(func(c kvtest.Commit) kvtest.Fault {
		if late.in(1, 50) {
			return kvtest.Fault{Fate: kvtest.Late, Hold: after(late.upTo(50 * time.Millisecond))}
		}
		return usual(c)
	})
	srv := httptest.NewServer(frontend.New(store, frontend.Options{}).Handler())
	return overHTTP{srv.URL, srv.Client()}, func() int {
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := store.Close(ctx); err != nil {
			t.Logf("close: %v", err)
		}
		f.Settle()
		return f.Count(kvtest.Refuse) + f.Count(kvtest.Applied) + f.Count(kvtest.Dropped) + f.Count(kvtest.Late)
	}
}
