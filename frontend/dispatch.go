package frontend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"headwater/fdblayer"
)

// exchange is one request and its response, while it is being served.
type exchange struct {
	f   *Frontend
	gin *gin.Context
	r   *http.Request
	// w is net/http's own writer. gin's hides errors of Flush.
	w      http.ResponseWriter
	rc     *http.ResponseController
	target target
	// control is set instead of target for a request about subscriptions.
	control control
	// bodyRead says nothing of the body is left on the connection.
	bodyRead bool
	// reserved is how much of Frontend.bodies this request holds.
	reserved int64
	// counted says the request has a place among the running ones.
	counted bool
	tally   tally
}

// handler answers a request, or returns why not. Once the response has begun,
// an error only reaches the log.
type handler func(*Frontend, *exchange) error

// resource is the methods of one kind of path.
type resource struct {
	methods map[string]handler
	allow   []string
}

func newResource(methods map[string]handler) resource {
	r := resource{methods: methods}
	var allow string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete} {
		if methods[m] != nil {
			allow += m + ", "
		}
	}
	r.allow = []string{allow + http.MethodOptions}
	return r
}

// resources is what there is at each kind of path. HEAD of a snapshot or a
// bootstrap is GET without the body, as everywhere in HTTP.
var resources = map[kind]resource{
	kindStream: newResource(map[string]handler{
		http.MethodPut: (*Frontend).create, http.MethodPost: (*Frontend).append, http.MethodGet: (*Frontend).read,
		http.MethodHead: (*Frontend).head, http.MethodDelete: (*Frontend).remove,
	}),
	kindSnapshot: newResource(map[string]handler{
		http.MethodGet: (*Frontend).readSnapshot, http.MethodHead: (*Frontend).readSnapshot, http.MethodPut: (*Frontend).publishSnapshot,
	}),
	kindRetention: newResource(map[string]handler{http.MethodPut: (*Frontend).retain}),
	kindBootstrap: newResource(map[string]handler{http.MethodGet: (*Frontend).bootstrap, http.MethodHead: (*Frontend).bootstrap}),
	kindNone:      newResource(nil),
	kindBucket:    newResource(map[string]handler{http.MethodPut: (*Frontend).createBucket}),
	// Both names are valid bucket ids, and creating a bucket changes nothing.
	kindHealth: newResource(map[string]handler{http.MethodGet: (*Frontend).health, http.MethodHead: (*Frontend).health, http.MethodPut: (*Frontend).createBucket}),
	kindReady:  newResource(map[string]handler{http.MethodGet: (*Frontend).ready, http.MethodHead: (*Frontend).ready, http.MethodPut: (*Frontend).createBucket}),
}

// dispatch serves one request.
func (f *Frontend) dispatch(c *gin.Context) {
	w := c.Writer.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
	x := &exchange{f: f, gin: c, r: c.Request, w: w, rc: http.NewResponseController(w)}
	x.bodyRead = x.r.Body == nil || x.r.Body == http.NoBody
	x.tally = tally{begun: time.Now(), route: routeNone, surface: "none"}
	secure(x.header())
	f.open.Add(1)
	defer x.release()
	if err := f.serve(x); err != nil {
		e := classify(x.r.Context(), err)
		x.fail(e)
		x.failed(err, e)
		_ = c.Error(e) // for observe; it returns its argument
	}
	x.tally.ended = true
}

func (f *Frontend) serve(x *exchange) error {
	if f.opts.Subscriptions != nil {
		if c, ok, err := parseControl(x.r.URL.EscapedPath()); ok {
			x.locateControl(c)
			return f.serveControl(x, c, err)
		}
	}
	t, err := parsePath(x.r.URL.EscapedPath())
	if err == nil {
		x.locate(t)
	}
	if x.r.Method == http.MethodOptions {
		f.preflight(x, t, err)
		return nil
	}
	if err != nil {
		return err
	}
	x.target = t
	res := resources[t.kind]
	handle := res.methods[x.r.Method]
	if handle == nil {
		if t.kind == kindBucket && checkBucket(t.id.Bucket) != nil {
			return refuse(codePathNotFound, "nothing is at this path")
		}
		x.header()["Allow"] = res.allow
		return refuse(codeMethod, "%s is not a method of this resource", clip(x.r.Method))
	}
	if t.kind == kindStream && (x.r.Method == http.MethodPut || x.r.Method == http.MethodPost) {
		return handle(f, x) // admitted once its body is there
	}
	if t.kind != kindSnapshot || x.r.Method != http.MethodPut {
		if err := x.dropBody(); err != nil {
			return err
		}
	}
	if t.kind != kindHealth && t.kind != kindReady {
		if err := x.admit(); err != nil {
			return err
		}
	}
	return handle(f, x)
}

// admit takes a place among the running requests, until park or the end.
func (x *exchange) admit() error {
	x.counted = true
	if x.f.running.Add(1) > int64(x.f.opts.MaxRequests) {
		return &fdblayer.Error{Code: codeTooManyRequests, Detail: "too many requests are being served", RetryAfter: time.Second}
	}
	return nil
}

