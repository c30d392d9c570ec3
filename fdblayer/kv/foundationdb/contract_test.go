//go:build foundationdb

package foundationdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"headwater/ci/fdbcluster"
	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/kvtest"
)

// underFaults is set in the process that TestBuggified starts.
const underFaults = "HEADWATER_TEST_UNDER_FAULTS"

func TestContract(t *testing.T) {
	if buggified() && os.Getenv(underFaults) == "" {
		t.Skip("most of the suite says what one attempt does, and injected faults end it; TestBuggified runs what holds")
	}
	kvtest.Run(t, func(t *testing.T) kv.Database { return open(t) })
}

// TestBuggified runs what must hold under faults in a second process, whose C
// client injects them: the network option is fixed for the life of a process.
// Half of all faults are commits that took effect and are reported as unknown.
func TestBuggified(t *testing.T) {
	if buggified() {
		t.Skip("this is the second process")
	}
	file := fdbcluster.Open(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const retried = "UnderFaults$|^TestRowsComeInBatches$|^TestReopen$|^TestContract$/^contract$/(concurrency|watches)/(bank|wake-up)"
	cmd := exec.CommandContext(ctx, self, "-test.v", "-test.run="+retried)
	cmd.Env = append(os.Environ(),
		underFaults+"=1",
		"FDB_CLUSTER_FILE="+file,
		"FDB_NETWORK_OPTION_CLIENT_BUGGIFY_ENABLE=",
		// Every place that can fail is chosen, and fails so many times in a hundred.
		"FDB_NETWORK_OPTION_CLIENT_BUGGIFY_SECTION_ACTIVATED_PROBABILITY=100",
		"FDB_NETWORK_OPTION_CLIENT_BUGGIFY_SECTION_FIRED_PROBABILITY=20",
	)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if n := strings.Count(string(out), "--- PASS"); n < 8 {
		t.Errorf("%d tests passed under faults: the pattern misses some", n)
	}
}

// TestUnderFaults has workers append to logs, each append with a witness, as
// kv.Transact asks for: none is lost, none applied twice, whatever the client
// reported. It holds without faults too.
func TestUnderFaults(t *testing.T) {
	db := open(t)
	key := prefixed(t)
	const workers, appends = 8, 25
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var mu sync.Mutex
	var outcome struct{ attempts, unknown, landed int }
	stamps := map[[kv.VersionstampLen]byte]string{}
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range appends {
				id := fmt.Sprintf("%d.%d", w, i)
				witness, entry := key("witness/"+id), key("log/"+id)
				var found []byte
				done, err := kv.Transact(ctx, db, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
					found = nil
					mu.Lock()
					outcome.attempts++
					mu.Unlock()
					// The read conflicts with the write of the attempt before, should
					// that one still land.
					v, err := tx.Get(witness).Wait(ctx)
					if err != nil || v != nil {
						found = v
						return err
					}
					tx.Atomic(kv.SetVersionstampedValue, witness, make([]byte, kv.VersionstampLen+4))
					tx.Atomic(kv.Add, entry, []byte{1})
					tx.Atomic(kv.Add, key("total"), []byte{1, 0, 0, 0})
					if at.Unknown {
						mu.Lock()
						outcome.unknown++
						mu.Unlock()
					}
					return nil
				})
				if err != nil {
					t.Errorf("append %s: %v", id, err)
					return
				}
				stamp := done.Versionstamp
				mu.Lock()
				if found != nil {
					outcome.landed++
					copy(stamp[:], found)
				}
				if other, taken := stamps[stamp]; taken {
					t.Errorf("appends %s and %s have one versionstamp", id, other)
				}
				stamps[stamp] = id
				mu.Unlock()
				if found == nil && done.Version <= 0 {
					t.Errorf("append %s committed at version %d", id, done.Version)
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d appends in %d attempts: %d commits of unknown outcome had landed, %d attempts after one that had not",
		workers*appends, outcome.attempts, outcome.landed, outcome.unknown)
	if buggified() && (outcome.landed < 5 || outcome.attempts < workers*appends*11/10) {
		t.Error("hardly any faults were injected: this run says nothing")
	}

	err := kv.Read(ctx, db, func(ctx context.Context, tx kv.Tx) error {
		log := kv.Range{Begin: key("log/"), End: key("log0")}
		rows := tx.GetRange(kv.FirstGreaterOrEqual(log.Begin), kv.FirstGreaterOrEqual(log.End), kv.RangeOptions{})
		n := 0
		for more := true; more; {
			batch, m, err := rows.Next(ctx)
			if err != nil {
				return err
			}
			for _, row := range batch {
				if n++; len(row.Value) != 1 || row.Value[0] != 1 {
					return fmt.Errorf("%s was applied %d times", row.Key, row.Value)
				}
			}
			more = m
		}
		total, err := tx.Get(key("total")).Wait(ctx)
		if err != nil {
			return err
		}
		if got := int(total[0]) | int(total[1])<<8; n != workers*appends || got != n {
			return fmt.Errorf("%d entries, total %d, want %d", n, got, workers*appends)
		}
		// Each acknowledged stamp is the one in the database.
		for stamp, id := range stamps {
			v, err := tx.Get(key("witness/" + id)).Wait(ctx)
			if err != nil {
				return err
			}
			if string(v) != string(stamp[:]) {
				return fmt.Errorf("append %s was told stamp %x, its witness is %x", id, stamp, v)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWatchersUnderFaults: readers that follow a key by watches see its last
// value, whatever fails on the way.
func TestWatchersUnderFaults(t *testing.T) {
	db := open(t)
	key := prefixed(t)("k")
	const last, readers = 100, 8
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for {
				var w kv.Watch
				var v []byte
				err := kv.Read(ctx, db, func(ctx context.Context, tx kv.Tx) (err error) {
					w = tx.Watch(key)
					v, err = tx.Get(key).Wait(ctx)
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
				if string(v) == fmt.Sprint(last) {
					w.Cancel()
					return
				}
				if err := w.Wait(ctx); err != nil && (ctx.Err() != nil || errors.Is(err, kv.ErrClosed)) {
					t.Errorf("stuck at %s: %v", v, err)
					return
				}
				w.Cancel()
			}
		})
	}
	for i := range last + 1 {
		set(t, db, key, fmt.Append(nil, i))
	}
	group.Wait()
}
