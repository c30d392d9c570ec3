package fdblayer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func follow(t *testing.T, s *Store, id string, from From) (*LiveReader, Piece) {
	t.Helper()
	r, p, err := s.Live(t.Context(), ReadRequest{ID: sid(id), From: from, MaxBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, p
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Live readers on every frontend see every byte once and in order, whichever
// frontend it was appended on and however reads, appends and waits interleave.
func TestLiveReadersMissNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		fronts := []*Store{e.Store, e.frontend(nil)}
		e.create("s", "text/plain", "")
		const n = 200
		var want strings.Builder
		for i := range n {
			fmt.Fprintf(&want, "<%d>", i)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				limit := []int{8 << 20, 3}[i%2] // every other reader wants small pieces
				r, p, err := fronts[i%len(fronts)].Live(t.Context(), ReadRequest{ID: sid("s"), From: From{AtStart: true}, MaxBytes: limit})
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Close()
				got := string(p.Data)
				next, closed := p.Next, p.Closed
				for !closed {
					ev, err := r.Next(soon(t))
					if err != nil {
						t.Errorf("after %q: %v", got, err)
						return
					}
					if ev.Start != next || len(ev.Data) > limit {
						t.Errorf("an event begins at %v, the last one ended at %v", ev.Start, next)
						return
					}
					got += string(ev.Data)
					next, closed = ev.Next, ev.Closed
				}
				if got != want.String() {
					t.Errorf("got %q", got)
				}
			})
		}
		for i := range n {
			_, err := fronts[i%len(fronts)].Append(t.Context(), AppendRequest{
				ID: sid("s"), ContentType: "text/plain", Body: fmt.Appendf(nil, "<%d>", i), Close: i == n-1})
			if err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
	})
}

func TestLiveReadersShareOneEncoding(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		a, _ := follow(t, e.Store, "s", From{Now: true})
		b, _ := follow(t, e.Store, "s", From{Now: true})
		// Both must be attached before the append, or one may read it for itself.
		built := 0
		var wg sync.WaitGroup
		var mu sync.Mutex
		for _, r := range []*LiveReader{a, b} {
			wg.Go(func() {
				ev, err := r.Next(soon(t))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if string(ev.Encoded(1, func(p Piece) []byte { built++; return append([]byte("e:"), p.Data...) })) != "e:x" {
					t.Error("wrong encoding")
				}
			})
		}
		for e.hub.waiting() < 2 {
			time.Sleep(time.Millisecond)
		}
		e.post("s", "x")
		wg.Wait()
		if built != 1 {
			t.Errorf("encoded %d times", built)
		}
	})
}

// waiting counts the readers attached to primed topics.
func (h *hub) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, t := range h.topics {
		t.mu.Lock()
		if t.primed {
			n += t.refs
		}
		t.mu.Unlock()
	}
	return n
}

func TestLiveReadersEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, e *env)
		want Code
	}{
		"deleted": {func(t *testing.T, e *env) {
			if err := e.frontend(nil).Delete(t.Context(), sid("s"), Precondition{}); err != nil {
				t.Fatal(err)
			}
		}, CodeNotFound},
		"recreated": {func(t *testing.T, e *env) {
			// In one step, so that the reader can't see the gap.
			e.clock.advance(time.Hour)
			if _, err := e.frontend(nil).Create(t.Context(), CreateRequest{ID: sid("s"), Body: []byte("new")}); err != nil {
				t.Fatal(err)
			}
		}, CodeIncarnation},
		"hidden": {func(t *testing.T, e *env) {
			if _, err := e.Create(t.Context(), CreateRequest{ID: sid("f"), Fork: &Fork{Source: sid("s")}}); err != nil {
				t.Fatal(err)
			}
			if err := e.frontend(nil).Delete(t.Context(), sid("s"), Precondition{}); err != nil {
				t.Fatal(err)
			}
		}, CodeSoftDeleted},
		"drained": {func(_ *testing.T, e *env) { e.Drain() }, CodeDraining},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, e *env) {
				req := CreateRequest{ID: sid("s"), ContentType: "text/plain"}
				if name == "recreated" {
					req.Expiry = Expiry{At: e.clock.now().Add(time.Minute)}
				}
				if _, err := e.Create(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				r, _ := follow(t, e.Store, "s", From{Now: true})
				done := make(chan error, 1)
				go func() { _, err := r.Next(soon(t)); done <- err }()
				for e.hub.waiting() < 1 {
					time.Sleep(time.Millisecond)
				}
				c.end(t, e)
				e.mustFail(<-done, c.want)
			})
		})
	}
}

