package extensions

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// purgeBars purges a bucket that is being written to. How a purge is asked for
// is the server's own affair; this knows Headwater's admin plane.
func purgeBars(e *env) {
	if len(e.admins) == 0 {
		e.Skip("set HEADWATER_ADMIN_URLS")
	}
	bucket := "gone-" + e.name()
	path := func(i int) string { return fmt.Sprintf("/%s/s%d", bucket, i) }
	for i := range 5 {
		e.do("PUT", path(i), []byte("x"), "Content-Type", typeText).want(201)
	}
	kept := "/" + bucket + "x/stream"
	e.do("PUT", kept, []byte("kept"), "Content-Type", typeText).want(201)

	// Creates go on until the bucket is barred.
	var others sync.WaitGroup
	var stop atomic.Bool
	end := func() {
		stop.Store(true)
		others.Wait()
	}
	defer end()
	for w := range 4 {
		others.Go(func() {
			for i := w; !stop.Load(); i += 4 {
				r, err := e.try("PUT", path(100+i), []byte("x"), "Content-Type", typeText)
				switch {
				case err != nil:
					e.Error(err)
					return
				case r.status == 404:
					return
				case r.status != 201:
					e.Errorf("%v, want 201 or 404", r)
					return
				}
			}
		})
	}
	tail := e.do("HEAD", path(0), nil).want(200).header.Get(hNext)
	others.Go(func() {
		r, err := e.try("GET", path(0)+"?live=long-poll&timeout_ms=20000&offset="+tail, nil)
		if err != nil || r.status != 404 {
			e.Errorf("a long-poll on a purged stream: %v, %v", r, err)
		}
	})
	admin := &env{e.T, &service{bases: e.admins[:1], client: e.client}, e.surface}
	purge := func() string {
		r := admin.do("DELETE", "/buckets/"+bucket, nil).want(200)
		lines := strings.Split(strings.TrimSpace(string(r.body)), "\n")
		return lines[len(lines)-1]
	}
	if last := purge(); !strings.Contains(last, `"done":true`) {
		e.Fatalf("the purge ended with %s", last)
	}
	end()
	for range e.bases { // of each server in turn
		for i := range 120 {
			e.do("HEAD", path(i), nil).want(404)
		}
		e.do("PUT", path(0), []byte("x"), "Content-Type", typeText).want(404)
		e.do("PUT", "/"+bucket, nil).want(201) // which changes nothing
		e.do("PUT", path(1), []byte("x"), "Content-Type", typeText).want(404)
	}
	if last := purge(); !strings.Contains(last, `"removed":0,"done":true`) {
		e.Errorf("another purge found something: %s", last)
	}
	e.do("GET", kept+"?offset=-1", nil).want(200).wantBody("kept")
}
