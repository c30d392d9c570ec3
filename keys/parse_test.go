package keys

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseOffset(t *testing.T) {
	const start = "00000000000000000000000000000000"
	for _, tc := range []struct {
		token string
		want  Offset
	}{
		{start, StartOffset},
		{"0000000000000000_0000000000000000", StartOffset},
		{"000102030405060708090a0b0c0d0e0f", MakeOffset(Versionstamp{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0x0a0b, 0x0c0d0e0f)},
		{"0001020304050607_08090a0b0c0d0e0f", MakeOffset(Versionstamp{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0x0a0b, 0x0c0d0e0f)},
	} {
		if got, err := ParseOffset(tc.token); err != nil || got != tc.want {
			t.Errorf("ParseOffset(%q) = %v, %v, want %v", tc.token, got, err, tc.want)
		}
	}
	for _, token := range []string{
		"", "-1", "now", "0", start[1:], start + "0", start + "\n", " " + start[1:], strings.ToUpper("abcdef" + start[6:]),
		"+" + start[1:], "0x" + start[2:], start[1:] + "g", start[2:] + "é", start[:15] + "_" + start[15:], start[:17] + "_" + start[17:],
		"_" + start, start + "_", start[:16] + "__" + start[17:], start[:16] + "-" + start[16:], "12345678901234567890", start[:31] + "\x00",
		start[:16] + "_" + start[17:], start[:16] + "," + start[17:],
	} {
		if got, err := ParseOffset(token); !errors.Is(err, ErrBadOffset) || got != (Offset{}) {
			t.Errorf("ParseOffset(%q) = %v, %v, want ErrBadOffset", token, got, err)
		}
	}
}

func TestOffsetParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vs := Versionstamp(rapid.SliceOfN(rapid.Byte(), VersionstampLen, VersionstampLen).Draw(t, "versionstamp"))
		order, count, other := rapid.Uint16().Draw(t, "order"), rapid.Uint32().Draw(t, "count"), rapid.Uint32().Draw(t, "other")
		o := MakeOffset(vs, order, count)
		if o.Versionstamp() != vs || o.Order() != order || o.Count() != count {
			t.Fatalf("%v is %x, %d, %d", o, o.Versionstamp(), o.Order(), o.Count())
		}
		if p := o.WithCount(other); p != MakeOffset(vs, order, other) || !o.SameRecord(p) {
			t.Fatalf("%v with the count %d is %v", o, other, p)
		}
		if p := MakeOffset(vs, order+1, count); o.SameRecord(p) {
			t.Fatalf("%v and %v are in one record", o, p)
		}
		if o.IsStart() != (o == StartOffset) || StartOffset.Compare(o) > 0 {
			t.Fatalf("%v lies before the start", o)
		}
		if got, err := ParseOffset(o.String()); err != nil || got != o {
			t.Fatalf("%v is read back as %v, %v", o, got, err)
		}
	})
}

func TestParseIncarnation(t *testing.T) {
	seen := map[Incarnation]bool{}
	for range 100 {
		inc := NewIncarnation()
		if seen[inc] || inc.IsZero() {
			t.Fatalf("incarnation %v", inc)
		}
		seen[inc] = true
		if got, err := ParseIncarnation(inc.String()); err != nil || got != inc {
			t.Fatalf("%v is read back as %v, %v", inc, got, err)
		}
	}
	const good = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	if _, err := ParseIncarnation(good); err != nil {
		t.Errorf("%s: %v", good, err)
	}
	for _, token := range []string{
		"", "1", "null", good[1:], good + "0", good + "\n", " " + good, strings.ToUpper(good), "{" + good + "}", "urn:uuid:" + good,
		strings.ReplaceAll(good, "-", ""), strings.ReplaceAll(good, "-", "_"), strings.Repeat("0", 8) + good[8:13] + "-1" + good[15:],
		"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
		"6ba7b810-9dad-41d1-c0b4-00c04fd430c8", good + ", " + good, `"` + good + `"`,
	} {
		if got, err := ParseIncarnation(token); !errors.Is(err, ErrBadIncarnation) || !got.IsZero() {
			t.Errorf("ParseIncarnation(%q) = %v, %v, want ErrBadIncarnation", token, got, err)
		}
	}
}

