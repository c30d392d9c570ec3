// Package jsontext makes the stored text of JSON messages out of request
// bodies, and the JSON array out of stored text ("JSON Message Text" in the
// extension spec). Pure functions, no I/O, safe for concurrent use; it imports
// nothing of this module.
//
// # Invariants
//
//   - A body is either accepted whole or refused whole.
//   - What is stored is the client's own text without insignificant
//     whitespace, and one LF. Member order, duplicate names, the spelling of
//     numbers and of strings are never touched: nothing is decoded, so nothing
//     can be re-encoded differently.
//   - Stored text holds no LF but the one that ends each message, and no other
//     control character, so the positions after an LF are exactly the message
//     boundaries, and no stored text can break out of a line-based framing.
//   - Stored text is valid UTF-8.
//   - Time is linear and extra memory constant in the size of the body,
//     however it nests: there is no recursion and no tree.
//
// encoding/json was not used because its Compact accepts invalid UTF-8, has
// one depth limit for the whole text rather than one per message, can't split
// an array, and takes an indirect call per byte.
package jsontext
