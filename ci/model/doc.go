// Package model compares Headwater with a plain in-memory model of the
// protocol: random requests to random frontends over one store, each answer
// checked against what the model says. A run is its seed: print it, pass it
// back, and the same requests are made again.
//
// The model knows nothing of records, lanes or versions. A stream is a byte
// slice; an offset is whatever token the server gave for a length of it.
package model
