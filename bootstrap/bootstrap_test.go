package bootstrap

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// fixed is a source of randomness that is none.
func fixed() io.Reader { return strings.NewReader("0123456789abcdef") }

const fixedBoundary = "headwater-30313233343536373839616263646566"

func write(t interface {
	Helper()
	Fatalf(string, ...any)
}, snapshot *Snapshot, updates Updates) string {
	t.Helper()
	r, err := New(fixed(), snapshot, updates)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	var b bytes.Buffer
	n, err := r.WriteTo(&b)
	if err != nil {
		t.Fatalf("WriteTo: %v", err)
	}
	if int64(b.Len()) != n || r.Len() != n {
		t.Fatalf("%d bytes written, %d reported, %d announced", b.Len(), n, r.Len())
	}
	return b.String()
}

func snapshotOf(contentType, body string) *Snapshot {
	return &Snapshot{ContentType: contentType, Size: int64(len(body)), Body: strings.NewReader(body)}
}

func TestExactBytes(t *testing.T) {
	const open, end = "--" + fixedBoundary + "\r\n", "--" + fixedBoundary + "--\r\n"
	for _, tc := range []struct {
		name     string
		snapshot *Snapshot
		updates  Updates
		want     string
	}{
		{"nothing", nil, Updates{ContentType: "text/plain"},
			open + "Content-Type: application/octet-stream\r\n\r\n\r\n" + end},
		{"only a snapshot", snapshotOf("text/x", "snap\r\n"), Updates{ContentType: "application/json", Messages: true},
			open + "Content-Type: text/x\r\n\r\nsnap\r\n\r\n" + end},
		{"empty snapshot", snapshotOf("text/x", ""), Updates{ContentType: "application/json", Messages: true},
			open + "Content-Type: text/x\r\n\r\n\r\n" + end},
		{"messages", nil, Updates{ContentType: "application/json; charset=utf-8", Messages: true, Data: []byte("{\"a\":1}\n2\n")},
			open + "Content-Type: application/octet-stream\r\n\r\n\r\n" +
				open + "Content-Type: application/json; charset=utf-8\r\n\r\n{\"a\":1}\n\r\n" +
				open + "Content-Type: application/json; charset=utf-8\r\n\r\n2\n\r\n" + end},
		{"bytes", snapshotOf("application/cbor", "\x00"), Updates{ContentType: "text/plain", Data: []byte("a\nb\n")},
			open + "Content-Type: application/cbor\r\n\r\n\x00\r\n" +
				open + "Content-Type: text/plain\r\n\r\na\nb\n\r\n" + end},
	} {
		if got := write(t, tc.snapshot, tc.updates); got != tc.want {
			t.Errorf("%s:\n%q, want\n%q", tc.name, got, tc.want)
		}
	}
}

type part struct{ contentType, body string }

// parts takes a response apart with the standard library's parser, and fails
// if anything but Content-Type stands in a header.
func parts(t interface {
	Helper()
	Fatalf(string, ...any)
}, contentType string, body io.Reader) []part {
	t.Helper()
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/mixed" {
		t.Fatalf("content type %q: %v", contentType, err)
	}
	mr := multipart.NewReader(body, params["boundary"])
	var all []part
	for {
		p, err := mr.NextRawPart()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("part %d: %v", len(all), err)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			t.Fatalf("part %d: %v", len(all), err)
		}
		if len(p.Header) != 1 {
			t.Fatalf("part %d has the headers %v", len(all), p.Header)
		}
		all = append(all, part{p.Header.Get("Content-Type"), string(b)})
	}
}

// lookalike draws content made of what the framing is made of, the boundary's
// own text among it, but not the boundary: that is what randomness is for.
func lookalike() *rapid.Generator[string] {
	pieces := rapid.SampledFrom([]string{
		"\r\n", "\n", "\r", "--", "--" + boundaryPrefix, "--" + fixedBoundary[:len(fixedBoundary)-1], fixedBoundary[1:],
		"Content-Type: text/plain", "\r\n\r\n", "\x00", "\xff", "text", "{}", " ",
	})
	return rapid.Custom(func(t *rapid.T) string {
		s := strings.Join(rapid.SliceOfN(pieces, 0, 30).Draw(t, "pieces"), "")
		if rapid.Bool().Draw(t, "large") {
			s = strings.Repeat(s+"#", rapid.IntRange(1, 4000).Draw(t, "repeat"))
		}
		return strings.ReplaceAll(s, fixedBoundary, "")
	})
}

func TestPartsComeBack(t *testing.T) {
	types := rapid.SampledFrom([]string{"application/json", "text/plain; charset=\"utf-8\"", "application/octet-stream", "x/y;a=b:c"})
	rapid.Check(t, func(t *rapid.T) {
		want := []part{{"application/octet-stream", ""}}
		var snapshot *Snapshot
		if rapid.Bool().Draw(t, "has snapshot") {
			want[0] = part{types.Draw(t, "snapshot type"), lookalike().Draw(t, "snapshot")}
			snapshot = snapshotOf(want[0].contentType, want[0].body)
			switch rapid.IntRange(0, 2).Draw(t, "reader") {
			case 1:
				snapshot.Body = iotest.HalfReader(snapshot.Body)
			case 2:
				snapshot.Body = iotest.DataErrReader(snapshot.Body)
			}
		}
		u := Updates{ContentType: types.Draw(t, "type"), Messages: rapid.Bool().Draw(t, "messages")}
		if u.Messages {
			for _, m := range rapid.SliceOfN(lookalike(), 0, 5).Draw(t, "updates") {
				m = strings.ReplaceAll(m, "\n", "") + "\n"
				u.Data = append(u.Data, m...)
				want = append(want, part{u.ContentType, m})
			}
		} else if s := lookalike().Draw(t, "updates"); s != "" {
			u.Data = []byte(s)
			want = append(want, part{u.ContentType, s})
		}
		body := write(t, snapshot, u)
		got := parts(t, "multipart/mixed; boundary="+fixedBoundary, strings.NewReader(body))
		if len(got) != len(want) {
			t.Fatalf("%d parts, want %d", len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("part %d is %.200q, want %.200q", i, got[i], want[i])
			}
		}
	})
}

