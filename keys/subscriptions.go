package keys

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"time"
)

// The kinds of keys of subscriptions. The values are part of the format.
const (
	KindSubscription Kind = 0x40
	KindSubState     Kind = 0x41
	KindSubLink      Kind = 0x42
	KindSubPending   Kind = 0x43
	KindFollower     Kind = 0x44
	KindSubGlob      Kind = 0x45
	KindSubGlobs     Kind = 0x46
	KindSubMark      Kind = 0x47
	KindSubWake      Kind = 0x48
	KindSubDue       Kind = 0x49
	KindSubFill      Kind = 0x4a
	KindSubSecret    Kind = 0x4b
)

// SubscriptionID names one life of a subscription, as an [Incarnation] does of
// a stream: what hangs under it can't be reached by a later subscription of the
// same name. Random.
type SubscriptionID [16]byte

// Shards is how many parts the marks of changed streams are spread over, so
// that no one wake key is written by every append. Part of the format.
const Shards = 16

// Shard is the part that the marks of a stream are in.
func Shard(bucket, stream string) byte {
	h := fnv.New32a()
	h.Write(append(append([]byte(bucket), 0), stream...))
	return byte(h.Sum32() % Shards)
}

func (s Space) nameKey(k Kind, bucket, name string, extra int) []byte {
	b := append(s.key(k, len(bucket)+1+len(name)+extra), bucket...)
	return append(append(b, 0), name...)
}

func (s Space) subKey(k Kind, id SubscriptionID, rest string) []byte {
	return append(append(s.key(k, len(id)+len(rest)), id[:]...), rest...)
}

// Subscription is the key of the configuration of a subscription.
func (s Space) Subscription(bucket, name string) []byte {
	return s.nameKey(KindSubscription, bucket, name, 0)
}

// SubscriptionRange is the subscriptions of a bucket, in order of their names.
func (s Space) SubscriptionRange(bucket string) Range {
	return prefixRange(s.nameKey(KindSubscription, bucket, "", 0))
}

// SubscriptionsRange is the subscriptions of every bucket.
func (s Space) SubscriptionsRange() Range { return s.kindRange(KindSubscription) }

// ParseSubscription is the inverse of [Space.Subscription].
func (s Space) ParseSubscription(key []byte) (bucket, name string, err error) {
	b, err := s.rest(KindSubscription, key)
	if err != nil {
		return "", "", err
	}
	return splitName(b)
}

// SubState is the key of the delivery state of a subscription.
func (s Space) SubState(id SubscriptionID) []byte { return s.subKey(KindSubState, id, "") }

// SubLink is the key of the cursor a subscription has in a stream of its bucket.
func (s Space) SubLink(id SubscriptionID, stream string) []byte {
	return s.subKey(KindSubLink, id, stream)
}

// SubLinkRange is the cursors of a subscription, in order of the streams' names.
func (s Space) SubLinkRange(id SubscriptionID) Range {
	return prefixRange(s.subKey(KindSubLink, id, ""))
}

// ParseSubLink returns the stream that a cursor's key names.
func (s Space) ParseSubLink(key []byte) (SubscriptionID, string, error) {
	return s.parseSub(KindSubLink, key)
}

// SubPending is the entry that says a subscription has pending work in a stream.
func (s Space) SubPending(id SubscriptionID, stream string) []byte {
	return s.subKey(KindSubPending, id, stream)
}

// SubPendingRange is the streams in which a subscription has pending work.
func (s Space) SubPendingRange(id SubscriptionID) Range {
	return prefixRange(s.subKey(KindSubPending, id, ""))
}

// ParseSubPending returns the stream that an entry names.
func (s Space) ParseSubPending(key []byte) (SubscriptionID, string, error) {
	return s.parseSub(KindSubPending, key)
}

func (s Space) parseSub(k Kind, key []byte) (SubscriptionID, string, error) {
	b, err := s.rest(k, key)
	if err != nil || len(b) < len(SubscriptionID{}) {
		return SubscriptionID{}, "", ErrBadKey
	}
	return SubscriptionID(b), string(b[len(SubscriptionID{}):]), nil
}

// Follower is the index entry that says a subscription has a link to a stream.
func (s Space) Follower(bucket, stream string, id SubscriptionID) []byte {
	b := append(s.nameKey(KindFollower, bucket, stream, 1+len(id)), 0)
	return append(b, id[:]...)
}

// FollowerRange is the subscriptions that have a link to a stream.
func (s Space) FollowerRange(bucket, stream string) Range {
	return prefixRange(append(s.nameKey(KindFollower, bucket, stream, 1), 0))
}

