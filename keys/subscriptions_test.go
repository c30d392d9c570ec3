package keys

import (
	"errors"
	"testing"
	"time"
)

func TestParseSubSecret(t *testing.T) {
	s, err := NewSpace([]byte("hw"))
	if err != nil {
		t.Fatal(err)
	}
	made := time.UnixMilli(1_764_500_000_123)
	key := s.SubSecret('s', made, [8]byte{1, 2})
	if got, err := s.ParseSubSecret(key); err != nil || !got.Equal(made) {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range [][]byte{key[:len(key)-1], append(key[:len(key):len(key)], 0), s.SubState(SubscriptionID{}), nil} {
		if _, err := s.ParseSubSecret(bad); !errors.Is(err, ErrBadKey) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The shard of a stream is part of the format: frontends of different versions
// must look for a mark where the other left it.
func TestShardsAreStable(t *testing.T) {
	for _, c := range []struct {
		bucket, stream string
		want           byte
	}{{"", "events/a", 10}, {"", "", 15}, {"bucket", "s", 2}} {
		if got := Shard(c.bucket, c.stream); got != c.want {
			t.Errorf("%q %q is in shard %d, was in %d", c.bucket, c.stream, got, c.want)
		}
	}
	count := [Shards]int{}
	for i := range 16_000 {
		count[Shard("", time.UnixMilli(int64(i)).String())]++
	}
	for shard, n := range count {
		if n < 700 || n > 1300 {
			t.Errorf("shard %d has %d of 16,000 streams", shard, n)
		}
	}
}
