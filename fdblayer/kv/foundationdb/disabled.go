//go:build !foundationdb

package foundationdb

import (
	"errors"

	"headwater/fdblayer/kv"
)

// Open returns an error: this build has no FoundationDB client.
func Open(opts Options) (kv.Database, error) {
	if _, err := opts.withDefaults(); err != nil {
		return nil, err
	}
	return nil, errors.New("foundationdb: this build has no FoundationDB client; build with cgo and -tags foundationdb")
}
