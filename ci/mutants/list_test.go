package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Every bug still has a place in the sources. Running them all takes minutes;
// this takes none, and is what a change of the sources breaks first.
func TestBugsHaveAPlace(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	r := runner{}
	defer r.cleanup()
	seen := map[string]bool{}
	for _, m := range mutants {
		if seen[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		seen[m.name] = true
		if len(m.caughtBy) == 0 {
			t.Errorf("%s: nothing is to catch it", m.name)
		}
		overlay, err := r.overlay(m)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if _, err := os.Stat(overlay); err != nil {
			t.Error(err)
		}
	}
}
