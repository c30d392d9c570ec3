package subscriptions

import (
	"slices"
	"strings"

	"headwater/keys"
)

// globs is the patterns of one bucket as a tree over path segments, so that
// finding those that match a path costs what the path is long and not what the
// patterns are many. "*" matches one segment and "**" any number of them, none
// included (PROTOCOL.md 6.2). It does not change once built.
type globs struct {
	version string
	root    globNode
	stamps  map[keys.SubscriptionID]keys.Versionstamp
	// except are the wake streams of subscriptions, which match none of their own.
	except map[keys.SubscriptionID]string
}

type globNode struct {
	literal map[string]*globNode
	one     *globNode
	any     *globNode
	// deep is set for a node reached by "**", which matches more of the same.
	deep bool
	subs []keys.SubscriptionID
}

func newGlobs(version string) *globs {
	return &globs{
		version: version, stamps: make(map[keys.SubscriptionID]keys.Versionstamp),
		except: make(map[keys.SubscriptionID]string),
	}
}

// globValue is what is stored of a pattern, after the versionstamp.
func globValue(c Config) string {
	if c.WakeStream == "" {
		return c.Pattern
	}
	return c.Pattern + "\x00" + c.WakeStream
}

// read adds a pattern as it is stored.
func (g *globs) read(id keys.SubscriptionID, value []byte) (*globs, error) {
	if len(value) < keys.VersionstampLen {
		return nil, errCorrupt
	}
	pattern, wakeStream, own := strings.Cut(string(value[keys.VersionstampLen:]), "\x00")
	g.add(id, pattern, keys.Versionstamp(value))
	if own {
		g.except[id] = wakeStream
	}
	return g, nil
}

func segmentsOf(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
}

func (g *globs) add(id keys.SubscriptionID, pattern string, stamp keys.Versionstamp) {
	n := &g.root
	for _, s := range segmentsOf(pattern) {
		n = n.child(s)
	}
	n.subs = append(n.subs, id)
	g.stamps[id] = stamp
}

func (n *globNode) child(segment string) *globNode {
	switch segment {
	case "*":
		if n.one == nil {
			n.one = &globNode{}
		}
		return n.one
	case "**":
		if n.deep {
			return n // "**/**" is "**"
		}
		if n.any == nil {
			n.any = &globNode{deep: true}
		}
		return n.any
	}
	if n.literal == nil {
		n.literal = make(map[string]*globNode)
	}
	c := n.literal[segment]
	if c == nil {
		c = &globNode{}
		n.literal[segment] = c
	}
	return c
}

// reached returns the nodes at which a path ends.
func (g *globs) reached(path string) []*globNode {
	at := enter(nil, &g.root)
	for _, s := range segmentsOf(path) {
		var next []*globNode
		for _, n := range at {
			if n.deep {
				next = enter(next, n)
			}
			next = enter(enter(next, n.one), n.literal[s])
		}
		at = next
	}
	return at
}

// enter adds a node, and the one that a "**" which matches nothing leads to.
func enter(nodes []*globNode, n *globNode) []*globNode {
	for ; n != nil && !slices.Contains(nodes, n); n = n.any {
		nodes = append(nodes, n)
	}
	return nodes
}

// matches reports whether any pattern matches a path.
func (g *globs) matches(path string) bool {
	for _, n := range g.reached(path) {
		for _, id := range n.subs {
			if !g.excepts(id, path) {
				return true
			}
		}
	}
	return false
}

func (g *globs) excepts(id keys.SubscriptionID, path string) bool {
	own, ok := g.except[id]
	return ok && own == path
}

// match returns the subscriptions whose pattern matches a path.
func (g *globs) match(path string) []keys.SubscriptionID {
	var ids []keys.SubscriptionID
	for _, n := range g.reached(path) {
		for _, id := range n.subs {
			if !g.excepts(id, path) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// globMatch reports whether one pattern matches a path.
func globMatch(pattern, path string) bool {
	g := newGlobs("")
	g.add(keys.SubscriptionID{}, pattern, keys.Versionstamp{})
	return g.matches(path)
}
