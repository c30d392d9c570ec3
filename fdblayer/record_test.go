package fdblayer

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"headwater/keys"
)

// The records of a batch hold its bodies in order, no record is longer than
// allowed, and the position add returned is the end of the body it was given.
func TestPackerKeepsEveryByteAndNamesItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		json := rapid.Bool().Draw(t, "json")
		p := packer{json: json}
		type end struct {
			order uint16
			count uint32
			total int
		}
		var ends []end
		var all []byte
		for i := range rapid.IntRange(1, 12).Draw(t, "bodies") {
			n := rapid.SampledFrom([]int{1, 7, 1000, maxRecord - 1, maxRecord, maxRecord + 1, 3*maxRecord + 5}).Draw(t, "size")
			body := bytes.Repeat([]byte{byte('a' + i)}, n)
			if json {
				for j := 99; j < n; j += 100 + i {
					body[j] = '\n'
				}
				body[n-1] = '\n'
			}
			order, count := p.add(body)
			all = append(all, body...)
			ends = append(ends, end{order, count, len(all)})
		}
		recs := p.done()
		var got []byte
		starts := make([]int, len(recs))
		for i, r := range recs {
			if r.length == 0 || r.length > maxRecord {
				t.Fatalf("record %d is %d bytes long", i, r.length)
			}
			rec, err := decodeRecord(keys.MakeOffset(keys.Versionstamp{}, uint16(i), r.length), r.value)
			if err != nil {
				t.Fatal(err)
			}
			starts[i] = len(got)
			if json {
				mid := len(got) > 0 && got[len(got)-1] != '\n'
				if rec.midMessage != mid {
					t.Fatalf("record %d: midMessage is %v, want %v", i, rec.midMessage, mid)
				}
			}
			got = append(got, rec.inline...)
		}
		if !bytes.Equal(got, all) {
			t.Fatal("the records do not hold the bodies")
		}
		for _, e := range ends {
			if at := starts[e.order] + int(e.count); at != e.total {
				t.Fatalf("a body that ends at %d was said to end at %d", e.total, at)
			}
		}
	})
}

func TestDecodeRecordRefusesWhatWasNeverWritten(t *testing.T) {
	end := keys.MakeOffset(keys.Versionstamp{1}, 0, 3)
	for name, v := range map[string][]byte{
		"empty":            {},
		"short":            {recordInline, 'a', 'b'},
		"long":             {recordInline, 'a', 'b', 'c', 'd'},
		"blob cut":         {recordBlob, 1, 2, 3},
		"blob other size":  append(append([]byte{recordBlob}, make([]byte, 16)...), 0, 0, 0, 4),
		"blob with a tail": append(append([]byte{recordBlob}, make([]byte, 16)...), 0, 0, 0, 3, 9),
	} {
		if _, err := decodeRecord(end, v); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// collectPieces cuts a stream into pieces of at most max and checks that they
// join to the whole and that each offset names the place it claims.
func TestCollectorCutsWhereItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		type rec struct {
			end   keys.Offset
			bytes []byte
			at    int
		}
		var recs []rec
		for i := range rapid.IntRange(1, 8).Draw(t, "records") {
			body := []byte(rapid.StringMatching(`[a-zé☃\n]{1,40}`).Draw(t, "body"))
			recs = append(recs, rec{keys.MakeOffset(keys.Versionstamp{9: byte(i + 1)}, 0, uint32(len(body))), body, len(all)})
			all = append(all, body...)
		}
		all[len(all)-1] = '\n'
		recs[len(recs)-1].bytes[len(recs[len(recs)-1].bytes)-1] = '\n'
		index := func(o keys.Offset) int {
			if o.IsStart() {
				return 0
			}
			for _, r := range recs {
				if r.end.SameRecord(o) {
					return r.at + int(o.Count())
				}
			}
			t.Fatalf("offset %v names no record", o)
			return 0
		}
		mode := rapid.SampledFrom([]string{"bytes", "whole", "runes"}).Draw(t, "mode")
		limit := rapid.IntRange(4, 30).Draw(t, "max")
		var pos keys.Offset
		for index(pos) < len(all) {
			c := collector{max: limit, whole: mode == "whole", start: pos, next: pos}
		records:
			for _, r := range recs {
				if !pos.Less(r.end) {
					continue
				}
				v := visit{record: record{end: r.end, inline: r.bytes}, take: r.end.Count()}
				if r.end.SameRecord(pos) {
					v.skip = pos.Count()
				}
				for v.skip < v.take {
					b := r.bytes[v.skip:min(int(v.take), int(v.skip)+c.want())]
					if !c.add(v, b) {
						break records
					}
					v.skip += uint32(len(b))
				}
			}
			if mode == "runes" {
				c.trimRune()
			}
			from, to := index(pos), index(c.next)
			if to <= from || !bytes.Equal(c.data, all[from:to]) {
				t.Fatalf("piece %q from %d to %d of %q", c.data, from, to, all)
			}
			switch {
			case mode == "whole" && c.data[len(c.data)-1] != '\n':
				t.Fatalf("piece %q is cut inside a message", c.data)
			case mode == "whole" && len(c.data) > limit && bytes.IndexByte(c.data, '\n') != len(c.data)-1:
				t.Fatalf("piece %q is longer than %d for more than one message", c.data, limit)
			case mode != "whole" && len(c.data) > limit:
				t.Fatalf("piece of %d bytes, limit %d", len(c.data), limit)
			case mode == "runes" && !wholeRunes(c.data):
				t.Fatalf("piece %q is cut inside a character", c.data)
			}
			pos = c.next
		}
	})
}