// A text reader is never handed half a character, and gets it once it is whole.
func TestLiveReaderWaitsForWholeRunes(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		r, _, err := e.Live(t.Context(), ReadRequest{ID: sid("s"), From: From{Now: true}, MaxBytes: 4, WholeRunes: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		snow := "☃"
		e.post("s", "ab"+snow[:1])
		if ev, err := r.Next(soon(t)); err != nil || string(ev.Data) != "ab" || ev.UpToDate {
			t.Fatalf("%+v %v", ev, err)
		}
		got := make(chan string, 1)
		go func() {
			ev, err := r.Next(soon(t))
			if err != nil {
				got <- err.Error()
				return
			}
			got <- string(ev.Data)
		}()
		e.post("s", snow[1:2])
		e.post("s", snow[2:])
		if s := <-got; s != snow {
			t.Fatalf("%q", s)
		}
	})
}

// Only text has characters: other streams are handed out as they come, though
// their bytes look like a character's beginning; and a bound too small for a
// character is raised to one.
func TestWholeRunesAreForTextOnly(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("bin", "application/octet-stream", "a\xf0")
		p, err := e.Read(t.Context(), ReadRequest{ID: sid("bin"), From: From{AtStart: true}, MaxBytes: 10, WholeRunes: true})
		if err != nil || string(p.Data) != "a\xf0" || !p.UpToDate {
			t.Fatalf("%q %v", p.Data, err)
		}
		e.create("text", "text/plain", "☃☃")
		p, err = e.Read(t.Context(), ReadRequest{ID: sid("text"), From: From{AtStart: true}, MaxBytes: 1, WholeRunes: true})
		if err != nil || string(p.Data) != "☃" {
			t.Fatalf("%q %v", p.Data, err)
		}
		r, _ := follow(t, e.Store, "bin", From{Now: true})
		r.req.WholeRunes = true
		if _, err := e.Append(t.Context(), AppendRequest{ID: sid("bin"), ContentType: "application/octet-stream", Body: []byte("\xe2")}); err != nil {
			t.Fatal(err)
		}
		if ev, err := r.Next(soon(t)); err != nil || string(ev.Data) != "\xe2" {
			t.Fatalf("%+v %v", ev, err)
		}
	})
}

func TestReadersAreBounded(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		s := e.frontend(func(o *Options) { o.MaxLiveReaders = 1 })
		e.create("s", "text/plain", "")
		r, _ := follow(t, s, "s", From{Now: true})
		_, _, err := s.Live(t.Context(), ReadRequest{ID: sid("s"), MaxBytes: 1})
		e.mustFail(err, CodeOverloaded)
		r.Close()
		if _, _, err := s.Live(t.Context(), ReadRequest{ID: sid("s"), MaxBytes: 1}); err != nil {
			t.Fatal(err)
		}
	})
}

// A stream with a sliding TTL lives while it is read, and its reader's topic
// goes when nobody reads.
func TestTopicsGoWithTheirReaders(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		st := e.create("s", "text/plain", "")
		r, _ := follow(t, e.Store, "s", From{Now: true})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _, _ = r.Next(ctx) }()
		for e.hub.waiting() < 1 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-done
		r.Close()
		e.hub.mu.Lock()
		topic := e.hub.topics[st.Incarnation]
		e.hub.mu.Unlock()
		e.hub.retire(topic)
		e.hub.mu.Lock()
		defer e.hub.mu.Unlock()
		if len(e.hub.topics) != 0 || e.hub.readers != 0 {
			t.Errorf("%d topics and %d readers are left", len(e.hub.topics), e.hub.readers)
		}
	})
}
