package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"headwater/subscriptions"
)

// Subscriptions live below a reserved segment (PROTOCOL.md 6): "__ds" on the
// base surface, "$ds" in a bucket, where ids that begin with a dollar are
// reserved by extensions 1.1. Paths in their bodies are relative to the surface.
const bucketControlRoot = "$ds"

// maxControlBody bounds the body of a request about subscriptions.
const maxControlBody = 256 << 10

// control is what a request about subscriptions addresses.
type control struct {
	bucket string
	// action is the last part of the resource's path: "jwks.json", "" for the
	// subscription itself, "streams", "stream", "callback", "claim", "ack",
	// "release".
	action string
	id     subscriptions.ID
	stream string
}

// parseControl reports whether a path lies below a reserved root, and what it
// addresses. An error is about a path that does lie there.
func parseControl(path string) (c control, ok bool, err error) {
	rest, base := strings.CutPrefix(path, basePrefix)
	root := reservedRoot
	if !base {
		var bucket string
		bucket, rest, ok = strings.Cut(strings.TrimPrefix(path, "/"), "/")
		// What is no bucket, or no path, is told so where streams are.
		if !ok || checkBucket(bucket) != nil {
			return c, false, nil //nolint:nilerr // see above
		}
		c.bucket, root = bucket, bucketControlRoot
	}
	head, rest, _ := strings.Cut(rest, "/")
	if head, err = unescape(head); err != nil || head != root {
		return c, false, nil //nolint:nilerr // as above
	}
	err = c.parse(rest)
	return c, true, err
}

var errNoControl = &subscriptions.Error{Code: subscriptions.CodeNotFound, Detail: "there is no such control route"}

func (c *control) parse(rest string) error {
	if rest == "jwks.json" {
		c.action = rest
		return nil
	}
	rest, ok := strings.CutPrefix(rest, "subscriptions/")
	name, rest, more := strings.Cut(rest, "/")
	name, err := unescape(name)
	if err != nil {
		return &subscriptions.Error{Code: subscriptions.CodeInvalidRequest, Detail: "the path has a malformed percent-encoding"}
	}
	if !ok || name == "" {
		return errNoControl
	}
	c.id = subscriptions.ID{Bucket: c.bucket, Name: name}
	action, stream, deeper := strings.Cut(rest, "/")
	switch {
	case !more:
		return nil
	case action == "streams" && deeper:
		// Unlike a stream's own URL, this one carries a path in a segment, or in
		// several: an encoded slash is a slash (PROTOCOL.md 6.4).
		c.action = "stream"
		if c.stream, err = unescape(stream); err != nil {
			return &subscriptions.Error{Code: subscriptions.CodeInvalidRequest, Detail: "the path has a malformed percent-encoding"}
		}
		return nil
	case deeper || controls[action].methods == nil || action == "jwks.json" || action == "stream" || action == "":
		return errNoControl
	}
	c.action = action
	return nil
}

// controls is what there is at each kind of control path.
var controls = map[string]resource{
	"jwks.json": newResource(map[string]handler{http.MethodGet: (*Frontend).jwks, http.MethodHead: (*Frontend).jwks}),
	"": newResource(map[string]handler{
		http.MethodPut: (*Frontend).putSubscription, http.MethodGet: (*Frontend).getSubscription,
		http.MethodHead: (*Frontend).getSubscription, http.MethodDelete: (*Frontend).deleteSubscription,
	}),
	"streams":  newResource(map[string]handler{http.MethodPost: (*Frontend).linkStreams}),
	"stream":   newResource(map[string]handler{http.MethodDelete: (*Frontend).unlinkStream}),
	"callback": newResource(map[string]handler{http.MethodPost: (*Frontend).callback}),
	"claim":    newResource(map[string]handler{http.MethodPost: (*Frontend).claim}),
	"ack":      newResource(map[string]handler{http.MethodPost: (*Frontend).ack}),
	"release":  newResource(map[string]handler{http.MethodPost: (*Frontend).releaseClaim}),
}

// serveControl serves a request about subscriptions. Its errors have a form of
// their own, which the protocol gives them.
func (f *Frontend) serveControl(x *exchange, c control, err error) error {
	x.control = c
	res := controls[c.action]
	switch {
	case x.r.Method == http.MethodOptions:
		h := x.header()
		h["Allow"] = res.allow
		h["Access-Control-Allow-Methods"] = res.allow
		h["Access-Control-Allow-Headers"] = allowedHeaders
		h["Access-Control-Max-Age"] = maxAge
		x.answer(http.StatusNoContent, nil)
		return nil
	case err != nil:
	case res.methods[x.r.Method] == nil:
		x.header()["Allow"] = res.allow
		err = refuse(codeMethod, "%s is not a method of this resource", clip(x.r.Method))
	default:
		if err = x.admit(); err == nil {
			err = res.methods[x.r.Method](f, x)
		}
	}
	if err == nil {
		return nil
	}
	return x.failControl(err)
}

