package keys

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fact is what one key says. Only the fields that its kind has are set, so that
// two facts are equal exactly when they must have the same key.
type fact struct {
	kind           Kind
	bucket, stream string // or a name of another sort, in stream
	inc, child     Incarnation
	offset         Offset
	id             [16]byte
	number         uint32
	due            int64 // ms
}

// stamp does what the database does with the parameter of a versionstamped key.
func stamp(param []byte, vs Versionstamp) []byte {
	n := len(param) - 4
	at := binary.LittleEndian.Uint32(param[n:])
	key := bytes.Clone(param[:n])
	copy(key[at:], vs[:])
	return key
}

func (f fact) key(s Space) []byte {
	due := time.UnixMilli(f.due)
	switch f.kind {
	case KindSystem:
		return s.System(f.stream)
	case KindMeta:
		return s.Meta(f.bucket, f.stream)
	case KindFence:
		return s.Fence(f.bucket)
	case KindExpiry:
		return s.Expiry(due, f.bucket, f.stream)
	case KindLog:
		return s.Log(f.inc, f.offset)
	case KindStaged:
		return stamp(s.StagedStamped(f.inc, f.offset.Order(), f.offset.Count()), f.offset.Versionstamp())
	case KindTail:
		return s.Tail(f.inc)
	case KindProducer:
		return s.Producer(f.inc, f.stream)
	case KindSeq:
		return s.Seq(f.inc)
	case KindTouch:
		return s.Touch(f.inc)
	case KindSnapshot:
		return s.Snapshot(f.inc)
	case KindBlob:
		return s.Blob(f.inc, f.id, f.number)
	case KindFork:
		return s.Fork(f.inc, f.child)
	case KindBatch:
		return s.Batch(f.id, uint16(f.number))
	case KindGC:
		return s.GC(due, f.id)
	case KindLease:
		return s.Lease(f.stream)
	case KindSubscription:
		return s.Subscription(f.bucket, f.stream)
	case KindSubState:
		return s.SubState(f.id)
	case KindSubLink:
		return s.SubLink(f.id, f.stream)
	case KindSubPending:
		return s.SubPending(f.id, f.stream)
	case KindFollower:
		return s.Follower(f.bucket, f.stream, f.id)
	case KindSubGlob:
		return s.SubGlob(f.bucket, f.id)
	case KindSubGlobs:
		return s.SubGlobs(f.bucket)
	case KindSubMark:
		return s.SubMark(f.bucket, f.stream)
	case KindSubWake:
		return s.SubWake(byte(f.number))
	case KindSubDue:
		return s.SubDue(due, SubTask(f.number), f.id)
	case KindSubFill:
		return s.SubFill(f.id)
	case KindSubSecret:
		return s.SubSecret(byte(f.number), due, [8]byte(f.id[:8]))
	}
	panic(fmt.Sprintf("kind %#x", f.kind))
}

// The values are few and alike, so that neighbours and prefixes of one another
// are drawn all the time: that is where ranges go wrong.
var (
	kinds = rapid.SampledFrom([]Kind{
		KindSystem, KindMeta, KindFence, KindExpiry, KindLog, KindTail, KindProducer, KindSeq, KindTouch, KindSnapshot, KindBlob,
		KindFork, KindStaged, KindBatch, KindGC, KindLease, KindSubscription, KindSubState, KindSubLink, KindSubPending,
		KindFollower, KindSubGlob, KindSubGlobs, KindSubMark, KindSubWake, KindSubDue, KindSubFill, KindSubSecret,
	})
	buckets  = rapid.SampledFrom([]string{"", "ab", "abc", "ab-", "a", "b", "\x01", "\xff"})
	streams  = rapid.SampledFrom([]string{"", "s", "s/t", "st", "\x01", "s\x01", "\xff", "\xff\xff", "abc"})
	words    = rapid.SampledFrom([]byte{0, 0, 1, 0x7f, 0x80, 0xfe, 0xff, 0xff})
	prefixes = rapid.SampledFrom([]string{"h", "hw", "hw/", "a\xff", "a\xff\xff", "\x00", "\xfe", "\xfe\xff\xff", "a\x00"})
	times    = rapid.SampledFrom([]int64{0, 1, 255, 256, 1_764_500_000_000, 1<<63 - 2, 1<<63 - 1})
)

