package embedded

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"headwater/fdblayer/kv"
)

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func readVersion(t *testing.T, db *DB) int64 {
	t.Helper()
	tx := db.Begin()
	defer tx.Cancel()
	v, err := tx.ReadVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVersionsFollowTheClock(t *testing.T) {
	c := newClock()
	db := openTest(t, Options{InMemory: true, Now: c.Now})
	first := put(t, db, "a", "1").Version
	c.add(3 * time.Second)
	if v := readVersion(t, db); v != first+3_000_000-1 && v != first+3_000_000 {
		t.Errorf("3 s of an idle engine moved the read version from %d to %d", first, v)
	}
	second := put(t, db, "a", "2").Version
	if d := second - first; d < 3_000_000 || d > 3_000_010 {
		t.Errorf("3 s moved the version by %d", d)
	}
	// A clock that stands still or goes back stops nothing.
	for range 100 {
		c.add(-time.Minute)
		next := put(t, db, "a", "3").Version
		if next != second+1 {
			t.Fatalf("version %d after %d", next, second)
		}
		if v := readVersion(t, db); v != next {
			t.Fatalf("read version %d after a commit at %d", v, next)
		}
		second = next
	}
}

func TestOldVersionsGrowUnreadable(t *testing.T) {
	c := newClock()
	db := openTest(t, Options{InMemory: true, Now: c.Now})
	put(t, db, "a", "1")
	tx := db.Begin()
	defer tx.Cancel()
	if _, err := tx.Get([]byte("a")).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.add(4900 * time.Millisecond)
	put(t, db, "a", "2")
	if v, err := tx.Get([]byte("a")).Wait(t.Context()); err != nil || string(v) != "1" {
		t.Fatalf("after 4.9 s: %q, %v", v, err)
	}
	c.add(200 * time.Millisecond)
	if _, err := tx.Get([]byte("a")).Wait(t.Context()); kv.Code(err) != kv.CodeTransactionTooOld {
		t.Errorf("after 5.1 s: %v", err)
	}
	tx.Set([]byte("b"), nil)
	if err := tx.Commit(t.Context()); kv.Code(err) != kv.CodeTransactionTooOld {
		t.Errorf("after 5.1 s the commit returned %v", err)
	}
	// A write that depends on nothing is never too old.
	blind := db.Begin()
	defer blind.Cancel()
	blind.SetReadVersion(1)
	blind.Set([]byte("c"), nil)
	if err := blind.Commit(t.Context()); err != nil {
		t.Errorf("a blind write: %v", err)
	}
}

// A jump past all reserved versions: the committer reserves more though nobody
// commits, and a restart goes on above.
func TestVersionsAreReservedAhead(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	db := openTest(t, Options{Dir: dir, Now: c.Now})
	last := readVersion(t, db)
	for range 3 {
		c.add(5 * time.Hour)
		want := last + 5*reserveVersions
		eventually(t, "the read version follows the clock", func() bool {
			v := readVersion(t, db)
			if v < last {
				t.Fatalf("the read version went back from %d to %d", last, v)
			}
			last = v
			return v >= want
		})
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = openTest(t, Options{Dir: dir, Now: c.Now})
	if v := readVersion(t, db); v <= last {
		t.Errorf("after a restart the read version is %d, before it was %d", v, last)
	}
	// And a commit reserves for itself.
	c.add(5 * time.Hour)
	if v := put(t, db, "a", "1").Version; v <= last+5*reserveVersions {
		t.Errorf("committed at %d", v)
	}
}

func TestSnapshotsAreReleased(t *testing.T) {
	c := newClock()
	db := openTest(t, Options{InMemory: true, Now: c.Now})
	for i := range 100 {
		put(t, db, "a", fmt.Sprint(i))
	}
	if n := db.store.Metrics().Snapshots.Count; n < 100 {
		t.Errorf("%d snapshots for 100 versions of the last 5 s", n)
	}
	c.add(6 * time.Second)
	put(t, db, "a", "last")
	if n := db.store.Metrics().Snapshots.Count; n != 1 {
		t.Errorf("%d snapshots are open, want 1", n)
	}
	if len(db.win.versions) != 1 {
		t.Errorf("%d versions are kept, want 1", len(db.win.versions))
	}
}

// Past its bound the window keeps some versions of each stretch of time, and
// those that transactions read at.
func TestWindowIsThinned(t *testing.T) {
	const thin, commits = 64, 5000
	c := newClock()
	db := openTest(t, Options{InMemory: true, Now: c.Now})
	db.win.mu.Lock()
	db.win.thin = thin
	db.win.mu.Unlock()
	held := map[int]kv.Tx{}
	versions := map[int]int64{}
	for i := range commits {
		versions[i] = put(t, db, "n", fmt.Sprint(i)).Version
		if i%500 == 250 {
			tx := db.Begin()
			defer tx.Cancel()
			if _, err := tx.ReadVersion(t.Context()); err != nil {
				t.Fatal(err)
			}
			held[i] = tx
		}
		c.add(100 * time.Microsecond) // all of it within 5 s
	}
	if n := db.store.Metrics().Snapshots.Count; n > 3*thin+len(held) {
		t.Errorf("%d snapshots are open, the bound is about %d", n, 2*thin)
	}
	for i, tx := range held {
		if v, err := tx.Get([]byte("n")).Wait(t.Context()); err != nil || string(v) != fmt.Sprint(i) {
			t.Errorf("a transaction that read at commit %d sees %q, %v", i, v, err)
		}
	}
	right, gone := 0, 0
	for i := 0; i < commits; i += 7 {
		tx := db.Begin()
		tx.SetReadVersion(versions[i])
		v, err := tx.Get([]byte("n")).Wait(t.Context())
		switch {
		case kv.Code(err) == kv.CodeTransactionTooOld:
			gone++
		case err != nil || string(v) != fmt.Sprint(i):
			t.Fatalf("at the version of commit %d: %q, %v", i, v, err)
		default:
			right++
		}
		tx.Cancel()
	}
	if right == 0 || gone == 0 {
		t.Errorf("%d versions could be read and %d not: want some of both", right, gone)
	}
}

// A reader that began in time may finish while its version is dropped.
func TestReadSurvivesTheDropOfItsVersion(t *testing.T) {
	c := newClock()
	db := openTest(t, Options{InMemory: true, Now: c.Now})
	put(t, db, "a", "1")
	v, err := db.win.current()
	if err != nil {
		t.Fatal(err)
	}
	snap, err := db.win.begin(v)
	if err != nil {
		t.Fatal(err)
	}
	c.add(time.Minute)
	put(t, db, "a", "2")
	if b, err := getCopy(snap, []byte("a")); err != nil || string(b) != "1" {
		t.Errorf("got %q, %v", b, err)
	}
	db.win.end(v)
	db.win.unpin(v)
	if n := db.store.Metrics().Snapshots.Count; n != 1 {
		t.Errorf("%d snapshots are open, want 1", n)
	}
}

func TestFutureReadWaitsForTheCommit(t *testing.T) {
	c := newClock() // stands still: only a commit brings new versions
	db := openTest(t, Options{InMemory: true, Now: c.Now})
	put(t, db, "a", "1")
	at := readVersion(t, db)
	tx := db.Begin()
	defer tx.Cancel()
	tx.SetReadVersion(at + 1)
	tx.Set([]byte("b"), []byte("own"))
	f, g := tx.Get([]byte("a")), tx.GetRange(kv.FirstGreaterOrEqual([]byte("a")), kv.FirstGreaterOrEqual([]byte("c")), kv.RangeOptions{})
	tx.Set([]byte("b"), []byte("later")) // after the reads were issued
	done := make(chan string)
	go func() {
		v, err := f.Wait(context.Background())
		rows, _, rerr := g.Next(context.Background())
		out := fmt.Sprintf("%s %v %v", v, err, rerr)
		for _, r := range rows {
			out += fmt.Sprintf(" %s=%s", r.Key, r.Value)
		}
		done <- out
	}()
	time.Sleep(10 * time.Millisecond)
	put(t, db, "a", "2")
	if got := <-done; got != "2 <nil> <nil> a=2 b=own" {
		t.Errorf("got %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tx.Reset()
	tx.SetReadVersion(at + 1_000_000)
	if _, err := tx.Get([]byte("a")).Wait(ctx); err != context.Canceled {
		t.Errorf("got %v from a wait whose context ended", err)
	}
}
