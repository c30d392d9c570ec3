//go:build race

package extensions

// buildFlags puts the server under the race detector where the tests are: it is
// the server that has something to find. It exits with a status of its own then,
// which fails the run.
func buildFlags() []string { return []string{"-race"} }
