package fdblayer

import (
	"testing"

	"headwater/ci/fdbcluster"
	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/embedded"
	"headwater/fdblayer/kv/foundationdb"
)

// engines are what the tests of this package run on.
var engines = map[string]func(t *testing.T) kv.Database{
	"embedded": func(t *testing.T) kv.Database {
		t.Helper()
		db, err := embedded.Open(t.Context(), embedded.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db
	},
	"foundationdb": func(t *testing.T) kv.Database {
		t.Helper()
		db, err := foundationdb.Open(foundationdb.Options{ClusterFile: fdbcluster.Open(t)})
		if err != nil {
			t.Skip(err)
		}
		return db
	},
}
