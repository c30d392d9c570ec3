package extensions

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

func publishCases() []testCase {
	return []testCase{
		{"2.1", "next_offset_is_a_snapshot_offset", func(e *env) {
			for _, ct := range []string{typeJSON, typeText, typeBytes} {
				s := e.create(ct)
				s.publish(s.start, "at the start").want(204)
				s.publish(s.add("1"), "after one").want(204)
				s.publish(s.add("2"), "after two").want(204)
			}
		}},
		{"2.1", "any_committed_offset_of_other_types", func(e *env) {
			s := e.create(typeText)
			tail := s.add("abcdef")
			inside := s.get("offset=" + s.start + "&max_bytes=2").want(200).next()
			s.publish(inside, "ab").want(204)
			s.get("offset=" + inside).want(200).wantBody("cdef")
			s.retain(inside).want(204)
			s.publish(tail, "abcdef").want(204)
		}},
		{"2.1", "offset_of_another_stream_refused", func(e *env) {
			s := e.create(typeJSON)
			s.add(`"a"`)
			other := e.create(typeJSON)
			foreign := other.add(`"a"`)
			s.add(`"b"`)
			if r := s.publish(foreign, "x"); r.status/100 != 4 {
				e.Errorf("%v, want a refusal: the offset was never this stream's", r)
			}
			s.head().want(200).wantNo(hSnapshotOffset)
		}},
		{"2.2", "publish_204_with_digest_offset_and_incarnation", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add(`{"a":1}`)
			r := s.publish(tail, "body", "Content-Type", "text/csv").want(204)
			r.need(hSnapshotDigest)
			r.wantHeader(hIncarnation, s.incarnation)
		}},
		{"2.2", "content_type_is_stored", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			for _, ct := range []string{"application/vnd.loro+snapshot; v=2", "text/plain;charset=UTF-8"} {
				s.publish(tail, "x", "Content-Type", ct).want(204)
				s.snapshot(tail).want(200).wantHeader("Content-Type", ct)
				if b := s.bootstrap(); b.snapshot.contentType != ct {
					e.Errorf("bootstrap gives %q, want %q", b.snapshot.contentType, ct)
				}
				tail = s.add("2")
			}
		}},
		{"2.2", "content_type_defaults_to_octet_stream", func(e *env) {
			s := e.create(typeText)
			s.publish(s.start, "x").want(204)
			s.snapshot(s.start).want(200).wantHeader("Content-Type", typeBytes)
		}},
		{"2.2", "invalid_offset_400", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			for _, o := range []string{"x", "now", "1.5", "%20", "0x10", "-2", "zzzz", url.PathEscape("a/b"), "%00", strings.Repeat("0", 500), "+1"} {
				if r := s.publish(o, "x"); r.status != 400 {
					e.Errorf("%v, want 400", r)
				}
			}
			s.head().want(200).wantNo(hSnapshotOffset)
		}},
		{"2.2", "no_message_boundary_400", func(e *env) {
			s := e.create(typeJSON)
			first := s.add(`{"a":1}`)
			s.add(`[{"b":2},{"c":3}]`)
			for _, o := range []string{s.insideMessage(s.start), s.insideMessage(first)} {
				s.publish(o, "x").want(400)
			}
			s.head().want(200).wantNo(hSnapshotOffset)
		}},
		{"2.2", "boundary_inside_a_batch_204", func(e *env) {
			s := e.create(typeJSON)
			s.add(`["one","two"]`)
			after := s.get("offset="+s.start+"&max_bytes=6", "Accept", typeNDJSON).want(200).wantBody("\"one\"\n").next()
			s.publish(after, "x").want(204)
			s.head().want(200).wantHeader(hSnapshotOffset, after)
		}},
		{"2.2", "absent_stream_404", func(e *env) {
			other := e.create(typeText)
			e.do("PUT", e.path(e.name())+"/snapshot/"+other.start, []byte("x")).want(404)
			other.remove().want(204)
			other.publish(other.start, "x").want(404)
		}},
		{"2.2", "publish_beyond_tail_409", func(e *env) {
			for _, ct := range []string{typeJSON, typeText} {
				s := e.create(ct)
				s.add(`"a"`)
				s.publish(s.beyondTail(), "x").want(409)
				s.head().want(200).wantNo(hSnapshotOffset)
			}
		}},
		{"2.2", "publish_below_retained_410", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			two := s.add("2")
			s.publish(two, "x").want(204)
			s.retain(two).want(204)
			s.publish(one, "y").want(410)
			s.publish(s.start, "y").want(410)
			s.head().want(200).wantHeader(hSnapshotOffset, two)
		}},
		{"2.2", "older_than_the_latest_409", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			two := s.add("2")
			s.publish(two, "x").want(204)
			s.publish(one, "y").want(409)
			s.head().want(200).wantHeader(hSnapshotOffset, two)
		}},
		{"2.2", "too_large_413", func(e *env) {
			// One TiB is promised and not sent: a server with any limit below that
			// can say so at once, and one that waits for the body never passes.
			s := e.create(typeText)
			status, err := e.promiseBody(s.path+"/snapshot/"+s.start, 1<<40)
			if err != nil {
				e.Fatal(err)
			}
			if status != 413 {
				e.Errorf("status %d, want 413", status)
			}
			s.head().want(200).wantNo(hSnapshotOffset)
		}},
		{"2.2", "repeat_succeeds_with_the_same_digest", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			first := s.publish(tail, "body", "Content-Type", typeText).want(204).need(hSnapshotDigest)
			for range 3 {
				s.publish(tail, "body", "Content-Type", typeText).want(204).wantHeader(hSnapshotDigest, first)
			}
			s.add("2")
			s.publish(tail, "body", "Content-Type", typeText).want(204).wantHeader(hSnapshotDigest, first)
			s.retain(tail).want(204)
			s.publish(tail, "body", "Content-Type", typeText).want(204).wantHeader(hSnapshotDigest, first)
		}},
		{"2.2", "different_body_409", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			digest := s.publish(tail, "body").want(204).need(hSnapshotDigest)
			s.publish(tail, "Body").want(409)
			s.publish(tail, "").want(409)
			s.publish(tail, "body ").want(409)
			s.snapshot(tail).want(200).wantBody("body").wantHeader(hSnapshotDigest, digest)
		}},
		{"2.2", "different_content_type_409", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			s.publish(tail, "body", "Content-Type", typeText).want(204)
			s.publish(tail, "body", "Content-Type", typeJSON).want(409)
			s.publish(tail, "body").want(409)
			s.snapshot(tail).want(200).wantHeader("Content-Type", typeText)
		}},
		{"2.2", "digest_depends_on_body_and_type_only", func(e *env) {
			digests := map[string]string{}
			for _, c := range [][2]string{{typeText, "ab"}, {typeText, "ba"}, {typeJSON, "ab"}, {typeText, ""}, {"text/plaina", "b"}} {
				var seen string
				for range 2 {
					s := e.create(typeBytes)
					d := s.publish(s.add("x"), c[1], "Content-Type", c[0]).want(204).need(hSnapshotDigest)
					if seen != "" && d != seen {
						e.Errorf("%q has digests %s and %s", c, d, seen)
					}
					seen = d
				}
				if other, ok := digests[seen]; ok {
					e.Errorf("%q and %s have one digest", c, other)
				}
				digests[seen] = fmt.Sprintf("%q", c)
			}
		}},
		{"2.2", "empty_body", func(e *env) {
			s := e.create(typeJSON)
			s.publish(s.start, "").want(204)
			s.snapshot(s.start).want(200).wantBody("")
			b := s.bootstrap()
			b.wantHeader(hSnapshotOffset, s.start)
		}},
		{"2.2", "publish_does_not_move_retention", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			before := s.head().want(200).need(hRetained)
			tail := s.add("2")
			s.publish(tail, "x").want(204)
			s.head().want(200).wantHeader(hRetained, before)
			s.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody("1\n2\n")
			s.get("offset="+s.start, "Accept", typeNDJSON).want(200).wantBody("1\n2\n")
		}},
		{"2.2", "newer_snapshot_is_visible_at_once", func(e *env) {
			s := e.create(typeJSON)
			for i := range 5 {
				tail := s.add("1")
				body := strings.Repeat("x", i)
				digest := s.publish(tail, body).want(204).need(hSnapshotDigest)
				s.head().want(200).wantHeader(hSnapshotOffset, tail).wantHeader(hSnapshotDigest, digest)
				s.snapshot(tail).want(200).wantBody(body)
				if b := s.bootstrap(); string(b.snapshot.body) != body || b.header.Get(hSnapshotOffset) != tail {
					e.Errorf("bootstrap has %q at %s", b.snapshot.body, b.header.Get(hSnapshotOffset))
				}
			}
		}},
		{"2.2", "closed_stream_takes_snapshots", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			tail := s.post("2", hClosed, "true").want(204).next()
			s.publish(tail, "x").want(204).wantHeader(hIncarnation, s.incarnation)
			s.retain(tail).want(204)
			s.get("offset="+tail).want(200).wantHeader(hClosed, "true")
		}},
		{"2.2", "binary_body_of_several_megabytes", func(e *env) {
			s := e.create(typeBytes)
			body := pattern(5<<20+17, 3)
			s.publish(s.start, body).want(204)
			if got := s.snapshot(s.start).want(200); string(got.body) != body {
				e.Errorf("%d bytes came back, of %d, or others", len(got.body), len(body))
			}
			if b := s.bootstrap(); string(b.snapshot.body) != body {
				e.Errorf("bootstrap gives %d bytes, of %d, or others", len(b.snapshot.body), len(body))
			}
		}},
		{"2.2", "chunked_body", func(e *env) {
			s := e.create(typeBytes)
			body := pattern(300_000, 5)
			ctx, cancel := context.WithTimeout(e.Context(), patience)
			defer cancel()
			res, err := e.send(ctx, "PUT", s.path+"/snapshot/"+s.start, io.MultiReader(strings.NewReader(body[:7]), strings.NewReader(body[7:])))
			if err != nil {
				e.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != 204 {
				e.Fatalf("status %s", res.Status)
			}
			if got := s.snapshot(s.start).want(200); string(got.body) != body {
				e.Errorf("%d bytes came back, of %d, or others", len(got.body), len(body))
			}
		}},
		{"2.2", "publish_does_not_block_appends", func(e *env) {
			s := e.create(typeText)
			tail := s.add("a")
			ctx, cancel := context.WithTimeout(e.Context(), patience)
			defer cancel()
			body, w := io.Pipe()
			published := make(chan error, 1)
			go func() {
				res, err := e.send(ctx, "PUT", s.path+"/snapshot/"+tail, body)
				if err == nil {
					_ = res.Body.Close()
					if res.StatusCode != 204 {
						err = fmt.Errorf("publish: %s", res.Status)
					}
				}
				published <- err
			}()
			half := pattern(2<<20, 7)
			if _, err := io.WriteString(w, half); err != nil {
				e.Fatal(err)
			}
			for range 20 {
				s.add("b")
			}
			// Half a snapshot is no snapshot.
			s.head().want(200).wantNo(hSnapshotOffset)
			if _, err := io.WriteString(w, half); err != nil {
				e.Fatal(err)
			}
			_ = w.Close()
			if err := <-published; err != nil {
				e.Fatal(err)
			}
			if got := s.snapshot(tail).want(200).wantNo(hUpToDate); string(got.body) != half+half {
				e.Errorf("%d bytes came back, of %d, or others", len(got.body), 2*len(half))
			}
			s.get("offset=" + tail).want(200).wantBody(strings.Repeat("b", 20))
		}},
		{"2.2", "cut_upload_leaves_nothing", func(e *env) {
			s := e.create(typeText)
			tail := s.add("a")
			first := s.publish(s.start, "first").want(204).need(hSnapshotDigest)
			for _, cut := range []int{0, 1, 50_000, 1 << 20, 3 << 20} {
				if err := e.cutUpload(s.path+"/snapshot/"+tail, pattern(cut, 11), 4<<20); err != nil {
					e.Fatal(err)
				}
				s.head().want(200).wantHeader(hSnapshotOffset, s.start).wantHeader(hSnapshotDigest, first)
			}
			s.publish(tail, "second").want(204)
			s.snapshot(tail).want(200).wantBody("second")
		}},
		{"2.2", "methods", func(e *env) {
			s := e.create(typeText)
			s.publish(s.start, "x").want(204)
			for _, method := range []string{"POST", "DELETE", "PATCH"} {
				r := e.do(method, s.path+"/snapshot/"+s.start, []byte("y")).want(405)
				if allow := r.need("Allow"); !strings.Contains(allow, "GET") || !strings.Contains(allow, "PUT") {
					e.Errorf("%v: Allow %q", r, allow)
				}
			}
			s.snapshot(s.start).want(200).wantBody("x")
		}},
	}
}

// pattern is n bytes in which a lost, doubled or moved block shows, CR, LF and
// dashes among them.
func pattern(n, seed int) string {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
		if x>>20&0xff == 0 {
			b[i] = "\r\n--"[i%4]
		}
	}
	return string(b)
}

// dial opens a connection of its own to the next server.
func (e *env) dial() (net.Conn, string, error) {
	host := strings.TrimPrefix(e.base(), "http://")
	var d net.Dialer
	conn, err := d.DialContext(e.Context(), "tcp", host)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(patience))
	}
	return conn, host, err
}

// promiseBody announces a body of length bytes, sends none and returns the status.
func (e *env) promiseBody(target string, length int64) (int, error) {
	conn, host, err := e.dial()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", target, host, length); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// cutUpload announces a body of length bytes, sends the beginning of it and
// closes the connection.
func (e *env) cutUpload(target, beginning string, length int) error {
	conn, host, err := e.dial()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", target, host, length, beginning); err != nil {
		_ = conn.Close()
		return err
	}
	return conn.Close()
}