var controlStatuses = map[subscriptions.Code]int{
	subscriptions.CodeInvalidRequest: http.StatusBadRequest,
	subscriptions.CodeURLRejected:    http.StatusBadRequest,
	subscriptions.CodeTokenInvalid:   http.StatusUnauthorized,
	subscriptions.CodeTokenExpired:   http.StatusUnauthorized,
	subscriptions.CodeNotFound:       http.StatusNotFound,
	subscriptions.CodeExists:         http.StatusConflict,
	subscriptions.CodeFenced:         http.StatusConflict,
	subscriptions.CodeAlreadyClaimed: http.StatusConflict,
	subscriptions.CodeNoPendingWork:  http.StatusConflict,
	subscriptions.CodeInvalidOffset:  http.StatusConflict,
}

type controlError struct {
	Code          string  `json:"code"`
	Message       string  `json:"message"`
	CurrentHolder *string `json:"current_holder,omitempty"`
	Generation    uint64  `json:"generation,omitempty"`
}

// failControl answers with an error and returns what the log should know of it.
func (x *exchange) failControl(err error) error {
	if x.started() {
		return err
	}
	var out controlError
	var status int
	var refused *subscriptions.Error
	h := x.header()
	if errors.As(err, &refused) {
		status = controlStatuses[refused.Code]
		out = controlError{Code: string(refused.Code), Message: refused.Detail, Generation: refused.Generation}
		if refused.Code == subscriptions.CodeAlreadyClaimed {
			out.CurrentHolder = &refused.CurrentHolder
		}
		if status == http.StatusUnauthorized {
			h["Www-Authenticate"] = []string{"Bearer"}
		}
	} else {
		e := classify(x.r.Context(), err)
		status = statuses[e.Code]
		out = controlError{Code: strings.ToUpper(string(e.Code)), Message: e.Detail}
		if e.RetryAfter > 0 {
			h["Retry-After"] = []string{strconv.Itoa(int((e.RetryAfter + time.Second - 1) / time.Second))}
		}
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	x.tally.code = out.Code
	x.tally.code = out.Code
	x.abandonBody()
	x.json(status, map[string]controlError{"error": out})
	if status < http.StatusInternalServerError {
		return nil
	}
	_ = x.gin.Error(err) // for observe; it returns its argument
	return nil
}

// json answers with a value, which always marshals.
func (x *exchange) json(status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, nil
	}
	if x.header()["Content-Type"] == nil {
		x.header()["Content-Type"] = []string{typeJSON}
	}
	x.answer(status, append(body, '\n'))
}

// decodeBody reads a JSON object into v; an empty body is an empty object.
func (x *exchange) decodeBody(v any) error {
	body, err := x.bodyUpTo(maxControlBody)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(v); err != nil {
		return &subscriptions.Error{Code: subscriptions.CodeInvalidRequest, Detail: "the body is not the JSON object asked for"}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &subscriptions.Error{Code: subscriptions.CodeInvalidRequest, Detail: "something follows the JSON object"}
	}
	return nil
}

// putBody is the body of a PUT (PROTOCOL.md 6.2).
type putBody struct {
	Type    string   `json:"type"`
	Pattern string   `json:"pattern"`
	Streams []string `json:"streams"`
	Webhook *struct {
		URL string `json:"url"`
	} `json:"webhook"`
	WakeStream  string   `json:"wake_stream"`
	Lease       *float64 `json:"lease_ttl_ms"`
	Description string   `json:"description"`
}

func (f *Frontend) putSubscription(x *exchange) error {
	var b putBody
	if err := x.decodeBody(&b); err != nil {
		return err
	}
	cfg := subscriptions.Config{
		Type: subscriptions.Type(b.Type), Pattern: b.Pattern, Streams: b.Streams, WakeStream: b.WakeStream, Description: b.Description,
	}
	if b.Webhook != nil {
		cfg.URL = b.Webhook.URL
	}
	if b.Lease != nil {
		if cfg.Lease = leaseOf(*b.Lease); cfg.Lease == 0 {
			return &subscriptions.Error{Code: subscriptions.CodeInvalidRequest, Detail: "lease_ttl_ms must be a whole number from 1000 to 600000"}
		}
	}
	sub, created, err := f.opts.Subscriptions.Put(x.r.Context(), x.control.id, cfg, x.callbackOrigin())
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return x.answerSubscription(status, sub)
}

