package embedded

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"headwater/fdblayer/kv"
)

const (
	loadWriters = 8
	loadRows    = 4 // plain rows of one transaction
)

func rowKey(writer, n, row int) []byte { return fmt.Appendf(nil, "row/%d/%d/%d", writer, n, row) }

// writeWhole is one transaction of the load: some rows and a log record.
func writeWhole(tx kv.Tx, writer, n int) {
	for r := range loadRows {
		tx.Set(rowKey(writer, n, r), make([]byte, 1+n%300))
	}
	key := fmt.Appendf([]byte("log/0123456789"), "/%d/%d", writer, n)
	tx.Atomic(kv.SetVersionstampedKey, binary.LittleEndian.AppendUint32(key, 4), nil)
	tx.Atomic(kv.Add, fmt.Appendf(nil, "count/%d", writer), []byte{1, 0, 0, 0})
}

// runLoad is the child: it commits until it is killed, and says on standard
// output what was acknowledged.
func runLoad() {
	from, err := strconv.Atoi(os.Getenv(childFrom))
	must0(err)
	// Small memtables, so that flushes and new log files are hit too.
	db, err := Open(context.Background(), Options{Dir: os.Getenv(childDir), MemTableBytes: 256 << 10, Log: quiet})
	must0(err)
	var g sync.WaitGroup
	for w := range loadWriters {
		g.Go(func() {
			for n := from; ; n++ {
				tx := db.Begin()
				writeWhole(tx, w, n)
				must0(tx.Commit(context.Background()))
				// One write call: a line is whole or missing.
				fmt.Fprintf(os.Stdout, "%d %d %d\n", w, n, tx.CommittedVersion())
				tx.Cancel()
			}
		})
	}
	g.Wait()
}

func runHold() {
	db, err := Open(context.Background(), Options{Dir: os.Getenv(childDir), Log: quiet})
	must0(err)
	fmt.Println("open")
	bufio.NewReader(os.Stdin).ReadString('\n')
	must0(db.Close())
}

type ack struct{ writer, n int }

func child(t *testing.T, mode, dir string, from int) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childMode+"="+mode, childDir+"="+dir, childFrom+"="+strconv.Itoa(from))
	cmd.Stderr = os.Stderr
	return cmd
}

// Every acknowledged transaction survives kill -9, every transaction is whole,
// and versions go on upward.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acked := map[ack]bool{}
	last := int64(0)
	total := 0
	for round := range 5 {
		cmd := child(t, "load", dir, round*1_000_000)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := make(chan string, 1<<16)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				lines <- s.Text()
			}
		}()
		first := <-lines // the load runs
		time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		highest := last
		count := func(line string) {
			var a ack
			var version int64
			if _, err := fmt.Sscanf(line, "%d %d %d", &a.writer, &a.n, &version); err != nil {
				t.Fatalf("the child wrote %q", line)
			}
			if version <= last {
				t.Fatalf("round %d committed at %d, the round before at %d", round, version, last)
			}
			highest = max(highest, version)
			acked[a] = true
		}
		count(first)
		for line := range lines {
			count(line)
		}
		if err := cmd.Wait(); !strings.Contains(fmt.Sprint(err), "killed") {
			t.Fatalf("the child ended with %v", err)
		}
		last = checkWhole(t, Options{Dir: dir}, acked)
		if last <= highest {
			t.Fatalf("the read version after the crash is %d, a commit before it %d", last, highest)
		}
		if len(acked) < total+20 {
			t.Fatalf("round %d acknowledged %d transactions: too few to mean much", round, len(acked)-total)
		}
		total = len(acked)
	}
	t.Logf("%d transactions were acknowledged and are whole", total)
}

