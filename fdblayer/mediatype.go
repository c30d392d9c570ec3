package fdblayer

import "strings"

// MediaType returns the type and subtype of a Content-Type value in lower
// case, without parameters. Streams compare content types by it.
func MediaType(contentType string) string {
	t, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(t))
}
