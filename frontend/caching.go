package frontend

import (
	"strconv"
	"time"

	"headwater/fdblayer"
)

// cacheAge is how long a historical range may be used without asking
// (PROTOCOL.md 10.1), after which it may be used while asking.
const (
	cacheAge   = 60 * time.Second
	cacheStale = 300 * time.Second
)

// cacheControl returns the Cache-Control of a piece; the package comment says
// why. The URL of a long-poll holds a cursor besides the offset, so those who
// wait for the same bytes may share them although they reach the tail. What
// expires is not kept for longer than it lives.
func (f *Frontend) cacheControl(q *readQuery, p *fdblayer.Piece) string {
	scope := "public"
	if f.opts.PrivateCaching {
		scope = "private"
	}
	if p.UpToDate && q.live == catchUp || p.Start.IsStart() || q.leader {
		return scope + ", no-cache"
	}
	age, stale := cacheAge, cacheStale
	left := age + stale
	switch e := p.Stream.Expiry; {
	case e.HasTTL:
		left = time.Duration(min(e.TTL, uint64(left/time.Second))) * time.Second
	case !e.At.IsZero():
		left = max(0, e.At.Sub(f.opts.Now()))
	}
	age = min(age, left)
	stale = min(stale, left-age)
	v := scope + ", max-age=" + seconds(age)
	if stale > 0 {
		v += ", stale-while-revalidate=" + seconds(stale)
	}
	return v
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
