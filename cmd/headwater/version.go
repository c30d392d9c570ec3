package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker in releases: -X main.version=1.2.3.
var version = "dev"

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(out output) error {
	_, err := fmt.Fprintf(out.stdout, "headwater %s%s %s %s/%s\n", version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// revision is the commit in brackets, to be printed after the version.
func revision() string {
	if rev := vcsRevision(); rev != "" {
		return " (" + rev + ")"
	}
	return ""
}

// vcsRevision is the commit the binary was built from, "" where that is not
// known, with a plus where the tree had changes.
func vcsRevision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var rev, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+"
			}
		}
	}
	if rev == "" {
		return ""
	}
	return rev + dirty
}
