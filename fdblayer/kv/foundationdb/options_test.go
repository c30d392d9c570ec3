package foundationdb

import (
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	o, err := Options{}.withDefaults()
	if err != nil || o.MaxWatches != DefaultMaxWatches || o.CommitTimeout != DefaultCommitTimeout {
		t.Errorf("zero options: %+v, %v", o, err)
	}
	set := Options{MaxWatches: limitMaxWatches, CommitTimeout: time.Second, MachineID: "m", DatacenterID: "d"}
	if o, err := set.withDefaults(); err != nil || o != set {
		t.Errorf("set options became %+v, %v", o, err)
	}
	for _, bad := range []Options{{MaxWatches: -1}, {MaxWatches: limitMaxWatches + 1}, {CommitTimeout: -1}} {
		if _, err := bad.withDefaults(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
		if _, err := Open(bad); err == nil {
			t.Errorf("Open accepts %+v", bad)
		}
	}
}
