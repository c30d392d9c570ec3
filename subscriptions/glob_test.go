package subscriptions

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"headwater/keys"
)

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"events/*", "events/a", true},
		{"events/*", "events/a/b", false},
		{"events/*", "events", false},
		{"events/**", "events", true},
		{"events/**", "events/a/b/c", true},
		{"**", "a", true},
		{"**", "a/b", true},
		{"**/z", "z", true},
		{"**/z", "a/b/z", true},
		{"**/z", "a/z/b", false},
		{"a/**/z", "a/z", true},
		{"a/**/z", "a/b/c/z", true},
		{"a/**/b/**/c", "a/x/b/y/b/c", true},
		{"a/**/b/**/c", "a/x/c", false},
		{"**/**/x", "x", true},
		{"*", "a", true},
		{"*", "a/b", false},
		{"a*", "ab", false},
		{"a*", "a*", true},
		{"/a/", "a", true},
		{"a", "b", false},
	} {
		if got := globMatch(c.pattern, c.path); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.path, got)
		}
	}
}

// naive is the rule as PROTOCOL.md 6.2 says it.
func naive(pattern, path []string) bool {
	switch {
	case len(pattern) == 0:
		return len(path) == 0
	case pattern[0] == "**":
		for i := range len(path) + 1 {
			if naive(pattern[1:], path[i:]) {
				return true
			}
		}
		return false
	case len(path) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == path[0]) && naive(pattern[1:], path[1:])
}

// A tree of many patterns finds exactly those that match one by one.
func TestTreeIsTheSumOfItsPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.SampledFrom([]string{"a", "b", "c", "*", "**"})
		literal := rapid.SampledFrom([]string{"a", "b", "c"})
		patterns := rapid.SliceOfN(rapid.SliceOfN(segment, 1, 5), 1, 20).Draw(t, "patterns")
		path := rapid.SliceOfN(literal, 1, 7).Draw(t, "path")
		g := newGlobs("")
		var want []keys.SubscriptionID
		for i, p := range patterns {
			id := keys.SubscriptionID{byte(i)}
			g.add(id, strings.Join(p, "/"), keys.Versionstamp{})
			if naive(p, path) {
				want = append(want, id)
			}
		}
		got := g.match(strings.Join(path, "/"))
		slices.SortFunc(got, func(a, b keys.SubscriptionID) int { return int(a[0]) - int(b[0]) })
		if !slices.Equal(got, want) || g.matches(strings.Join(path, "/")) != (len(want) > 0) {
			t.Fatalf("%v match %v: got %v, want %v", patterns, path, got, want)
		}
	})
}

// BenchmarkMatch is what a creation pays for the patterns of its bucket.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		g := newGlobs("")
		for i := range n {
			g.add(keys.SubscriptionID{byte(i), byte(i >> 8)}, fmt.Sprintf("tenants/%d/**", i), keys.Versionstamp{})
		}
		b.Run(fmt.Sprintf("patterns=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g.matches("tenants/0/events/a")
			}
		})
	}
}