// leaseOf is a lease in milliseconds, 0 for one that can't be.
func leaseOf(ms float64) time.Duration {
	if ms != float64(int64(ms)) || ms < 1000 || ms > 600_000 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func (f *Frontend) getSubscription(x *exchange) error {
	if err := x.dropBody(); err != nil {
		return err
	}
	sub, err := f.opts.Subscriptions.Get(x.r.Context(), x.control.id)
	if err != nil {
		return err
	}
	return x.answerSubscription(http.StatusOK, sub)
}

func (f *Frontend) deleteSubscription(x *exchange) error {
	if err := x.dropBody(); err != nil {
		return err
	}
	if err := f.opts.Subscriptions.Delete(x.r.Context(), x.control.id); err != nil {
		return err
	}
	x.answer(http.StatusNoContent, nil)
	return nil
}

func (f *Frontend) linkStreams(x *exchange) error {
	var b struct {
		Streams []string `json:"streams"`
	}
	if err := x.decodeBody(&b); err != nil {
		return err
	}
	if len(b.Streams) == 0 {
		return &subscriptions.Error{Code: subscriptions.CodeInvalidRequest, Detail: "streams must name at least one stream"}
	}
	if err := f.opts.Subscriptions.AddStreams(x.r.Context(), x.control.id, b.Streams); err != nil {
		return err
	}
	x.answer(http.StatusNoContent, nil)
	return nil
}

func (f *Frontend) unlinkStream(x *exchange) error {
	if err := x.dropBody(); err != nil {
		return err
	}
	if err := f.opts.Subscriptions.RemoveStream(x.r.Context(), x.control.id, x.control.stream); err != nil {
		return err
	}
	x.answer(http.StatusNoContent, nil)
	return nil
}

// ackBody is the body of a callback, an ack and a release. Some clients call
// the stream of an ack its path.
type ackBody struct {
	WakeID     string `json:"wake_id"`
	Generation uint64 `json:"generation"`
	Acks       []struct {
		Stream string `json:"stream"`
		Path   string `json:"path"`
		Offset string `json:"offset"`
	} `json:"acks"`
	Done bool `json:"done"`
}

func (x *exchange) decodeAck() (token string, req subscriptions.AckRequest, err error) {
	scheme, token, ok := strings.Cut(x.r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", req, &subscriptions.Error{Code: subscriptions.CodeTokenInvalid, Detail: "the request needs the token of the wake in its Authorization header"}
	}
	var b ackBody
	if err := x.decodeBody(&b); err != nil {
		return "", req, err
	}
	req = subscriptions.AckRequest{WakeID: b.WakeID, Generation: b.Generation, Done: b.Done}
	for _, a := range b.Acks {
		if a.Stream == "" {
			a.Stream = a.Path
		}
		req.Acks = append(req.Acks, subscriptions.Ack{Stream: a.Stream, Offset: a.Offset})
	}
	return strings.TrimSpace(token), req, nil
}

func (f *Frontend) callback(x *exchange) error { return x.respond(f.opts.Subscriptions.Callback) }

func (f *Frontend) ack(x *exchange) error { return x.respond(f.opts.Subscriptions.Ack) }

func (x *exchange) respond(do func(ctx context.Context, id subscriptions.ID, token string, req subscriptions.AckRequest) (bool, error)) error {
	token, req, err := x.decodeAck()
	if err != nil {
		return err
	}
	next, err := do(x.r.Context(), x.control.id, token, req)
	if err != nil {
		return err
	}
	x.json(http.StatusOK, struct {
		OK       bool `json:"ok"`
		NextWake bool `json:"next_wake"`
	}{true, next})
	return nil
}

func (f *Frontend) releaseClaim(x *exchange) error {
	token, req, err := x.decodeAck()
	if err != nil {
		return err
	}
	if err := f.opts.Subscriptions.Release(x.r.Context(), x.control.id, token, req); err != nil {
		return err
	}
	x.answer(http.StatusNoContent, nil)
	return nil
}

func (f *Frontend) claim(x *exchange) error {
	var b struct {
		Worker string `json:"worker"`
	}
	if err := x.decodeBody(&b); err != nil {
		return err
	}
	got, err := f.opts.Subscriptions.Claim(x.r.Context(), x.control.id, b.Worker)
	if err != nil {
		return err
	}
	out := claimBody{WakeID: got.WakeID, Generation: got.Generation, Token: got.Token, Streams: []claimStream{}, LeaseMS: got.LeaseMS}
	for _, in := range got.Streams {
		out.Streams = append(out.Streams, claimStream{linkBody{in.Path, in.Type, in.Acked.String()}, in.Tail.String(), in.Pending})
	}
	x.json(http.StatusOK, out)
	return nil
}

type claimBody struct {
	WakeID     string        `json:"wake_id"`
	Generation uint64        `json:"generation"`
	Token      string        `json:"token"`
	Streams    []claimStream `json:"streams"`
	LeaseMS    int64         `json:"lease_ttl_ms"`
}

type claimStream struct {
	linkBody
	Tail    string `json:"tail_offset"`
	Pending bool   `json:"has_pending"`
}

type linkBody struct {
	Path  string                 `json:"path"`
	Type  subscriptions.LinkType `json:"link_type"`
	Acked string                 `json:"acked_offset"`
}

// callbackOrigin is the scheme and host of the callbacks of a subscription.
func (x *exchange) callbackOrigin() string {
	if o := x.f.opts.CallbackOrigin; o != "" {
		return o
	}
	return x.origin()
}

// controlURL is the absolute URL of a control path of a surface.
func controlURL(origin, bucket, rest string) string {
	if bucket == "" {
		return origin + basePrefix + reservedRoot + "/" + rest
	}
	return origin + "/" + bucket + "/" + bucketControlRoot + "/" + rest
}

// CallbackURL is the absolute URL of a subscription's callbacks at an origin.
func CallbackURL(origin string, id subscriptions.ID) string {
	return controlURL(origin, id.Bucket, "subscriptions/"+url.PathEscape(id.Name)+"/callback")
}
