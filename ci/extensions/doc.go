// Package extensions is a black-box suite for the extension spec
// (shared/spec/extensions.md): one test per normative sentence, named by the
// section that has it, over HTTP only and against any server.
//
//	go test ./ci/extensions                        builds a server, embedded engine
//	go run ./ci/drive extensions --store fdb --frontends 2 --surface bucket
//	HEADWATER_URLS=http://127.0.0.1:4437 go test ./ci/extensions
//
// The environment chooses: HEADWATER_URLS, base URLs that take requests in
// turn; HEADWATER_SURFACE, base, bucket or both (the default); HEADWATER_ROUNDS,
// rounds of each race case; HEADWATER_LARGE_MIB, the
// size of the large snapshot; HEADWATER_ADMIN_URLS, the servers' admin planes. Every test is named TestExt/{section}_{what}/{surface};
// a table of sections and counts ends the run.
//
// Nothing here knows how offsets or tokens are made: they come from the server.
package extensions
