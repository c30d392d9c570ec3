package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// benchBodies are bodies of about 1 kB, one of 4 kB, as different clients send
// them.
func benchBodies() map[string][]byte {
	event := `{"type":"insert","key":"session:4f1c9a","headers":{"operation":"upsert","txid":"8812736"},` +
		`"value":{"id":18273,"title":"The quick brown fox","done":false,"tags":["alpha","beta","gamma"],"ratio":0.8125,` +
		`"note":"A somewhat longer text, as people write them into comment fields, with \"quotes\" and a line end.\n"}}`
	compact := strings.Repeat(event+",", 3)
	compact = "[" + compact[:len(compact)-1] + "]"
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(compact), "", "  "); err != nil {
		panic(err)
	}
	object := `{"id":"01J","role":"assistant","content":"` + strings.Repeat("Lorem ipsum dolor sit amet, consectetur adipiscing elit. ", 17) + `"}`
	large := `{"type":"snapshot","rows":[` + strings.TrimSuffix(strings.Repeat(event+",", 13), ",") + `]}`
	japanese := `{"text":"` + strings.Repeat("吾輩は猫である。名前はまだ無い。", 20) + `"}`
	numbers := "[" + strings.TrimSuffix(strings.Repeat("[1718000000123,52.520008,13.404954,-0.5e-3,42],", 22), ",") + "]"
	scalars := "[" + strings.TrimSuffix(strings.Repeat("1,22,333,true,null,", 50), ",") + "]"
	return map[string][]byte{
		"events":   []byte(compact),
		"large":    []byte(large),
		"python":   []byte(strings.NewReplacer(`":`, `": `, `,"`, `, "`).Replace(compact)),
		"indented": pretty.Bytes(),
		"text":     []byte(object),
		"japanese": []byte(japanese),
		"numbers":  []byte(numbers),
		"scalars":  []byte(scalars),
	}
}

var benchOrder = []string{"events", "large", "python", "indented", "text", "japanese", "numbers", "scalars"}

func BenchmarkAppendMessages(b *testing.B) {
	bodies := benchBodies()
	for _, name := range benchOrder {
		body := bodies[name]
		b.Run(fmt.Sprintf("%s/%dB", name, len(body)), func(b *testing.B) {
			dst := make([]byte, 0, len(body)+1)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := AppendMessages(dst, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncodingJSON is what the standard library needs for less: it splits
// no array, counts no depth per message and lets invalid UTF-8 pass.
func BenchmarkEncodingJSON(b *testing.B) {
	bodies := benchBodies()
	for _, name := range benchOrder {
		body := bodies[name]
		b.Run(fmt.Sprintf("%s/%dB", name, len(body)), func(b *testing.B) {
			var dst bytes.Buffer
			dst.Grow(2 * len(body))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				dst.Reset()
				if err := json.Compact(&dst, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendArray(b *testing.B) {
	stored, _, err := AppendMessages(nil, benchBodies()["events"])
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, len(stored)+2)
	b.SetBytes(int64(len(stored)))
	b.ReportAllocs()
	for b.Loop() {
		AppendArray(dst, stored)
	}
}
