// Command mirror keeps a copy of a small key-value state that others change
// through a Headwater stream. It shows what a client of the extensions does:
//
//   - start with one request to /bootstrap: the snapshot and what came after;
//   - follow the stream with long-polls from where that ended;
//   - name the incarnation it knows in every request, so that a stream deleted
//     and made anew at the same URL is noticed and not mixed up with the old;
//   - on 410 Gone, because retention has passed it by, bootstrap again;
//   - when a frontend dies, go on with the next one from the same offset.
//
// Try it against a running server:
//
//	go run ./examples/mirror --stream http://127.0.0.1:4437/demo/state
//
// and in another terminal, change the state:
//
//	curl -X PUT  -H 'Content-Type: application/json' http://127.0.0.1:4437/demo/state
//	curl -X POST -H 'Content-Type: application/json' -d '{"key":"a","value":1}' http://127.0.0.1:4437/demo/state
package main
