package jsontext

import "slices"

// MaxDepth is how many levels of arrays and objects a message may have. A
// scalar has none, [] and {} have one.
const MaxDepth = 127

// AppendMessages appends the stored text of the messages of body to dst: of
// each, the text without insignificant whitespace, and LF. A top-level array
// is flattened by exactly one level, and its depth does not count; any other
// value is one message. It returns how many messages there were, which is zero
// for an empty array: whether that is an error depends on the operation.
//
// The error is a [*SyntaxError]; dst is then returned as it was, though its
// spare capacity may have been written to. dst and body must not overlap. The
// only memory used is dst, which is grown at most once, by len(body)+1.
func AppendMessages(dst, body []byte) (out []byte, n int, err error) {
	c := compactor{dst: slices.Grow(dst, len(body)+1), src: body}
	n, pos, reason := c.messages()
	if reason != 0 {
		return dst, 0, &SyntaxError{Pos: pos, Reason: reason}
	}
	return c.dst, n, nil
}

// compactor copies src to dst without its whitespace. Text is copied in runs
// as long as possible, so that a compact body costs one copy per message.
type compactor struct {
	dst, src []byte
	// kept is the start of the run that is accepted but not yet copied.
	kept int
	// closer holds the bracket that ends each open container of a message. It
	// is here rather than in message so that it is cleared once a body.
	closer [MaxDepth]byte
}

// messages consumes the whole body. A reason of zero is success; otherwise pos
// is where the fault is.
func (c *compactor) messages() (n, pos int, reason Reason) {
	i := c.skipSpace(0)
	if i == len(c.src) {
		return 0, i, Empty
	}
	if c.src[i] != '[' {
		if i, reason = c.message(i); reason != 0 {
			return 0, i, reason
		}
		n = 1
	} else {
		i = c.skipSpace(i + 1)
		if at(c.src, i) == ']' {
			i++
		} else {
			for more := true; more; n++ {
				if i, reason = c.message(i); reason != 0 {
					return 0, i, reason
				}
				i = c.skipSpace(i)
				switch at(c.src, i) {
				case ',':
					i = c.skipSpace(i + 1)
				case ']':
					i++
					more = false
				default:
					return 0, i, c.unexpected(i)
				}
			}
		}
	}
	if i = c.skipSpace(i); i < len(c.src) {
		return 0, i, TrailingData
	}
	return n, i, 0
}

// message copies the value that begins at i, and LF, and returns where it ends.
func (c *compactor) message(i int) (end int, reason Reason) {
	src := c.src
	c.kept = i
	depth := 0
	named := false // the next value is a member of an object
value:
	for {
		if named {
			if at(src, i) != '"' {
				return i, c.unexpected(i)
			}
			if i, reason = scanString(src, i+1); reason != 0 {
				return i, reason
			}
			i = c.dropSpace(i)
			if at(src, i) != ':' {
				return i, c.unexpected(i)
			}
			i = c.dropSpace(i + 1)
		}
		switch b := at(src, i); b {
		case '"':
			if i, reason = scanString(src, i+1); reason != 0 {
				return i, reason
			}
		case '{', '[':
			if depth == MaxDepth {
				return i, TooDeep
			}
			end := b + 2 // both closing brackets are two after the opening ones
			i = c.dropSpace(i + 1)
			if at(src, i) != end {
				c.closer[depth] = end
				depth++
				named = b == '{'
				continue value
			}
			i++
		case 't':
			i, reason = c.literal(i, "true")
		case 'f':
			i, reason = c.literal(i, "false")
		case 'n':
			i, reason = c.literal(i, "null")
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			i, reason = scanNumber(src, i)
		default:
			return i, c.unexpected(i)
		}
		if reason != 0 {
			return i, reason
		}
		for depth > 0 {
			i = c.dropSpace(i)
			switch at(src, i) {
			case ',':
				named = c.closer[depth-1] == '}'
				i = c.dropSpace(i + 1)
				continue value
			case c.closer[depth-1]:
				i++
				depth--
			default:
				return i, c.unexpected(i)
			}
		}
		c.dst = append(append(c.dst, src[c.kept:i]...), '\n')
		return i, 0
	}
}

// at returns the byte at i, or NUL, which no part of the grammar expects, at
// the end.
func at(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

func (c *compactor) unexpected(i int) Reason {
	if i >= len(c.src) {
		return Truncated
	}
	return UnexpectedByte
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// skipSpace returns the position after whitespace that lies between messages.
func (c *compactor) skipSpace(i int) int {
	for i < len(c.src) && isSpace(c.src[i]) {
		i++
	}
	return i
}

// dropSpace returns the position after whitespace that lies inside a message:
// what came before it is copied. It is small enough to be inlined as long as
// dropRun is not; that is worth a quarter of the throughput.
func (c *compactor) dropSpace(i int) int {
	if uint(i) < uint(len(c.src)) && c.src[i] > ' ' {
		return i
	}
	return c.dropRun(i)
}

//go:noinline
func (c *compactor) dropRun(i int) int {
	end := c.skipSpace(i)
	if end > i {
		c.dst = append(c.dst, c.src[c.kept:i]...)
		c.kept = end
	}
	return end
}

func (c *compactor) literal(i int, word string) (int, Reason) {
	if i+len(word) <= len(c.src) && string(c.src[i:i+len(word)]) == word {
		return i + len(word), 0
	}
	for at(c.src, i) == word[0] {
		i++
		word = word[1:]
	}
	return i, c.unexpected(i)
}
