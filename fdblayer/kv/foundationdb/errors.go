//go:build foundationdb

package foundationdb

import (
	"errors"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"headwater/fdblayer/kv"
)

// Codes that only this package tells apart.
const (
	codeRangeLimitsInvalid = 2012
	codeNoCommitVersion    = 2021
)

// engineError turns an error of the binding into a [kv.Error] of the same code.
func engineError(err error) error {
	var e fdb.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	kerr := &kv.Error{Code: e.Code}
	if !kv.Retryable(kerr) && !kv.MaybeCommitted(kerr) {
		// A bug or a broken set-up: give the log the client's own words too.
		kerr.Detail = e.Error()
	}
	return kerr
}