// preflight answers OPTIONS. A path with nothing at it gets the same answer, so
// that a browser sees the error of the request itself and not one of CORS.
func (f *Frontend) preflight(x *exchange, t target, err error) {
	allow := resources[kindStream].allow
	if err == nil {
		allow = resources[t.kind].allow
	}
	h := x.header()
	h["Allow"] = allow
	h["Access-Control-Allow-Methods"] = allow
	h["Access-Control-Allow-Headers"] = allowedHeaders
	h["Access-Control-Max-Age"] = maxAge
	x.answer(http.StatusNoContent, nil)
}

// clip shortens what a client sent for an error text.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

func (x *exchange) header() http.Header { return x.w.Header() }

func (x *exchange) started() bool { return x.gin.Writer.Written() }

// begin sends the status and the headers; the body is written to x.w after it.
func (x *exchange) begin(status int) {
	x.gin.Writer.WriteHeader(status)
	x.gin.Writer.WriteHeaderNow()
}

// answer sends a whole response.
func (x *exchange) answer(status int, body []byte) {
	if status != http.StatusNoContent && status != http.StatusNotModified {
		x.header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	x.begin(status)
	if x.r.Method == http.MethodHead || status == http.StatusNoContent {
		body = nil
	}
	_, _ = x.Write(body) // on an error the client went away or is too slow: nothing is left to be done
}

// writePiece is how much of a response has one write deadline.
const writePiece = 256 << 10

// Write writes to the client, which has Options.WriteTimeout for each piece.
func (x *exchange) Write(p []byte) (n int, err error) {
	x.writeBy(time.Now().Add(x.f.opts.WriteTimeout))
	for n < len(p) {
		if n > 0 {
			x.writeBy(time.Now().Add(x.f.opts.WriteTimeout))
		}
		m, err := x.w.Write(p[n:min(len(p), n+writePiece)])
		n += m
		x.tally.out += int64(m)
		if err != nil {
			return n, fmt.Errorf("frontend: writing the response: %w", err)
		}
	}
	return n, nil
}

// writeBy sets the write deadline. A writer that has none, such as a test's
// recorder, is not slow either.
func (x *exchange) writeBy(t time.Time) { _ = x.rc.SetWriteDeadline(t) }

// park gives up the request's place among the running ones while it waits for
// something that may take long to happen.
func (x *exchange) park() {
	if x.counted {
		x.counted = false
		x.f.running.Add(-1)
	}
}

// hold takes n bytes of the memory for responses, until done is called.
func (x *exchange) hold(n int64) (done func(), err error) {
	if !x.f.responses.TryAcquire(n) {
		return nil, &fdblayer.Error{Code: fdblayer.CodeOverloaded, Detail: "too many bytes are waiting for slow clients", RetryAfter: time.Second}
	}
	x.f.responseBytes.Add(n)
	return func() {
		x.f.responses.Release(n)
		x.f.responseBytes.Add(-n)
	}, nil
}

// release gives back what the request holds, and reports it.
func (x *exchange) release() {
	x.park()
	if x.reserved > 0 {
		x.f.bodies.Release(x.reserved)
		x.f.bodyBytes.Add(-x.reserved)
	}
	x.f.open.Add(-1)
	x.report()
}

// observe logs, and turns a panic into a 500.
func (f *Frontend) observe(c *gin.Context) {
	ctx := c.Request.Context()
	begun := time.Now()
	defer func() {
		p := recover()
		if p == nil {
			f.log(ctx, c, begun)
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) // how a handler cuts the connection
		}
		f.opts.Logger.ErrorContext(ctx, "panic", "method", c.Request.Method, "path", c.Request.URL.EscapedPath(), "panic", p, "stack", string(debug.Stack()))
		if c.Writer.Written() {
			panic(http.ErrAbortHandler)
		}
		secure(c.Writer.Header())
		x := &exchange{f: f, gin: c, r: c.Request, w: c.Writer, rc: http.NewResponseController(c.Writer)}
		x.fail(refuse(fdblayer.CodeInternal, "an internal error; the log has more"))
	}()
	c.Next()
}

// log writes the line of a request: faults always, others at debug level, so
// that a busy server does not spend its time on lines nobody reads.
func (f *Frontend) log(ctx context.Context, c *gin.Context, begun time.Time) {
	level := slog.LevelDebug
	status := c.Writer.Status()
	if status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable {
		level = slog.LevelError
	}
	if !f.opts.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", c.Request.Method),
		slog.String("path", c.Request.URL.EscapedPath()),
		slog.String("query", c.Request.URL.RawQuery),
		slog.Int("status", status),
		slog.Duration("took", time.Since(begun)),
		slog.String("peer", c.Request.RemoteAddr),
	}
	if id := c.Request.Header.Get("X-Request-Id"); id != "" {
		attrs = append(attrs, slog.String("request_id", clip(id)))
	}
	if last := c.Errors.Last(); last != nil {
		attrs = append(attrs, slog.Any("error", last.Err))
	}
	f.opts.Logger.LogAttrs(ctx, level, "request", attrs...)
}
