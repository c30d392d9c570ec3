// Package sse writes the frames of a live=sse read (PROTOCOL.md section 5.8,
// extensions 9.4 and 9.5) into caller's buffers. Pure functions, safe for
// concurrent use; a frame is the same bytes for every reader, so the hub makes
// it once. The only import from this module is jsontext, for the array form.
//
// # Invariants
//
//   - Nothing in a payload can end an event, begin another or add a field:
//     every line end that any parser may know (CRLF, CR, LF) is turned into a
//     new "data:" line, and payload never stands at the beginning of a line.
//   - A conforming parser gets the payload back byte for byte, but for two
//     things that SSE cannot carry: CR and CRLF arrive as LF, and bytes that
//     are not UTF-8 arrive as U+FFFD. Neither occurs in stored JSON text.
//   - Frames are whole: each ends with the blank line that dispatches it. Only
//     whole frames may be written one after another.
//
// # Form
//
// "event: " is written with the space and "data:" without, as the public
// conformance suite reads them. Parsers remove one space after the colon, so a
// line that itself begins with a space gets one more.
package sse