// sixteen draws sixteen bytes, most of them equal.
func sixteen() *rapid.Generator[[16]byte] {
	return rapid.Custom(func(t *rapid.T) (b [16]byte) {
		fill := words.Draw(t, "fill")
		for i := range b {
			b[i] = fill
		}
		b[rapid.IntRange(0, 15).Draw(t, "at")] = words.Draw(t, "byte")
		return b
	})
}

func offsets() *rapid.Generator[Offset] {
	return rapid.Map(sixteen(), func(b [16]byte) Offset { return b })
}

func facts() *rapid.Generator[fact] { return factsOf(kinds) }

func factsOf(kinds *rapid.Generator[Kind]) *rapid.Generator[fact] {
	return rapid.Custom(func(t *rapid.T) fact {
		f := fact{kind: kinds.Draw(t, "kind")}
		bucket := func() { f.bucket = buckets.Draw(t, "bucket") }
		stream := func() { f.stream = streams.Draw(t, "stream") }
		id := func() { f.id = sixteen().Draw(t, "id") }
		inc := func() { f.inc = Incarnation(sixteen().Draw(t, "incarnation")) }
		due := func() { f.due = times.Draw(t, "due") }
		switch f.kind {
		case KindSystem, KindLease:
			stream()
		case KindMeta, KindSubscription, KindSubMark:
			bucket()
			stream()
		case KindFence, KindSubGlobs:
			bucket()
		case KindExpiry:
			due()
			bucket()
			stream()
		case KindLog, KindStaged:
			inc()
			f.offset = offsets().Draw(t, "offset")
		case KindTail, KindSeq, KindTouch, KindSnapshot:
			inc()
		case KindProducer:
			inc()
			stream()
		case KindBlob:
			inc()
			id()
			f.number = rapid.Uint32().Draw(t, "index")
		case KindFork:
			inc()
			f.child = Incarnation(sixteen().Draw(t, "child"))
		case KindBatch:
			id()
			f.number = uint32(rapid.Uint16().Draw(t, "lane"))
		case KindGC:
			due()
			id()
		case KindSubState, KindSubFill:
			id()
		case KindSubLink, KindSubPending:
			id()
			stream()
		case KindFollower:
			bucket()
			stream()
			id()
		case KindSubGlob:
			bucket()
			id()
		case KindSubWake:
			f.number = uint32(rapid.Byte().Draw(t, "shard"))
		case KindSubDue:
			due()
			f.number = uint32(rapid.Byte().Draw(t, "task"))
			id()
		case KindSubSecret:
			f.number = uint32(rapid.Byte().Draw(t, "purpose"))
			due()
			f.id = sixteen().Draw(t, "id")
			clear(f.id[8:])
		default:
			t.Fatalf("kind %#x is not drawn", f.kind)
		}
		return f
	})
}

// span is a range and what must lie in it.
type span struct {
	name  string
	Range Range
	holds func(fact) bool
}

