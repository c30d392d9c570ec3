package frontend

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// Cursors count intervals since an epoch, so that the readers of one interval
// share a cache key (PROTOCOL.md 10.1).
const (
	cursorInterval = 20 * time.Second
	// maxCursor bounds what a client may make us count on from. No clock that
	// works comes near it.
	maxCursor = 1 << 53
	// cursorJitter is the most that a cursor is moved ahead of the client's.
	cursorJitter = 3600 * time.Second
)

var cursorEpoch = time.Date(2024, time.October, 9, 0, 0, 0, 0, time.UTC)

// parseCursor reads a client's cursor; 0 for one this server did not make.
func parseCursor(s string) uint64 {
	n, _ := decimal(s, maxCursor)
	return n
}

// nextCursor returns the cursor of a live response: that of the current
// interval, but always beyond the client's. random draws from [0, n).
func nextCursor(now time.Time, client uint64, random func(n uint64) uint64) uint64 {
	var current uint64
	if since := now.Sub(cursorEpoch); since > 0 {
		current = uint64(since / cursorInterval)
	}
	if client < current || client > maxCursor {
		return current
	}
	return client + 1 + random(uint64(cursorJitter/cursorInterval))
}

func (f *Frontend) nextCursor(client uint64) uint64 {
	return nextCursor(f.opts.Now(), client, rand.Uint64N)
}

func cursorText(c uint64) string { return strconv.FormatUint(c, 10) }
