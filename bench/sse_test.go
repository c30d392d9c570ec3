package bench

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestEventReader(t *testing.T) {
	long := strings.Repeat("x", 3*connBuffer)
	in := ": hello\n\nevent: data\ndata: a\ndata:b\ndata:  c\n\nevent:control\r\ndata: {}\r\n\r\n\n\nid: 1\nretry: 2\ndata\n\nevent: data\ndata: " + long + "\n\nevent: data\ndata: cut off\n"
	var got []string
	r := newEventReader(strings.NewReader(in))
	for {
		name, data, err := r.next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		got = append(got, fmt.Sprintf("%s=%s", name, data))
	}
	want := []string{"data=a\nb\n c", "control={}", "=", "data=" + long}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %.100q, want %.100q", got, want)
	}
	if _, _, err := newEventReader(strings.NewReader("what: x\n\n")).next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestNextOffset(t *testing.T) {
	for in, want := range map[string]string{
		`{"streamNextOffset":"12_3","upToDate":true}`:     "12_3",
		`{"streamNextOffset":"12_3"}`:                     "12_3",
		`{"streamNextOffset":"12_3","streamClosed":true}`: "",
		`{"streamNextOffset":"1\u0032"}`:                  "",
		`{"upToDate":true,"streamNextOffset":"1"}`:        "",
		`{"streamNextOffset":"1`:                          "",
	} {
		if got, ok := nextOffset([]byte(in)); ok != (want != "") || string(got) != want {
			t.Errorf("%s: got %q, %v", in, got, ok)
		}
	}
}