// spans draws every range there is; where a fact is given, so that it fits that
// fact in all but at most one respect.
func spans(t *rapid.T, s Space, near fact) []span {
	other := facts().Draw(t, "other")
	pick := func(name string, a, b [16]byte) [16]byte {
		if rapid.IntRange(0, 3).Draw(t, name) > 0 {
			return a
		}
		return b
	}
	inc := Incarnation(pick("inc", near.inc, sixteen().Draw(t, "other inc")))
	id := pick("id", near.id, sixteen().Draw(t, "other id"))
	offset := Offset(pick("offset", near.offset, offsets().Draw(t, "other offset")))
	bucket, stream := near.bucket, near.stream
	if rapid.Bool().Draw(t, "other name") {
		bucket, stream = buckets.Draw(t, "other bucket"), streams.Draw(t, "other stream")
	}
	due := near.due
	if rapid.Bool().Draw(t, "other time") {
		due = other.due
	}
	now := time.UnixMilli(due)
	small := byte(near.number)
	if rapid.Bool().Draw(t, "other number") {
		small = byte(other.number)
	}

	of := func(k Kind, holds func(fact) bool) func(fact) bool {
		return func(f fact) bool { return f.kind == k && (holds == nil || holds(f)) }
	}
	ofInc := func(k Kind) func(fact) bool { return of(k, func(f fact) bool { return f.inc == inc }) }
	ofID := func(k Kind) func(fact) bool { return of(k, func(f fact) bool { return f.id == id }) }
	ofBucket := func(k Kind) func(fact) bool { return of(k, func(f fact) bool { return f.bucket == bucket }) }
	return []span{
		{"All", s.All(), func(fact) bool { return true }},
		{"MetaRange", s.MetaRange(bucket), ofBucket(KindMeta)},
		{"ExpiryUntil", s.ExpiryUntil(now), of(KindExpiry, func(f fact) bool { return f.due <= due })},
		{"LogRange", s.LogRange(inc), ofInc(KindLog)},
		{"LogAfter", s.LogAfter(inc, offset), of(KindLog, func(f fact) bool { return f.inc == inc && offset.Less(f.offset) })},
		{"LogUntil", s.LogUntil(inc, offset), of(KindLog, func(f fact) bool { return f.inc == inc && !offset.Less(f.offset) })},
		{"StagedRange", s.StagedRange(inc), ofInc(KindStaged)},
		{"StagedUntil", s.StagedUntil(inc, offset), of(KindStaged, func(f fact) bool { return f.inc == inc && !offset.Less(f.offset) })},
		{"ProducerRange", s.ProducerRange(inc), ofInc(KindProducer)},
		{"BlobRange", s.BlobRange(inc, id), of(KindBlob, func(f fact) bool { return f.inc == inc && f.id == id })},
		{"BlobsRange", s.BlobsRange(inc), ofInc(KindBlob)},
		{"ForkRange", s.ForkRange(inc), ofInc(KindFork)},
		{"BatchRange", s.BatchRange(), of(KindBatch, nil)},
		{"FrontendBatches", s.FrontendBatches(id), ofID(KindBatch)},
		{"GCUntil", s.GCUntil(now), of(KindGC, func(f fact) bool { return f.due <= due })},
		{"SubscriptionRange", s.SubscriptionRange(bucket), ofBucket(KindSubscription)},
		{"SubscriptionsRange", s.SubscriptionsRange(), of(KindSubscription, nil)},
		{"SubLinkRange", s.SubLinkRange(id), ofID(KindSubLink)},
		{"SubPendingRange", s.SubPendingRange(id), ofID(KindSubPending)},
		{"FollowerRange", s.FollowerRange(bucket, stream), of(KindFollower, func(f fact) bool { return f.bucket == bucket && f.stream == stream })},
		{"SubGlobRange", s.SubGlobRange(bucket), ofBucket(KindSubGlob)},
		{"SubMarkRange", s.SubMarkRange(small), of(KindSubMark, func(f fact) bool { return Shard(f.bucket, f.stream) == small })},
		{"SubDueRange", s.SubDueRange(), of(KindSubDue, nil)},
		{"SubSecretRange", s.SubSecretRange(small), of(KindSubSecret, func(f fact) bool { return byte(f.number) == small })},
	}
}

func (r Range) contains(key []byte) bool {
	return bytes.Compare(r.Begin, key) <= 0 && bytes.Compare(key, r.End) < 0
}

