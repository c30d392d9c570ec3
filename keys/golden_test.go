package keys

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden file: only ever together with FormatVersion")

// golden is every key and range of the format, of fixed values that differ in
// every byte. Their texts are pinned in testdata: what is written today must be
// readable for ever.
func golden(s Space) []string {
	var (
		inc    = Incarnation{0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x41, 0x11, 0x91, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x12}
		child  = Incarnation{0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x47, 0x28, 0xa9, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f, 0x30}
		vs     = Versionstamp{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
		offset = MakeOffset(vs, 0x0a0b, 0x0c0d0e0f)
		id     = [16]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}
		at     = time.UnixMilli(0x0102030405060708)
		lines  []string
	)
	text := func(name, value string) { lines = append(lines, name+" "+value) }
	key := func(name string, b []byte) { text(name, hex.EncodeToString(b)) }
	span := func(name string, r Range) { text(name, hex.EncodeToString(r.Begin)+" "+hex.EncodeToString(r.End)) }

	text("format", fmt.Sprint(FormatVersion))
	text("offset", offset.String())
	text("offset/start", StartOffset.String())
	text("incarnation", inc.String())
	span("all", s.All())
	key("system", s.System("format"))
	key("meta", s.Meta("bucket", "stream"))
	key("meta/base", s.Meta("", "a/b"))
	span("meta/range", s.MetaRange("bucket"))
	span("meta/range/base", s.MetaRange(""))
	key("fence", s.Fence("bucket"))
	key("expiry", s.Expiry(at, "bucket", "stream"))
	key("expiry/before-1970", s.Expiry(time.UnixMilli(-1), "bucket", "stream"))
	span("expiry/until", s.ExpiryUntil(at))
	key("log", s.Log(inc, offset))
	key("log/stamped", s.LogStamped(inc, 0x0a0b, 0x0c0d0e0f))
	span("log/range", s.LogRange(inc))
	span("log/after", s.LogAfter(inc, offset))
	span("log/until", s.LogUntil(inc, offset))
	key("staged/stamped", s.StagedStamped(inc, 0x0a0b, 0x0c0d0e0f))
	span("staged/range", s.StagedRange(inc))
	span("staged/until", s.StagedUntil(inc, offset))
	key("tail", s.Tail(inc))
	key("producer", s.Producer(inc, "writer-1"))
	span("producer/range", s.ProducerRange(inc))
	key("seq", s.Seq(inc))
	key("touch", s.Touch(inc))
	key("snapshot", s.Snapshot(inc))
	key("blob", s.Blob(inc, id, 0x01020304))
	span("blob/range", s.BlobRange(inc, id))
	span("blobs/range", s.BlobsRange(inc))
	key("fork", s.Fork(inc, child))
	span("fork/range", s.ForkRange(inc))
	key("batch", s.Batch(id, 0x0102))
	span("batch/range", s.BatchRange())
	span("batch/frontend", s.FrontendBatches(id))
	key("gc", s.GC(at, id))
	span("gc/until", s.GCUntil(at))
	key("lease", s.Lease("sweep"))

	key("subscription", s.Subscription("bucket", "name"))
	span("subscription/range", s.SubscriptionRange("bucket"))
	span("subscriptions/range", s.SubscriptionsRange())
	key("substate", s.SubState(id))
	key("sublink", s.SubLink(id, "stream"))
	span("sublink/range", s.SubLinkRange(id))
	key("subpending", s.SubPending(id, "stream"))
	span("subpending/range", s.SubPendingRange(id))
	key("follower", s.Follower("bucket", "stream", id))
	span("follower/range", s.FollowerRange("bucket", "stream"))
	key("subglob", s.SubGlob("bucket", id))
	span("subglob/range", s.SubGlobRange("bucket"))
	key("subglobs", s.SubGlobs("bucket"))
	key("submark", s.SubMark("bucket", "stream"))
	span("submark/range", s.SubMarkRange(3))
	key("subwake", s.SubWake(3))
	key("subdue/deliver", s.SubDue(at, SubTaskDeliver, id))
	key("subdue/fill", s.SubDue(at, SubTaskFill, id))
	key("subdue/drop", s.SubDue(at, SubTaskDrop, id))
	span("subdue/range", s.SubDueRange())
	key("subfill", s.SubFill(id))
	key("subsecret", s.SubSecret(1, at, [8]byte(id[:8])))
	span("subsecret/range", s.SubSecretRange(1))
	return lines
}

func TestGolden(t *testing.T) {
	const file = "testdata/keys.golden"
	got := strings.Join(golden(mustSpace(t, "hw")), "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	was := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(was) || line != was[i] {
			t.Fatalf("the format has changed at line %d of %s: old deployments can't be read\n got %s\nwant %s",
				i+1, file, line, append(was, "")[min(i, len(was))])
		}
	}
	t.Fatalf("%s has more lines than there are keys", file)
}

// No two kinds share a byte, and none is without a golden line. The kinds are
// taken from the source, so that a new one can't be forgotten here.
func TestKinds(t *testing.T) {
	golden, err := os.ReadFile("testdata/keys.golden")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\s*(Kind\w+)\s+Kind\s*=\s*0x([0-9a-f]{2})$`)
	seen := map[string]string{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			name, value := m[1], m[2]
			if other, ok := seen[value]; ok {
				t.Errorf("%s and %s are both 0x%s", other, name, value)
			}
			seen[value] = name
			if !bytes.Contains(golden, []byte(" "+hex.EncodeToString([]byte("hw"))+value)) {
				t.Errorf("no golden line for %s", name)
			}
		}
	}
	if len(seen) < 28 {
		t.Errorf("only %d kinds found in the source", len(seen))
	}
}

func mustSpace(t interface {
	Helper()
	Fatalf(string, ...any)
}, prefix string) Space {
	t.Helper()
	s, err := NewSpace([]byte(prefix))
	if err != nil {
		t.Fatalf("NewSpace(%q): %v", prefix, err)
	}
	return s
}