// checkWhole opens the store, checks it and returns its read version.
func checkWhole(t *testing.T, opts Options, acked map[ack]bool) int64 {
	t.Helper()
	opts.Log = quiet
	db, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	tx := db.Begin()
	defer tx.Cancel()
	parts := map[ack]int{}
	for _, row := range readAll(t, tx, "row/", "row0") {
		var a ack
		var r int
		fmt.Sscanf(string(row.Key), "row/%d/%d/%d", &a.writer, &a.n, &r)
		if len(row.Value) != 1+a.n%300 {
			t.Fatalf("%s has %d bytes", row.Key, len(row.Value))
		}
		parts[a]++
	}
	counts := map[int]uint32{}
	for _, row := range readAll(t, tx, "log/", "log0") {
		var a ack
		fmt.Sscanf(string(row.Key[4+kv.VersionstampLen:]), "/%d/%d", &a.writer, &a.n)
		parts[a]++
		counts[a.writer]++
	}
	for a := range acked {
		if parts[a] == 0 {
			t.Fatalf("acknowledged transaction %+v is lost", a)
		}
	}
	for a, n := range parts {
		if n != loadRows+1 {
			t.Fatalf("transaction %+v has %d of %d parts", a, n, loadRows+1)
		}
	}
	for w, n := range counts {
		v, err := tx.Get(fmt.Appendf(nil, "count/%d", w)).Wait(t.Context())
		if err != nil || binary.LittleEndian.Uint32(v) != n {
			t.Fatalf("writer %d counted %d (%v), its log has %d records", w, binary.LittleEndian.Uint32(v), err, n)
		}
	}
	version, err := tx.ReadVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func readAll(t *testing.T, tx kv.Tx, begin, end string) []kv.KeyValue {
	t.Helper()
	var all []kv.KeyValue
	it := tx.GetRange(kv.FirstGreaterOrEqual([]byte(begin)), kv.FirstGreaterOrEqual([]byte(end)), kv.RangeOptions{})
	for {
		batch, more, err := it.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch...)
		if !more {
			return all
		}
	}
}

// The same for a machine that loses its power: what was not synced is gone, or
// part of it. Nor may anything be gone that a reader has seen.
func TestPowerLoss(t *testing.T) {
	for _, unsynced := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("%d%% of the unsynced data survives", unsynced), func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			db := openTest(t, Options{Dir: "d", FS: disk, MemTableBytes: 256 << 10})
			var stop atomic.Bool
			var mu sync.Mutex
			acked := map[ack]bool{}
			var seen atomic.Int64 // records that a reader counted
			var g sync.WaitGroup
			for w := range loadWriters {
				g.Go(func() {
					for n := 0; !stop.Load(); n++ {
						tx := db.Begin()
						writeWhole(tx, w, n)
						tx.Atomic(kv.Add, []byte("total"), []byte{1, 0, 0, 0})
						if err := tx.Commit(context.Background()); err != nil {
							t.Error(err)
							return
						}
						tx.Cancel()
						mu.Lock()
						acked[ack{w, n}] = true
						mu.Unlock()
					}
				})
			}
			g.Go(func() {
				for !stop.Load() {
					tx := db.Begin()
					v, err := tx.Get([]byte("total")).Wait(context.Background())
					tx.Cancel()
					if err != nil {
						t.Error(err)
						return
					}
					if v != nil {
						seen.Store(int64(binary.LittleEndian.Uint32(v)))
					}
				}
			})
			for range 5 {
				time.Sleep(time.Duration(10+rand.IntN(60)) * time.Millisecond)
				mu.Lock()
				before := make(map[ack]bool, len(acked))
				for a := range acked {
					before[a] = true
				}
				mu.Unlock()
				sawBefore := seen.Load()
				crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(1, 1))})
				opts := Options{Dir: "d", FS: crashed}
				checkWhole(t, opts, before)
				after := openTest(t, opts)
				v := value(t, after, "total")
				if v != "-" && int64(binary.LittleEndian.Uint32([]byte(v))) < sawBefore || v == "-" && sawBefore > 0 {
					t.Fatalf("a reader saw a total of %d, the crash left %x", sawBefore, v)
				}
				if err := after.Close(); err != nil {
					t.Fatal(err)
				}
			}
			stop.Store(true)
			g.Wait()
			if len(acked) < 100 || seen.Load() == 0 {
				t.Errorf("only %d commits and %d seen: too few to mean much", len(acked), seen.Load())
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestHeldByAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "hold", dir, 0)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	wantOpenError(t, Options{Dir: dir}, ErrLocked)
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := openTest(t, Options{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
}