// Every range holds exactly the keys it should, of whatever kind, bucket,
// stream and incarnation, and whatever the prefix.
func TestRangesHoldExactlyTheirs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustSpace(t, prefixes.Draw(t, "prefix"))
		fs := rapid.SliceOfN(facts(), 10, 40).Draw(t, "facts")
		for _, r := range spans(t, s, fs[0]) {
			for _, f := range fs {
				key := f.key(s)
				if got, want := r.Range.contains(key), r.holds(f); got != want {
					t.Fatalf("%s [%x, %x): holds %x (%+v): %v, want %v", r.name, r.Range.Begin, r.Range.End, key, f, got, want)
				}
			}
		}
	})
}

// Different facts have different keys, and no key is a prefix of one of another
// kind.
func TestKeysAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustSpace(t, prefixes.Draw(t, "prefix"))
		gen := facts()
		if rapid.Bool().Draw(t, "same kind") {
			gen = factsOf(rapid.Just(kinds.Draw(t, "kind of all")))
		}
		fs := rapid.SliceOfN(gen, 2, 20).Draw(t, "facts")
		for i, a := range fs {
			for _, b := range fs[:i] {
				ka, kb := a.key(s), b.key(s)
				if bytes.Equal(ka, kb) != (a == b) {
					t.Fatalf("%+v and %+v have the keys %x and %x", a, b, ka, kb)
				}
				if a.kind != b.kind && bytes.HasPrefix(ka, kb) {
					t.Fatalf("%+v has %x, which begins with %x of %+v", a, ka, kb, b)
				}
			}
		}
	})
}

// Deployments whose prefixes are no prefixes of each other share no key.
func TestDeploymentsAreApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := prefixes.Draw(t, "p"), prefixes.Draw(t, "q")
		if bytes.HasPrefix([]byte(p), []byte(q)) || bytes.HasPrefix([]byte(q), []byte(p)) {
			t.SkipNow()
		}
		a, b := mustSpace(t, p), mustSpace(t, q)
		key := facts().Draw(t, "fact").key(a)
		if !a.All().contains(key) || b.All().contains(key) {
			t.Fatalf("%x lies in %q: %v, in %q: %v", key, p, a.All().contains(key), q, b.All().contains(key))
		}
	})
}

// The order of log keys is the order of offsets, which is that of the
// versionstamp, the order and the count as numbers, and of the tokens as text.
func TestLogOrderIsOffsetOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustSpace(t, prefixes.Draw(t, "prefix"))
		inc := Incarnation(sixteen().Draw(t, "incarnation"))
		os := rapid.SliceOfN(offsets(), 2, 8).Draw(t, "offsets")
		sort.Slice(os, func(i, j int) bool {
			a, b := os[i], os[j]
			va, vb := a.Versionstamp(), b.Versionstamp()
			if c := bytes.Compare(va[:], vb[:]); c != 0 {
				return c < 0
			}
			if a.Order() != b.Order() {
				return a.Order() < b.Order()
			}
			return a.Count() < b.Count()
		})
		for i := 1; i < len(os); i++ {
			a, b := os[i-1], os[i]
			keys := bytes.Compare(s.Log(inc, a), s.Log(inc, b))
			tokens := bytes.Compare([]byte(a.String()), []byte(b.String()))
			if keys > 0 || keys != a.Compare(b) || keys != tokens || a.Less(b) != (keys < 0) || b.Less(a) {
				t.Fatalf("%v and %v: keys %d, offsets %d, tokens %d", a, b, keys, a.Compare(b), tokens)
			}
		}
	})
}

