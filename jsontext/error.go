package jsontext

import "strconv"

// Reason says what is wrong with a body.
type Reason uint8

// The reasons for which a body is refused.
const (
	// Empty is a body of nothing but whitespace.
	Empty Reason = iota + 1
	// Truncated is a body that ends inside a value.
	Truncated
	// UnexpectedByte is a byte that the grammar does not allow there.
	UnexpectedByte
	// TrailingData is anything but whitespace after the top-level value.
	TrailingData
	// InvalidNumber is a number that RFC 8259 does not know, such as 01 or 1.
	InvalidNumber
	// InvalidEscape is a backslash before something that is no escape.
	InvalidEscape
	// ControlCharacter is a byte below 0x20 inside a string.
	ControlCharacter
	// InvalidUTF8 is a string that is not UTF-8.
	InvalidUTF8
	// TooDeep is a message of more than [MaxDepth] levels.
	TooDeep
)

var reasonText = [...]string{
	Empty:            "the body is empty",
	Truncated:        "the body ends inside a value",
	UnexpectedByte:   "unexpected byte",
	TrailingData:     "data after the top-level value",
	InvalidNumber:    "malformed number",
	InvalidEscape:    "malformed escape",
	ControlCharacter: "unescaped control character in a string",
	InvalidUTF8:      "invalid UTF-8 in a string",
	TooDeep:          "message nested more than 127 levels deep",
}

// String describes the reason in a few words.
func (r Reason) String() string {
	if int(r) < len(reasonText) && reasonText[r] != "" {
		return reasonText[r]
	}
	return "jsontext.Reason(" + strconv.Itoa(int(r)) + ")"
}

// SyntaxError is a body that is no acceptable JSON text. It never quotes the
// body, so it can be logged and shown.
type SyntaxError struct {
	// Pos is how many bytes of the body were acceptable: the index of the
	// first byte at fault, or the length of a body that ended too early.
	Pos    int
	Reason Reason
}

// Error describes the fault and where it is.
func (e *SyntaxError) Error() string {
	return "invalid JSON at byte " + strconv.Itoa(e.Pos) + ": " + e.Reason.String()
}
