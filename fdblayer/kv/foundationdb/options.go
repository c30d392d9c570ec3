package foundationdb

import (
	"fmt"
	"time"
)

// Defaults of [Options].
const (
	DefaultMaxWatches    = 100_000
	DefaultCommitTimeout = 15 * time.Second
)

// limitMaxWatches is the most the C client accepts.
const limitMaxWatches = 1_000_000

// Options says which cluster to open, and how. The zero value is usable.
type Options struct {
	// ClusterFile is the path of the cluster file. Empty lets libfdb_c choose:
	// FDB_CLUSTER_FILE, ./fdb.cluster, then the platform's default path.
	ClusterFile string
	// MachineID and DatacenterID, where set, let the client prefer replicas
	// near it. Without a data center id a client of a multi-region cluster
	// sends some of its reads to the remote region.
	MachineID, DatacenterID string
	// MaxWatches bounds the watches of this process on the cluster that have
	// not fired; 0 means DefaultMaxWatches. The C client refuses more than
	// 1,000,000. Beyond the bound a watch ends with 1032.
	MaxWatches int
	// CommitTimeout bounds the wait for a commit's outcome; 0 means
	// DefaultCommitTimeout.
	CommitTimeout time.Duration
}

// withDefaults returns o with its zero fields filled in, or what is wrong
// with it.
func (o Options) withDefaults() (Options, error) {
	if o.MaxWatches == 0 {
		o.MaxWatches = DefaultMaxWatches
	}
	if o.MaxWatches < 0 || o.MaxWatches > limitMaxWatches {
		return o, fmt.Errorf("foundationdb: MaxWatches is %d, not between 1 and %d", o.MaxWatches, limitMaxWatches)
	}
	if o.CommitTimeout == 0 {
		o.CommitTimeout = DefaultCommitTimeout
	}
	if o.CommitTimeout < 0 {
		return o, fmt.Errorf("foundationdb: CommitTimeout is negative: %v", o.CommitTimeout)
	}
	return o, nil
}
