package frontend

import (
	"errors"
	"net/http"
	"time"

	"headwater/fdblayer"
)

// Observer is told of every request that was served. It is called on the
// request's own goroutine, so it must not block, and concurrently. Package
// admin makes metrics of it; this package knows no metrics library.
type Observer interface {
	Observe(Observation)
}

// Observation is a request that was served. All strings but Code's are from
// small fixed sets, Code's from the error tables, so that each can be a label:
// nothing in it names a stream or a client.
type Observation struct {
	// Method is the request's, "OTHER" for one that no resource has.
	Method string
	// Route is the kind of path: "stream", "stream_long_poll", "stream_sse",
	// "snapshot", "retention", "bootstrap", "bucket", "subscription", "health",
	// "ready", "none".
	Route string
	// Surface is "base", "bucket" or, for paths of neither, "none".
	Surface string
	// Status is what was answered, 499 where the client was gone before.
	Status int
	// Code is that of the error the request ended with, "" for none. A live
	// read may end with one after its 200.
	Code string
	// Took is from the end of the request's header to the end of the response.
	Took time.Duration
	// BytesIn and BytesOut are those of the bodies, as far as they came.
	BytesIn, BytesOut int64
}

// Routes that are no kind of path by themselves.
const (
	routeLongPoll     = "stream_long_poll"
	routeEvents       = "stream_sse"
	routeSubscription = "subscription"
	routeNone         = "none"
)

var routes = [...]string{
	kindStream:    "stream",
	kindSnapshot:  "snapshot",
	kindRetention: "retention",
	kindBootstrap: "bootstrap",
	kindNone:      routeNone,
	kindBucket:    "bucket",
	kindHealth:    "health",
	kindReady:     "ready",
}

// codeCut is what observers see of a response that ended before its end.
const codeCut = "response_cut"

// tally is what a request tells the observer, gathered while it is served.
type tally struct {
	begun          time.Time
	route, surface string
	code           string
	in, out        int64
	// ended says that the handler returned; a panic is under way otherwise.
	ended bool
}

// locate notes what the request's path addresses.
func (x *exchange) locate(t target) {
	x.tally.route = routes[t.kind]
	switch {
	case t.kind == kindHealth || t.kind == kindReady:
	case t.bucketed:
		x.tally.surface = "bucket"
	default:
		x.tally.surface = "base"
	}
}

// locateControl does the same for a request about subscriptions.
func (x *exchange) locateControl(c control) {
	x.tally.route, x.tally.surface = routeSubscription, "base"
	if c.bucket != "" {
		x.tally.surface = "bucket"
	}
}

// failed notes how a request ended; e is what err was classified as. A client
// that does not take its response is no fault of ours.
func (x *exchange) failed(err error, e *fdblayer.Error) {
	x.tally.code = string(e.Code)
	if x.started() && errors.Is(err, errWrite) {
		x.tally.code = codeCut
	}
}

// report tells the observer of a request that was served.
func (x *exchange) report() {
	o := x.f.opts.Observer
	if o == nil {
		return
	}
	status := x.gin.Writer.Status()
	if !x.tally.ended && x.tally.code == "" {
		// The panic is answered, or cuts the connection, once we are gone.
		x.tally.code = string(fdblayer.CodeInternal)
		if !x.started() {
			status = http.StatusInternalServerError
		}
	}
	o.Observe(Observation{
		Method: methodLabel(x.r.Method), Route: x.tally.route, Surface: x.tally.surface,
		Status: status, Code: x.tally.code, Took: time.Since(x.tally.begun),
		BytesIn: x.tally.in, BytesOut: x.tally.out,
	})
}

// methodLabel keeps what clients make up out of labels.
func methodLabel(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "OTHER"
}

// Stats are what a Frontend holds at a moment.
type Stats struct {
	// Open are the requests whose response has not ended, waiting live reads
	// among them; Running those that count against Options.MaxRequests.
	Open, Running int64
	// BodyBytes and ResponseBytes are what of Options.MaxBodiesInFlight and
	// MaxResponsesInFlight is taken.
	BodyBytes, ResponseBytes int64
	// Draining says that readiness fails.
	Draining bool
}

// Stats returns what the Frontend holds now.
func (f *Frontend) Stats() Stats {
	return Stats{
		Open: f.open.Load(), Running: f.running.Load(),
		BodyBytes: f.bodyBytes.Load(), ResponseBytes: f.responseBytes.Load(),
		Draining: f.draining.Load(),
	}
}
