package fdblayer

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headwater/keys"
)

func drawMeta(t *rapid.T) *meta {
	m := &meta{
		incarnation: keys.Incarnation(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "inc")),
		contentType: rapid.String().Draw(t, "type"),
		created:     time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "created")),
		closed:      rapid.Bool().Draw(t, "closed"),
		softDeleted: rapid.Bool().Draw(t, "soft"),
		followed:    rapid.Bool().Draw(t, "followed"),
		retained:    drawOffset(t, "retained"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "expiry") {
	case 1:
		m.expiry = Expiry{HasTTL: true, TTL: rapid.Uint64().Draw(t, "ttl")}
	case 2:
		m.expiry = Expiry{At: time.UnixMilli(rapid.Int64Range(1, 1<<45).Draw(t, "at")), AtText: rapid.String().Draw(t, "text")}
	}
	if rapid.Bool().Draw(t, "closer") {
		m.closer = &Producer{ID: rapid.String().Draw(t, "pid"), Epoch: rapid.Uint64().Draw(t, "epoch"), Seq: rapid.Uint64().Draw(t, "seq")}
	}
	if rapid.Bool().Draw(t, "fork") {
		m.inheritedExpiry = rapid.Bool().Draw(t, "inherited")
		f := &forkMeta{
			source:            StreamID{rapid.String().Draw(t, "bucket"), rapid.String().Draw(t, "stream")},
			sourceIncarnation: keys.Incarnation(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "source")),
			subOffset:         rapid.Uint64().Draw(t, "sub"),
			depth:             rapid.Uint64().Draw(t, "depth"),
		}
		if rapid.Bool().Draw(t, "offset") {
			f.hasOffset, f.offset = true, drawOffset(t, "forkoffset")
		}
		for range rapid.IntRange(0, 4).Draw(t, "segments") {
			f.segments = append(f.segments, segment{keys.NewIncarnation(), drawOffset(t, "upto")})
		}
		m.fork = f
	}
	return m
}

func drawOffset(t *rapid.T, name string) keys.Offset {
	return keys.Offset(rapid.SliceOfN(rapid.Byte(), keys.OffsetLen, keys.OffsetLen).Draw(t, name))
}

func TestMetaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMeta(t)
		got, err := decodeMeta(m.encode())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(m, got) {
			t.Fatalf("wrote %+v\nread  %+v", m, got)
		}
	})
}

// A value that was cut or extended is refused, never half understood.
func TestMetaRefusesCutValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawMeta(t).encode()
		if _, err := decodeMeta(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]); err == nil {
			t.Fatal("a cut value was accepted")
		}
		if _, err := decodeMeta(append(b, 0)); err == nil {
			t.Fatal("an extended value was accepted")
		}
	})
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add((&meta{contentType: "text/plain"}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again, err := decodeMeta(m.encode())
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v (%v)", m, again, err)
		}
	})
}

// The golden bytes keep a format change from going unnoticed: data of earlier
// versions must stay readable.
func TestValuesMatchGoldenBytes(t *testing.T) {
	inc := keys.Incarnation{0: 0xaa, 15: 0x01}
	off := keys.MakeOffset(keys.Versionstamp{9: 7}, 1, 300)
	full := &meta{
		incarnation: inc, contentType: "application/json", created: time.UnixMilli(1_700_000_000_000),
		expiry: Expiry{HasTTL: true, TTL: 3600}, inheritedExpiry: true, closed: true,
		closer: &Producer{ID: "p", Epoch: 1, Seq: 2}, retained: off,
		fork: &forkMeta{
			source: StreamID{"bucket", "source"}, sourceIncarnation: inc, hasOffset: true, offset: off,
			subOffset: 3, depth: 1, segments: []segment{{inc, off}},
		},
	}
	at := &meta{incarnation: inc, contentType: "text/plain", created: time.UnixMilli(1), softDeleted: true,
		expiry: Expiry{At: time.UnixMilli(1_800_000_000_000), AtText: "2027-01-15T08:00:00Z"}}
	snap := &snapshotPointer{Snapshot{Offset: off, ContentType: "image/png", Digest: "d1", Size: 70_000}, keys.BlobID{3: 4}, inc, true}
	mid := packer{openMid: true}
	mid.add([]byte("abc"))
	inline := mid.done()[0].value
	var got strings.Builder
	for _, v := range []struct {
		name  string
		value []byte
	}{
		{"meta full", full.encode()},
		{"meta expires-at", at.encode()},
		{"snapshot", snap.encode()},
		{"record inline", inline},
		{"record blob", encodeBlobRecord(blobRef{keys.BlobID{1: 2}, 9_000_000})},
		{"witness", witnessValue(258)},
		{"touch", encodeTouch(time.UnixMilli(0x0102030405))},
	} {
		got.WriteString(v.name + " " + hex.EncodeToString(v.value) + "\n")
	}
	path := filepath.Join("testdata", "values.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(got.String())) {
		t.Errorf("the format changed; got\n%swant\n%s", got.String(), want)
	}
}