func TestNewSpace(t *testing.T) {
	for _, prefix := range []string{"", "\xff", "\xff\xff", "\xff\x02", strings.Repeat("p", MaxPrefixLen+1)} {
		if _, err := NewSpace([]byte(prefix)); !errors.Is(err, ErrBadPrefix) {
			t.Errorf("NewSpace(%q): %v, want ErrBadPrefix", prefix, err)
		}
	}
	mustSpace(t, strings.Repeat("p", MaxPrefixLen))
	prefix := []byte("mine")
	s, err := NewSpace(prefix)
	if err != nil {
		t.Fatal(err)
	}
	prefix[0] = 'x'
	if got := s.Lease("l"); !bytes.HasPrefix(got, []byte("mine")) {
		t.Errorf("the space has changed with the caller's prefix: %q", got)
	}
}

// Keys are the caller's: appending to one must not write into another.
func TestKeysAreTheCallers(t *testing.T) {
	s := mustSpace(t, "hw")
	all := s.All()
	_ = append(all.Begin, "overwritten"...)
	if got := s.Lease("l"); string(got) != "hw\x32l" {
		t.Errorf("%q", got)
	}
}

func TestSuccessor(t *testing.T) {
	for _, tc := range [][2]string{{"a", "b"}, {"a\xff", "b"}, {"a\xff\xff", "b"}, {"a\xfe", "a\xff"}, {"\x00", "\x01"}, {"\xfe\xff", "\xff"}} {
		in := []byte(tc[0])
		if got := Successor(in); string(got) != tc[1] || string(in) != tc[0] {
			t.Errorf("Successor(%q) = %q, want %q", tc[0], got, tc[1])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := append(rapid.SliceOf(words).Draw(t, "prefix"), 'p')
		p = append(p, bytes.Repeat([]byte{0xff}, rapid.IntRange(0, 3).Draw(t, "0xff"))...)
		end := Successor(p)
		key := rapid.SliceOf(words).Draw(t, "key")
		if rapid.Bool().Draw(t, "below") {
			key = append(bytes.Clone(p), key...)
		}
		in := bytes.Compare(p, key) <= 0 && bytes.Compare(key, end) < 0
		if in != bytes.HasPrefix(key, p) {
			t.Fatalf("%x in [%x, %x): %v", key, p, end, in)
		}
	})
	for _, p := range []string{"", "\xff", "\xff\xff"} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.Contains(s, "prefix") {
					t.Errorf("Successor(%q): panic %q", p, s)
				}
			}()
			Successor([]byte(p))
			t.Errorf("Successor(%q) returned", p)
		}()
	}
}

// Times that keys can't hold are brought to the nearest that they can.
func TestTimesOfKeys(t *testing.T) {
	s := mustSpace(t, "hw")
	for _, tc := range []struct {
		due  time.Time
		want int64
	}{
		{time.Time{}, 0}, {time.UnixMilli(-1), 0}, {time.UnixMilli(0), 0}, {time.Unix(1, 999_999), 1000}, {time.Unix(1, 1_000_000), 1001},
	} {
		due, bucket, stream, err := s.ParseExpiry(s.Expiry(tc.due, "b", "s"))
		if err != nil || due.UnixMilli() != tc.want || bucket != "b" || stream != "s" {
			t.Errorf("%v is read back as %v (%q, %q, %v), want %d ms", tc.due, due, bucket, stream, err, tc.want)
		}
	}
}

