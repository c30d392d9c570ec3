package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

func wantOpenError(t *testing.T, opts Options, want error) {
	t.Helper()
	opts.Log = quiet
	db, err := Open(t.Context(), opts)
	if err == nil {
		db.Close()
	}
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	if opts.Dir != "" && !strings.Contains(err.Error(), opts.Dir) {
		t.Errorf("%q does not name the directory", err)
	}
}

func TestOpenRefusesALockedDirectory(t *testing.T) {
	dir := t.TempDir()
	db := openTest(t, Options{Dir: dir})
	wantOpenError(t, Options{Dir: dir}, ErrLocked)
	put(t, db, "a", "1") // the holder is not harmed
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if got := value(t, openTest(t, Options{Dir: dir}), "a"); got != "1" {
		t.Errorf("got %q", got)
	}
}

func TestOpenRefusesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, Options{Dir: path}, ErrForeign)
	if b, _ := os.ReadFile(path); string(b) != "x" {
		t.Error("the file was changed")
	}
}

func TestOpenRefusesAnotherStore(t *testing.T) {
	dir := t.TempDir()
	writePebble(t, dir, "somebody's", "data")
	wantOpenError(t, Options{Dir: dir}, ErrForeign)
}

func TestOpenRefusesANewerFormat(t *testing.T) {
	dir := t.TempDir()
	if err := openTest(t, Options{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	writePebble(t, dir, string(formatKey), string(binary.BigEndian.AppendUint32(nil, formatVersion+1)))
	wantOpenError(t, Options{Dir: dir}, ErrNewerFormat)
}

func TestOpenRefusesANewerPebble(t *testing.T) {
	dir := t.TempDir()
	if err := openTest(t, Options{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	markers, err := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
	if err != nil || len(markers) == 0 {
		t.Fatalf("no format marker: %v", err)
	}
	for _, m := range markers {
		if err := os.Remove(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "marker.format-version.000099.999"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, Options{Dir: dir}, ErrNewerFormat)
}

func TestOpenNeedsADirectory(t *testing.T) {
	if _, err := Open(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "Dir") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Options{Dir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A first start that ended between its writes left the format and no versions.
func TestOpenFinishesAFirstStart(t *testing.T) {
	dir := t.TempDir()
	writePebble(t, dir, string(formatKey), string(binary.BigEndian.AppendUint32(nil, formatVersion)))
	db := openTest(t, Options{Dir: dir})
	if done := put(t, db, "a", "1"); done.Version <= firstVersion {
		t.Errorf("committed at %d", done.Version)
	}
}

func writePebble(t *testing.T, dir, key, value string) {
	t.Helper()
	p, err := pebble.Open(dir, &pebble.Options{FS: vfs.Default, FormatMajorVersion: pebble.FormatWALSyncChunks, Logger: discard{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Set([]byte(key), []byte(value), pebble.Sync), p.Close()); err != nil {
		t.Fatal(err)
	}
}

type discard struct{}

func (discard) Infof(string, ...any)  {}
func (discard) Errorf(string, ...any) {}
func (discard) Fatalf(f string, _ ...any) {
	panic(f)
}
