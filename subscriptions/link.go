package subscriptions

import (
	"errors"

	"headwater/keys"
)

// link is the cursor of a subscription in one stream.
type link struct {
	explicit, glob bool
	// incarnation is the stream the cursor belongs to; zero for a path at which
	// there is none yet.
	incarnation keys.Incarnation
	// acked is the last processed offset, inclusive.
	acked keys.Offset
}

const (
	linkFormat   = 1
	linkExplicit = 1
	linkGlob     = 2
	linkLen      = 2 + keys.IncarnationLen + keys.OffsetLen
)

var errCorrupt = errors.New("subscriptions: corrupt value")

func (l link) encode() []byte {
	b := append(make([]byte, 0, linkLen), linkFormat, 0)
	if l.explicit {
		b[1] |= linkExplicit
	}
	if l.glob {
		b[1] |= linkGlob
	}
	return append(append(b, l.incarnation[:]...), l.acked[:]...)
}

func decodeLink(b []byte) (link, error) {
	if len(b) != linkLen || b[0] != linkFormat || b[1] == 0 || b[1]&^(linkExplicit|linkGlob) != 0 {
		return link{}, errCorrupt
	}
	return link{
		explicit:    b[1]&linkExplicit != 0,
		glob:        b[1]&linkGlob != 0,
		incarnation: keys.Incarnation(b[2:]),
		acked:       keys.Offset(b[2+keys.IncarnationLen:]),
	}, nil
}

// LinkType says how a stream came to be linked. Where both hold, explicit is
// what clients are told (PROTOCOL.md 6.1).
type LinkType string

// The types of links.
const (
	Glob     LinkType = "glob"
	Explicit LinkType = "explicit"
)

func (l link) kind() LinkType {
	if l.explicit {
		return Explicit
	}
	return Glob
}