// damagedKeys are almost keys.
var damagedKeys = map[string]string{
	"nothing":                      "",
	"prefix":                       "hw",
	"kind alone":                   "hw\x10",
	"other prefix":                 "hx\x10b\x00s",
	"meta without separator":       "hw\x10bs",
	"expiry without names":         "hw\x12\x00\x00\x00\x00\x00\x00\x00\x01",
	"expiry without separator":     "hw\x12\x00\x00\x00\x00\x00\x00\x00\x01bs",
	"expiry at no time":            "hw\x12\x80\x00\x00\x00\x00\x00\x00\x00b\x00s",
	"log too short":                "hw\x20" + strings.Repeat("i", 31),
	"log too long":                 "hw\x20" + strings.Repeat("i", 33),
	"link without subscription":    "hw\x42" + strings.Repeat("i", 15),
	"pending without subscription": "hw\x43" + strings.Repeat("i", 15),
	"follower without separator":   "hw\x44b\x00s" + strings.Repeat("i", 16),
	"follower with one separator":  "hw\x44bs\x00" + strings.Repeat("i", 16),
	"follower too short":           "hw\x44\x00\x00" + strings.Repeat("i", 15),
	"pattern too short":            "hw\x45b\x00" + strings.Repeat("i", 15),
	"pattern too long":             "hw\x45b\x00" + strings.Repeat("i", 17),
	"mark without shard":           "hw\x47",
	"mark without separator":       "hw\x47\x01bs",
	"due too short":                "hw\x49" + strings.Repeat("\x01", 24),
	"due too long":                 "hw\x49" + strings.Repeat("\x01", 26),
	"due at no time":               "hw\x49\xff" + strings.Repeat("\x01", 24),
}

func TestDamagedKeys(t *testing.T) {
	s := mustSpace(t, "hw")
	for name, key := range damagedKeys {
		if f, ok := parse(t, s, []byte(key)); ok {
			t.Errorf("%s: %x is read as %+v", name, key, f)
		}
	}
}

func FuzzParseOffset(f *testing.F) {
	for _, s := range []string{"", "-1", "now", strings.Repeat("0", 32), "0000000000000000_0000000000000000", "000102030405060708090a0b0c0d0e0f", strings.Repeat("F", 32)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		o, err := ParseOffset(token)
		if err != nil {
			if o != (Offset{}) || !errors.Is(err, ErrBadOffset) {
				t.Fatalf("%q: %v, %v", token, o, err)
			}
			return
		}
		canonical := token
		if len(token) == 33 {
			canonical = token[:16] + token[17:]
		}
		if o.String() != canonical {
			t.Fatalf("%q is read as %v", token, o)
		}
	})
}

func FuzzParseIncarnation(f *testing.F) {
	for _, s := range []string{"", "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "urn:uuid:6ba7b810-9dad-41d1-80b4-00c04fd430c8", "6ba7b8109dad41d180b400c04fd430c8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		inc, err := ParseIncarnation(token)
		if err == nil && inc.String() != token || err != nil && !inc.IsZero() {
			t.Fatalf("%q is read as %v, %v", token, inc, err)
		}
	})
}

// FuzzParseKeys reads what may stand in a damaged database: never a panic, and
// what is accepted is exactly what would have been written.
func FuzzParseKeys(f *testing.F) {
	s := mustSpace(f, "hw")
	for _, line := range golden(s) {
		for _, field := range strings.Fields(line)[1:] {
			f.Add(unhex(field))
		}
	}
	for _, key := range damagedKeys {
		f.Add([]byte(key))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		fact, ok := parse(t, s, key)
		if !ok {
			return
		}
		if fact.kind == KindSubMark {
			// The shard is not read, so any is accepted.
			key = bytes.Clone(key)
			key[len("hw")+1] = Shard(fact.bucket, fact.stream)
		}
		if got := fact.key(s); !bytes.Equal(got, key) {
			t.Fatalf("%x is read as %+v, which is written as %x", key, fact, got)
		}
	})
}

func unhex(s string) []byte {
	var b []byte
	for i := 0; i+1 < len(s); i += 2 {
		hi, lo := strings.IndexByte("0123456789abcdef", s[i]), strings.IndexByte("0123456789abcdef", s[i+1])
		b = append(b, byte(hi<<4|lo))
	}
	return b
}
