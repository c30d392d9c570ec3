//go:build !race

package extensions

func buildFlags() []string { return nil }