func TestFreshBoundary(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		r, err := New(rand.Reader, nil, Updates{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := r.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if got := parts(t, r.ContentType(), &b); len(got) != 1 {
			t.Fatalf("%d parts", len(got))
		}
		if seen[r.ContentType()] {
			t.Fatalf("%s again", r.ContentType())
		}
		seen[r.ContentType()] = true
	}
	if _, err := New(strings.NewReader("short"), nil, Updates{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("with too little randomness: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for _, bad := range []string{"text/plain\r\nX-Injected: 1", "a\nb", "a\rb", "\x00", "a\x7f"} {
		if _, err := New(fixed(), snapshotOf(bad, ""), Updates{}); !errors.Is(err, ErrContentType) {
			t.Errorf("snapshot of type %q: %v", bad, err)
		}
		if _, err := New(fixed(), nil, Updates{ContentType: bad}); !errors.Is(err, ErrContentType) {
			t.Errorf("updates of type %q: %v", bad, err)
		}
	}
	if _, err := New(fixed(), nil, Updates{Messages: true, Data: []byte("1\n2")}); !errors.Is(err, ErrMidMessage) {
		t.Errorf("half a message: %v", err)
	}
}

// A snapshot of another size than announced can't pass for a whole response:
// there is an error, and never a closing boundary.
func TestSnapshotOfAnotherSize(t *testing.T) {
	const real = 200_000
	for _, size := range []int64{0, 1, real - 1, real + 1, 1 << 40} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"plain":     func(r io.Reader) io.Reader { return r },
			"half":      iotest.HalfReader,
			"one byte":  iotest.OneByteReader,
			"early EOF": iotest.DataErrReader,
		} {
			body := wrap(strings.NewReader(strings.Repeat("x", real)))
			r, err := New(fixed(), &Snapshot{ContentType: "a/b", Size: size, Body: body}, Updates{Data: []byte("u")})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			n, err := r.WriteTo(&b)
			if err == nil || n != int64(b.Len()) || strings.Contains(b.String(), fixedBoundary+"--") {
				t.Errorf("%s, size %d: %d bytes, error %v", name, size, n, err)
			}
		}
	}
	r, err := New(fixed(), &Snapshot{ContentType: "a/b", Size: 1}, Updates{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteTo(io.Discard); err == nil {
		t.Error("a size without a body was written")
	}
}

type failing struct {
	after int
	short bool
}

var errFailing = errors.New("the connection is gone")

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after >= 0 {
		return len(b), nil
	}
	n := max(0, f.after+len(b))
	f.after = 0
	if f.short {
		return n, nil
	}
	return n, errFailing
}

func TestFailures(t *testing.T) {
	message := strings.Repeat("m", 1000) + "\n"
	response := func(body io.Reader) *Response {
		r, err := New(fixed(), &Snapshot{ContentType: "a/b", Size: 300_000, Body: body},
			Updates{ContentType: "application/json", Messages: true, Data: []byte(strings.Repeat(message, 300))})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	body := func() io.Reader { return strings.NewReader(strings.Repeat("s", 300_000)) }
	total := int(response(nil).Len())
	for after := 0; after < total; after += 20_011 {
		if n, err := response(body()).WriteTo(&failing{after: after}); !errors.Is(err, errFailing) || n != int64(after) {
			t.Errorf("writer failing after %d: %d bytes, %v", after, n, err)
		}
		if _, err := response(body()).WriteTo(&failing{after: after, short: true}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("writer short after %d: %v", after, err)
		}
	}
	if _, err := response(body()).WriteTo(&failing{after: total}); err != nil {
		t.Errorf("writer with just enough room: %v", err)
	}
	reader := io.MultiReader(strings.NewReader(strings.Repeat("s", 100_000)), iotest.ErrReader(errFailing))
	if _, err := response(reader).WriteTo(io.Discard); !errors.Is(err, errFailing) {
		t.Errorf("reader failing: %v", err)
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// discard is io.Discard without its ReadFrom.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func writeZeros(tb testing.TB, size int64) {
	r, err := New(fixed(), &Snapshot{ContentType: "a/b", Size: size, Body: io.LimitReader(zeros{}, size)}, Updates{})
	if err != nil {
		tb.Fatal(err)
	}
	if n, err := r.WriteTo(discard{}); err != nil || n != r.Len() {
		tb.Fatalf("%d bytes, want %d, error %v", n, r.Len(), err)
	}
}

// The number of allocations, hence the memory, is that of the smallest body.
func TestMemoryDoesNotGrow(t *testing.T) {
	small := testing.AllocsPerRun(5, func() { writeZeros(t, 1) })
	large := testing.AllocsPerRun(1, func() { writeZeros(t, 1<<30) })
	if large > small {
		t.Errorf("%v allocations for 1 GiB, %v for 1 byte", large, small)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, size := range []int64{64 << 10, 1 << 30} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				writeZeros(b, size)
			}
		})
	}
}

func BenchmarkMessages(b *testing.B) {
	data := bytes.Repeat([]byte(strings.Repeat("m", 999)+"\n"), 2000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := New(fixed(), nil, Updates{ContentType: "application/json", Messages: true, Data: data})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.WriteTo(discard{}); err != nil {
			b.Fatal(err)
		}
	}
}
