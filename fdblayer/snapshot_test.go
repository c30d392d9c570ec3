package fdblayer

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"headwater/keys"
)

// A snapshot that was superseded while it is read is read to its end; once the
// grace period is over it is collected, and a reader that is still there gets
// an error and not another snapshot's bytes.
func TestSupersededSnapshotsOutliveTheirReaders(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		st := e.create("s", "text/plain", "abc")
		old := make([]byte, 3*stageChunks*blobChunk+77)
		_, _ = rand.Read(old)
		publish := func(at keys.Offset, body []byte) {
			t.Helper()
			if _, _, err := e.PublishSnapshot(ctx, PublishRequest{ID: sid("s"), Offset: at, Body: bytes.NewReader(body), MaxBytes: 64 << 20}); err != nil {
				t.Fatal(err)
			}
		}
		publish(st.Tail, old)
		open := func() (*SnapshotBody, []byte) {
			t.Helper()
			b, err := e.OpenSnapshot(ctx, sid("s"), Precondition{}, st.Tail)
			if err != nil {
				t.Fatal(err)
			}
			head := make([]byte, 1000)
			if _, err := io.ReadFull(b.Body, head); err != nil {
				t.Fatal(err)
			}
			return b, head
		}
		inTime, head := open()
		late, _ := open()

		publish(e.post("s", "def"), []byte("new"))
		_, err := e.OpenSnapshot(ctx, sid("s"), Precondition{}, st.Tail)
		e.mustFail(err, CodeSnapshotNotFound)
		e.clock.advance(e.opts.SnapshotGrace - time.Second)
		if err := e.collectGarbage(ctx); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(inTime.Body)
		if err != nil || !bytes.Equal(append(head, rest...), old) {
			t.Fatalf("%d bytes, %v", len(head)+len(rest), err)
		}

		e.clock.advance(2 * time.Second)
		if err := e.collectGarbage(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(late.Body); !errors.Is(err, errSnapshotGone) {
			t.Fatalf("a reader past the grace period got %v", err)
		}
		if n := e.count(e.space.BlobsRange(st.Incarnation)); n != 1 {
			t.Errorf("%d chunks are left, want the new snapshot's", n)
		}
	})
}

// The fork of a stream whose beginning is gone has the snapshot that stands for
// it, whatever becomes of the source and of the source's own snapshot.
func TestForksOfRetainedStreamsCanBeRebuilt(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		first := e.create("src", "text/plain", "abc").Tail
		second := e.post("src", "def")
		publish := func(id string, at keys.Offset, body string) {
			t.Helper()
			if _, _, err := e.PublishSnapshot(ctx, PublishRequest{ID: sid(id), Offset: at, Body: strings.NewReader(body), MaxBytes: 99}); err != nil {
				t.Fatal(err)
			}
		}
		fork := func(name, from string, at *keys.Offset) error {
			_, err := e.Create(ctx, CreateRequest{ID: sid(name), Fork: &Fork{Source: sid(from), Offset: at}})
			return err
		}
		publish("src", second, "abcdef")
		if _, err := e.Retain(ctx, sid("src"), Precondition{}, first); err != nil {
			t.Fatal(err)
		}
		e.mustFail(fork("early", "src", &first), CodeForkConflict)
		e.post("src", "ghi")
		if err := errors.Join(fork("f", "src", nil), fork("g", "f", &second)); err != nil {
			t.Fatal(err)
		}
		publish("src", e.post("src", "jkl"), "superseding")
		e.clock.advance(24 * time.Hour)
		if err := e.collectGarbage(ctx); err != nil {
			t.Fatal(err)
		}
		if err := e.Delete(ctx, sid("src"), Precondition{}); err != nil {
			t.Fatal(err)
		}
		for name, updates := range map[string]string{"f": "ghi", "g": ""} {
			b, err := e.Bootstrap(ctx, sid(name), Precondition{}, 99)
			if err != nil || b.Snapshot == nil || b.Snapshot.Snapshot.Offset != second || string(b.Updates.Data) != updates {
				t.Fatalf("%s: %+v %v", name, b, err)
			}
			if body, err := io.ReadAll(b.Snapshot.Body); err != nil || string(body) != "abcdef" {
				t.Fatalf("%s: %q %v", name, body, err)
			}
		}
		publish("f", e.post("f", "+"), "own")
		for _, name := range []string{"f", "g"} {
			if err := e.Delete(ctx, sid(name), Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
		e.onlyHousekeeping()
	})
}

// An upload whose frontend dies leaves nothing visible, and what it staged is
// collected; one that goes on too slowly can't write to what was collected.
func TestAbandonedUploadsAreCollected(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		st := e.create("s", "text/plain", "abc")
		g, err := e.stage(ctx, st.Incarnation)
		if err != nil {
			t.Fatal(err)
		}
		window := make([]byte, stageChunks*blobChunk)
		if err := errors.Join(g.write(ctx, window), g.settle()); err != nil {
			t.Fatal(err)
		}
		if _, snap, err := e.Head(ctx, sid("s"), Precondition{}); err != nil || snap != nil {
			t.Fatalf("%+v %v", snap, err)
		}
		e.clock.advance(stageLease + time.Second)
		if err := e.collectGarbage(ctx); err != nil {
			t.Fatal(err)
		}
		if n := e.count(e.space.BlobsRange(st.Incarnation)); n != 0 {
			t.Errorf("%d chunks are left", n)
		}
		g.leased = e.clock.now() // as a frontend whose clock stood still believes
		if err := errors.Join(g.write(ctx, window), g.settle()); !isCode(err, CodeUnavailable) {
			t.Fatalf("a collected staging was written to: %v", err)
		}
		if n := e.count(e.space.BlobsRange(st.Incarnation)); n != 0 {
			t.Errorf("%d chunks were written after the collection", n)
		}
	})
}
