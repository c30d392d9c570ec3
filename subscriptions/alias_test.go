package subscriptions

import (
	"context"

	"headwater/fdblayer/kv"
)

// Short names for the parameters of transaction functions.
type (
	ctxType     = context.Context
	txType      = kv.Tx
	attemptType = kv.Attempt
)
