package embedded_test

import (
	"testing"

	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/embedded"
	"headwater/fdblayer/kv/kvtest"
)

func TestContract(t *testing.T) {
	for name, opts := range map[string]func(t *testing.T) embedded.Options{
		"disk":   func(t *testing.T) embedded.Options { return embedded.Options{Dir: t.TempDir()} },
		"memory": func(*testing.T) embedded.Options { return embedded.Options{InMemory: true} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kvtest.Run(t, func(t *testing.T) kv.Database {
				db, err := embedded.Open(t.Context(), opts(t))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := db.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
				return db
			})
		})
	}
}