// LogUntil and LogAfter cut the log in two at any position, and the first key
// after it is the record that holds the next byte.
func TestLogIsSplitAtAnOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustSpace(t, prefixes.Draw(t, "prefix"))
		inc := Incarnation(sixteen().Draw(t, "incarnation"))
		at := offsets().Draw(t, "at")
		all, until, after := s.LogRange(inc), s.LogUntil(inc, at), s.LogAfter(inc, at)
		if !bytes.Equal(all.Begin, until.Begin) || !bytes.Equal(until.End, after.Begin) || !bytes.Equal(after.End, all.End) {
			t.Fatalf("[%x, %x) is cut into [%x, %x) and [%x, %x)", all.Begin, all.End, until.Begin, until.End, after.Begin, after.End)
		}
		if end := at.Count(); end > 0 {
			inside := at.WithCount(rapid.Uint32Range(0, end-1).Draw(t, "inside"))
			if !s.LogAfter(inc, inside).contains(s.Log(inc, at)) || !inside.SameRecord(at) {
				t.Fatalf("the record that ends at %v is not after %v", at, inside)
			}
		}
	})
}

func TestStampedLogKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustSpace(t, prefixes.Draw(t, "prefix"))
		inc, o := Incarnation(sixteen().Draw(t, "incarnation")), offsets().Draw(t, "offset")
		got := stamp(s.LogStamped(inc, o.Order(), o.Count()), o.Versionstamp())
		if want := s.Log(inc, o); !bytes.Equal(got, want) {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}

// What a key was made of can be read back from it.
func TestKeysParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mustSpace(t, prefixes.Draw(t, "prefix"))
		for _, f := range rapid.SliceOfN(facts(), 5, 20).Draw(t, "facts") {
			got, parsed := parse(t, s, f.key(s))
			if parsed && got != f {
				t.Fatalf("%+v is read back as %+v", f, got)
			}
			wantParsed := map[Kind]bool{
				KindMeta: true, KindExpiry: true, KindLog: true, KindSubscription: true, KindSubLink: true, KindSubPending: true,
				KindFollower: true, KindSubGlob: true, KindSubMark: true, KindSubDue: true,
			}[f.kind]
			if parsed != wantParsed {
				t.Fatalf("%+v: parsed %v, want %v", f, parsed, wantParsed)
			}
		}
	})
}

// parse reads key with whichever parser accepts it; two must not.
func parse(t interface {
	Helper()
	Fatalf(string, ...any)
}, s Space, key []byte) (f fact, ok bool) {
	t.Helper()
	found := func(k Kind, err error, got fact) {
		if err != nil {
			return
		}
		if ok {
			t.Fatalf("%x is of the kinds %#x and %#x", key, f.kind, k)
		}
		ok = true
		f = got
		f.kind = k
	}
	{
		b, n, err := s.ParseMeta(key)
		found(KindMeta, err, fact{bucket: b, stream: n})
	}
	{
		due, b, n, err := s.ParseExpiry(key)
		found(KindExpiry, err, fact{due: due.UnixMilli(), bucket: b, stream: n})
	}
	{
		inc, o, err := s.ParseLog(key)
		found(KindLog, err, fact{inc: inc, offset: o})
	}
	{
		b, n, err := s.ParseSubscription(key)
		found(KindSubscription, err, fact{bucket: b, stream: n})
	}
	{
		id, n, err := s.ParseSubLink(key)
		found(KindSubLink, err, fact{id: id, stream: n})
	}
	{
		id, n, err := s.ParseSubPending(key)
		found(KindSubPending, err, fact{id: id, stream: n})
	}
	{
		b, n, id, err := s.ParseFollower(key)
		found(KindFollower, err, fact{bucket: b, stream: n, id: id})
	}
	{
		b, id, err := s.ParseSubGlob(key)
		found(KindSubGlob, err, fact{bucket: b, id: id})
	}
	{
		b, n, err := s.ParseSubMark(key)
		found(KindSubMark, err, fact{bucket: b, stream: n})
	}
	{
		due, task, id, err := s.ParseSubDue(key)
		found(KindSubDue, err, fact{due: due.UnixMilli(), number: uint32(task), id: id})
	}
	return f, ok
}