// ParseFollower is the inverse of [Space.Follower].
func (s Space) ParseFollower(key []byte) (bucket, stream string, id SubscriptionID, err error) {
	b, err := s.rest(KindFollower, key)
	if err != nil || len(b) < 2+len(id) {
		return "", "", id, ErrBadKey
	}
	n := len(b) - len(id)
	if b[n-1] != 0 {
		return "", "", id, ErrBadKey
	}
	bucket, stream, err = splitName(b[:n-1])
	return bucket, stream, SubscriptionID(b[n:]), err
}

// SubGlob is the key of the pattern of a subscription.
func (s Space) SubGlob(bucket string, id SubscriptionID) []byte {
	return append(s.nameKey(KindSubGlob, bucket, "", len(id)), id[:]...)
}

// SubGlobRange is the patterns of every subscription of a bucket.
func (s Space) SubGlobRange(bucket string) Range {
	return prefixRange(s.nameKey(KindSubGlob, bucket, "", 0))
}

// ParseSubGlob returns the subscription that a pattern's key names.
func (s Space) ParseSubGlob(key []byte) (bucket string, id SubscriptionID, err error) {
	b, err := s.rest(KindSubGlob, key)
	if err != nil {
		return "", id, err
	}
	i := bytes.IndexByte(b, 0)
	if i < 0 || len(b) != i+1+len(id) {
		return "", id, ErrBadKey
	}
	return string(b[:i]), SubscriptionID(b[i+1:]), nil
}

// SubGlobs is the key that changes with every change of a bucket's patterns.
func (s Space) SubGlobs(bucket string) []byte {
	return append(s.key(KindSubGlobs, len(bucket)), bucket...)
}

// SubMark is the key by which a change of a followed stream is noted.
func (s Space) SubMark(bucket, stream string) []byte {
	b := append(s.key(KindSubMark, 2+len(bucket)+len(stream)), Shard(bucket, stream))
	return append(append(append(b, bucket...), 0), stream...)
}

// SubMarkRange is the noted changes of one shard.
func (s Space) SubMarkRange(shard byte) Range {
	return prefixRange(append(s.key(KindSubMark, 1), shard))
}

// ParseSubMark is the inverse of [Space.SubMark].
func (s Space) ParseSubMark(key []byte) (bucket, stream string, err error) {
	b, err := s.rest(KindSubMark, key)
	if err != nil || len(b) < 2 {
		return "", "", ErrBadKey
	}
	return splitName(b[1:])
}

// SubWake is the wake key of a shard: it changes whenever a mark is made in it.
func (s Space) SubWake(shard byte) []byte { return append(s.key(KindSubWake, 1), shard) }

// SubTask is what is due for a subscription. The values are part of the format.
type SubTask byte

// The tasks of the schedule.
const (
	// SubTaskDeliver looks whether the subscription's wake, lease or retry has
	// come to its time.
	SubTaskDeliver SubTask = 1
	// SubTaskFill links streams that existed before the subscription.
	SubTaskFill SubTask = 2
	// SubTaskDrop removes what a deleted subscription left.
	SubTaskDrop SubTask = 3
)

// SubDue is the schedule's entry for a task of a subscription.
func (s Space) SubDue(due time.Time, task SubTask, id SubscriptionID) []byte {
	b := binary.BigEndian.AppendUint64(s.key(KindSubDue, 9+len(id)), millis(due))
	return append(append(b, byte(task)), id[:]...)
}

// SubDueRange is the whole schedule, earliest first.
func (s Space) SubDueRange() Range { return s.kindRange(KindSubDue) }

// ParseSubDue is the inverse of [Space.SubDue].
func (s Space) ParseSubDue(key []byte) (due time.Time, task SubTask, id SubscriptionID, err error) {
	b, err := s.rest(KindSubDue, key)
	if err != nil || len(b) != 9+len(id) {
		return time.Time{}, 0, id, ErrBadKey
	}
	due, err = fromMillis(b)
	return due, SubTask(b[8]), SubscriptionID(b[9:]), err
}

// SubFill is the key that says how far the linking of existing streams has come.
func (s Space) SubFill(id SubscriptionID) []byte { return s.subKey(KindSubFill, id, "") }

// SubSecret is the key of a signing or token key made at a time.
func (s Space) SubSecret(purpose byte, created time.Time, id [8]byte) []byte {
	b := binary.BigEndian.AppendUint64(append(s.key(KindSubSecret, 17), purpose), millis(created))
	return append(b, id[:]...)
}

// SubSecretRange is the keys of a purpose, oldest first.
func (s Space) SubSecretRange(purpose byte) Range {
	return prefixRange(append(s.key(KindSubSecret, 1), purpose))
}

// ParseSubSecret returns when a signing or token key was made.
func (s Space) ParseSubSecret(key []byte) (created time.Time, err error) {
	b, err := s.rest(KindSubSecret, key)
	if err != nil || len(b) != 17 {
		return time.Time{}, ErrBadKey
	}
	return fromMillis(b[1:9])
}
