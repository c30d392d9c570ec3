package subscriptions

import (
	"encoding/hex"
	"testing"
	"time"

	"headwater/keys"
)

// The bytes of values are a format: what earlier versions wrote must stay
// readable.
func TestValuesMatchGoldenBytes(t *testing.T) {
	l := link{explicit: true, glob: true, incarnation: keys.Incarnation{0: 0xaa, 15: 1}, acked: keys.MakeOffset(keys.Versionstamp{9: 7}, 1, 300)}
	if got := hex.EncodeToString(l.encode()); got != "0103aa00000000000000000000000000000100000000000000000007"+"0001"+"0000012c" {
		t.Error("link", got)
	}
	if back, err := decodeLink(l.encode()); err != nil || back != l {
		t.Error(back, err)
	}
	s := state{Bucket: "b", Name: "n", Generation: 7, WakeID: "w_1", Phase: held, Holder: "h", LeaseUntil: 5, Due: 5, Op: "o"}
	if got := string(s.encode()); got != `{"bucket":"b","name":"n","generation":7,"wake_id":"w_1","phase":5,"holder":"h","lease_until":5,"due":5,"op":"o"}` {
		t.Error("state", got)
	}
	cfg, err := Config{Type: Webhook, Pattern: "/a/*", Streams: []string{"c", "b", "c"}, URL: "https://x.example/", Description: "d"}.normalize("")
	if err != nil {
		t.Fatal(err)
	}
	r := newRecord(cfg, keys.SubscriptionID{1}, "https://here", time.UnixMilli(9))
	want := `{"uid":"01000000000000000000000000000000","hash":"6e2a","type":"webhook","pattern":"a/*","url":"https://x.example/","lease_ttl_ms":30000,"description":"d","created":9,"origin":"https://here"}`
	got := r
	got.Hash = "6e2a"
	if string(got.encode()) != want {
		t.Error("record", string(got.encode()))
	}
	if back, err := decodeRecord(r.encode()); err != nil || back != r {
		t.Error(back, err)
	}
	// The hash decides whether a re-confirmation is one, for ever.
	if r.Hash != "d83e8c22a03678790fc04fb959c1a66250a66145d47d039d19b2bc0fea329b6a" {
		t.Error("hash", r.Hash)
	}
}

func TestTheHashIsOfTheNormalizedConfiguration(t *testing.T) {
	base := Config{Type: PullWake, Pattern: "a/*", Streams: []string{"b", "c"}, WakeStream: "w", Lease: DefaultLease}
	hash := func(c Config) string {
		t.Helper()
		n, err := c.normalize("")
		if err != nil {
			t.Fatal(err)
		}
		return n.hash()
	}
	same := base
	same.Pattern, same.Streams, same.WakeStream, same.Lease = "/a/*/", []string{"c/", "b", "b"}, "/w", 0
	if hash(same) != hash(base) {
		t.Error("the same configuration has another hash")
	}
	for name, change := range map[string]func(*Config){
		"pattern":     func(c *Config) { c.Pattern = "a/**" },
		"streams":     func(c *Config) { c.Streams = []string{"b"} },
		"wake stream": func(c *Config) { c.WakeStream = "w2" },
		"lease":       func(c *Config) { c.Lease = time.Second },
		"description": func(c *Config) { c.Description = "x" },
		"type":        func(c *Config) { c.Type, c.URL = Webhook, "https://a.example" },
	} {
		c := base
		change(&c)
		if hash(c) == hash(base) {
			t.Errorf("another %s has the same hash", name)
		}
	}
}

func FuzzDecodeValues(f *testing.F) {
	f.Add(link{explicit: true}.encode())
	f.Add(state{Name: "n"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := decodeLink(b); err == nil {
			if string(l.encode()) != string(b) {
				t.Fatalf("%x became %x", b, l.encode())
			}
		}
		if s, err := decodeState(b); err == nil {
			if again, err := decodeState(s.encode()); err != nil || again != s {
				t.Fatalf("%+v became %+v", s, again)
			}
		}
		if r, err := decodeRecord(b); err == nil {
			if again, err := decodeRecord(r.encode()); err != nil || again != r {
				t.Fatalf("%+v became %+v", r, again)
			}
		}
		_, _ = parseDueValue(b)
	})
}
