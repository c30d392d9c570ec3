package foundationdb

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// importers names the only folders, relative to the module's root, that may
// import a module or package. Files of every build tag count, and tests too.
var importers = map[string][]string{
	"github.com/apple/foundationdb/bindings/go": {"fdblayer/kv/foundationdb"},
	"github.com/testcontainers":                 {"ci/fdbcluster"},
	"headwater/ci/fdbcluster":                   {"ci", "*_test.go"},
}

// TestImports keeps the binding behind this package and the container library
// out of what is shipped. It reads the source of the whole module, since no
// single build would see the files of every tag.
func TestImports(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "node_modules" || name == "testdata" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		files++
		return check(t, root, path)
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("looked at %d files only: is %s the module's root?", files, root)
	}
}

// check reports the imports of one file that are not allowed.
func check(t *testing.T, root, path string) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		for guarded, allowed := range importers {
			if within(imported, guarded) && !allows(allowed, filepath.ToSlash(rel)) {
				t.Errorf("%s imports %s; only %v may", rel, imported, allowed)
			}
		}
	}
	return nil
}

func allows(allowed []string, file string) bool {
	for _, a := range allowed {
		if within(file, a) || strings.HasPrefix(a, "*") && strings.HasSuffix(file, a[1:]) {
			return true
		}
	}
	return false
}

func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}
