// Command drive runs the suites that need running servers, and everything that
// continuous integration runs.
//
//	drive conformance  the public conformance suite
//	drive client       the official TypeScript client, end to end
//	drive extensions   our black-box suite of the extension spec
//	drive check        all checks, ending with one line of counts
//
// The first three start their servers on free loopback ports and stop them by
// process id, unless --urls names servers that run already. Run it from the
// repository's root.
package main
