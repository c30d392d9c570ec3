package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"headwater/fdblayer"
	"headwater/fdblayer/kv/embedded"
	"headwater/subscriptions"
)

// subscribed starts a service that has subscriptions.
func subscribed(t testing.TB) *service {
	t.Helper()
	s := &service{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}}}
	if real, ok := t.(*testing.T); ok {
		s.T = real
	}
	db, err := embedded.Open(t.Context(), embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	index := subscriptions.NewIndex()
	s.store, err = fdblayer.Open(t.Context(), db, fdblayer.Options{SweepInterval: -1, Followers: index})
	if err != nil {
		t.Fatal(err)
	}
	subs := subscriptions.New(s.store, index, subscriptions.Options{CallbackURL: CallbackURL, AllowLocalhost: true, ScanInterval: 50 * time.Millisecond})
	subs.Start()
	s.front = New(s.store, Options{Subscriptions: subs})
	srv := httptest.NewServer(s.front.Handler())
	s.url = srv.URL
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, err := range []error{subs.Close(ctx), s.store.Close(ctx), db.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// wantCode checks the status and the code of an error about subscriptions.
func (r *response) wantCode(status int, code string) controlError {
	r.s.Helper()
	r.want(status).wantHeader("Content-Type", "application/json").wantHeader("Cache-Control", "no-store")
	var b map[string]controlError
	if err := json.Unmarshal([]byte(r.body), &b); err != nil || b["error"].Code != code || b["error"].Message == "" || len(b) != 1 {
		r.s.Fatalf("%v, want code %s", r, code)
	}
	return b["error"]
}

func decoded[T any](r *response) T {
	r.s.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		r.s.Fatalf("%v: %v", r, err)
	}
	return v
}

// surfaces are where subscriptions live, and the path of a stream there.
var surfaces = map[string]struct {
	control string
	stream  func(name string) string
	name    func(name string) string
}{
	"base":   {"/v1/stream/__ds/", func(n string) string { return "/v1/stream/events/" + n }, func(n string) string { return "events/" + n }},
	"bucket": {"/my-bucket/$ds/", func(n string) string { return "/my-bucket/" + n }, func(n string) string { return n }},
}

func TestSubscriptionsOverHTTP(t *testing.T) {
	for surface, at := range surfaces {
		t.Run(surface, func(t *testing.T) {
			s := subscribed(t)
			sub := at.control + "subscriptions/my%20sub"
			wake := at.name("wake")
			s.do("PUT", at.stream("wake"), "", "Content-Type", "application/json").want(201)
			body := fmt.Sprintf(`{"type":"pull-wake","pattern":"**","wake_stream":%q,"lease_ttl_ms":1000,"description":"d"}`, at.name("out"))
			s.do("PUT", at.stream("out"), "", "Content-Type", "application/json").want(201)
			r := s.do("PUT", sub, body).want(201).wantHeader("Content-Type", "application/json")
			got := decoded[subscriptionBody](r)
			if got.ID != "my sub" || got.SubscriptionID != got.ID || got.LeaseMS != 1000 || got.Status != "active" || *got.Pattern != "**" ||
				*got.WakeStream != at.name("out") || *got.Description != "d" || got.Webhook != nil || len(got.Streams) != 1 {
				t.Fatalf("%v", r)
			}
			if _, err := time.Parse("2006-01-02T15:04:05.000Z", got.CreatedAt); err != nil {
				t.Error(err)
			}
			s.do("PUT", sub, body).want(200)
			s.do("PUT", sub, strings.Replace(body, "1000", "2000", 1)).wantCode(409, "SUBSCRIPTION_ALREADY_EXISTS")
			s.do("POST", sub+"/streams", fmt.Sprintf(`{"streams":[%q,%q]}`, wake, at.name("x"))).want(204).wantBody("")
			s.do("DELETE", sub+"/streams/"+url.PathEscape(at.name("x")), "").want(204)
			s.do("DELETE", sub+"/streams/"+at.name("x"), "").want(204)
			got = decoded[subscriptionBody](s.get(sub).want(200))
			types := map[string]subscriptions.LinkType{}
			for _, l := range got.Streams {
				types[l.Path] = l.Type
			}
			if len(types) != 1 || types[wake] != subscriptions.Explicit {
				t.Fatalf("%v", types)
			}

			tail := s.do("POST", at.stream("wake"), `{"n":1}`, "Content-Type", "application/json").want(204).next()
			c := decoded[claimBody](s.do("POST", sub+"/claim", `{"worker":"w1"}`).want(200))
			held := s.do("POST", sub+"/claim", `{"worker":"w2"}`).wantCode(409, "ALREADY_CLAIMED")
			if held.CurrentHolder == nil || *held.CurrentHolder != "w1" || held.Generation != c.Generation || c.LeaseMS != 1000 {
				t.Fatalf("%+v %+v", held, c)
			}
			auth := "Bearer " + c.Token
			ack := func(more string) string {
				return fmt.Sprintf(`{"wake_id":%q,"generation":%d,"acks":[{"stream":%q,"offset":%q}]%s}`, c.WakeID, c.Generation, wake, tail, more)
			}
			s.do("POST", sub+"/ack", ack("")).wantCode(401, "TOKEN_INVALID")
			s.do("POST", sub+"/ack", ack(""), "Authorization", "Basic x").wantCode(401, "TOKEN_INVALID")
			s.do("POST", sub+"/ack", ack(""), "Authorization", auth+"x").wantCode(401, "TOKEN_INVALID")
			s.do("POST", sub+"/ack", strings.Replace(ack(""), c.WakeID, "w_", 1), "Authorization", auth).wantCode(409, "FENCED")
			s.do("POST", sub+"/ack", strings.Replace(ack(""), tail, strings.Repeat("f", 32), 1), "Authorization", auth).wantCode(409, "INVALID_OFFSET")
			s.do("POST", sub+"/ack", ack(""), "Authorization", auth).want(200).wantBody(`{"ok":true,"next_wake":false}` + "\n")
			s.do("POST", sub+"/release", ack(""), "Authorization", auth).want(204)
			s.do("POST", sub+"/release", ack(""), "Authorization", auth).wantCode(409, "FENCED")
			s.do("DELETE", sub, "").want(204)
			s.do("DELETE", sub, "").want(204)
			s.get(sub).wantCode(404, "SUBSCRIPTION_NOT_FOUND")
			s.do("POST", sub+"/ack", ack(""), "Authorization", auth).wantCode(404, "SUBSCRIPTION_NOT_FOUND")
		})
	}
}

func TestWebhooksOverHTTP(t *testing.T) {
	for surface, at := range surfaces {
		t.Run(surface, func(t *testing.T) {
			s := subscribed(t)
			type wakeOf struct {
				WakeID        string        `json:"wake_id"`
				Generation    uint64        `json:"generation"`
				Streams       []claimStream `json:"streams"`
				CallbackURL   string        `json:"callback_url"`
				CallbackToken string        `json:"callback_token"`
			}
			wakes := make(chan wakeOf, 10)
			r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				var w wakeOf
				if err := json.NewDecoder(r.Body).Decode(&w); err != nil {
					t.Error(err)
				}
				wakes <- w
			}))
			defer r.Close()
			sub := at.control + "subscriptions/s"
			body := fmt.Sprintf(`{"type":"webhook","pattern":"**","webhook":{"url":%q}}`, r.URL)
			got := decoded[subscriptionBody](s.do("PUT", sub, body).want(201))
			if got.Webhook.URL != r.URL || got.Webhook.Signing.Alg != "ed25519" || got.Webhook.Signing.JWKSURL != s.url+at.control+"jwks.json" {
				t.Fatalf("%+v", got.Webhook)
			}
			set := s.get(at.control+"jwks.json").want(200).wantHeader("Content-Type", "application/jwk-set+json").wantHeader("Cache-Control", "public, max-age=300")
			keys := decoded[struct{ Keys []jwk }](set)
			if len(keys.Keys) != 1 || keys.Keys[0].KID != got.Webhook.Signing.KID || keys.Keys[0].KTY != "OKP" || keys.Keys[0].Alg != "EdDSA" || strings.Contains(set.body, `"d"`) {
				t.Fatalf("%v", set)
			}
			s.do("PUT", at.stream("a"), `[1]`, "Content-Type", "application/json").want(201)
			w := <-wakes
			if w.CallbackURL != s.url+sub+"/callback" {
				t.Fatalf("%+v", w)
			}
			path := strings.TrimPrefix(w.CallbackURL, s.url)
			done := fmt.Sprintf(`{"wake_id":%q,"generation":%d,"acks":[{"path":%q,"offset":%q}],"done":true}`, w.WakeID, w.Generation, at.name("a"), w.Streams[0].Tail)
			s.do("POST", path, done, "Authorization", "bearer "+w.CallbackToken).want(200).wantBody(`{"ok":true,"next_wake":false}` + "\n")
			s.do("POST", path, done, "Authorization", "Bearer "+w.CallbackToken).wantCode(409, "FENCED")
			s.do("POST", sub+"/claim", `{"worker":"w"}`).wantCode(400, "INVALID_REQUEST")
		})
	}
}

func TestControlErrors(t *testing.T) {
	s := subscribed(t)
	const root = "/v1/stream/__ds/"
	pull := `"type":"pull-wake","wake_stream":"w"`
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"no route":            {"GET", root, "", 404, "SUBSCRIPTION_NOT_FOUND"},
		"no route either":     {"GET", root + "subscriptions", "", 404, "SUBSCRIPTION_NOT_FOUND"},
		"no id":               {"PUT", root + "subscriptions/", "{}", 404, "SUBSCRIPTION_NOT_FOUND"},
		"unknown action":      {"POST", root + "subscriptions/s/poke", "{}", 404, "SUBSCRIPTION_NOT_FOUND"},
		"action and more":     {"POST", root + "subscriptions/s/claim/x", "{}", 404, "SUBSCRIPTION_NOT_FOUND"},
		"an action's name":    {"POST", root + "subscriptions/s/stream", "{}", 404, "SUBSCRIPTION_NOT_FOUND"},
		"jwks below":          {"GET", root + "subscriptions/s/jwks.json", "", 404, "SUBSCRIPTION_NOT_FOUND"},
		"method":              {"PATCH", root + "subscriptions/s", "{}", 405, "METHOD_NOT_ALLOWED"},
		"method of jwks":      {"POST", root + "jwks.json", "{}", 405, "METHOD_NOT_ALLOWED"},
		"method of claim":     {"GET", root + "subscriptions/s/claim", "", 405, "METHOD_NOT_ALLOWED"},
		"no JSON":             {"PUT", root + "subscriptions/s", "{", 400, "INVALID_REQUEST"},
		"an array":            {"PUT", root + "subscriptions/s", "[]", 400, "INVALID_REQUEST"},
		"more than an object": {"PUT", root + "subscriptions/s", "{}{}", 400, "INVALID_REQUEST"},
		"wrong types":         {"PUT", root + "subscriptions/s", `{` + pull + `,"pattern":7}`, 400, "INVALID_REQUEST"},
		"nothing":             {"PUT", root + "subscriptions/s", "", 400, "INVALID_REQUEST"},
		"nothing to link":     {"PUT", root + "subscriptions/s", `{` + pull + `}`, 400, "INVALID_REQUEST"},
		"a fraction":          {"PUT", root + "subscriptions/s", `{` + pull + `,"pattern":"a","lease_ttl_ms":1000.5}`, 400, "INVALID_REQUEST"},
		"zero":                {"PUT", root + "subscriptions/s", `{` + pull + `,"pattern":"a","lease_ttl_ms":0}`, 400, "INVALID_REQUEST"},
		"a lease too long":    {"PUT", root + "subscriptions/s", `{` + pull + `,"pattern":"a","lease_ttl_ms":600001}`, 400, "INVALID_REQUEST"},
		"a URL inside":        {"PUT", root + "subscriptions/s", `{"type":"webhook","pattern":"a","webhook":{"url":"http://169.254.169.254/"}}`, 400, "WEBHOOK_URL_REJECTED"},
		"an id too long":      {"PUT", root + "subscriptions/" + strings.Repeat("x", 300), `{` + pull + `,"pattern":"a"}`, 400, "INVALID_REQUEST"},
		"no worker":           {"POST", root + "subscriptions/s/claim", `{}`, 400, "INVALID_REQUEST"},
		"nobody to claim":     {"POST", root + "subscriptions/s/claim", `{"worker":"w"}`, 404, "SUBSCRIPTION_NOT_FOUND"},
		"no streams":          {"POST", root + "subscriptions/s/streams", `{}`, 400, "INVALID_REQUEST"},
		"a body too long":     {"PUT", root + "subscriptions/s", `{"description":"` + strings.Repeat("x", maxControlBody) + `"}`, 413, "TOO_LARGE"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.do(c.method, c.path, c.body)
			r.wantCode(c.status, c.code)
			if c.status == 405 {
				r.need("Allow")
			}
		})
	}
	s.do("OPTIONS", root+"subscriptions/s", "").want(204).wantHeader("Allow", "GET, HEAD, PUT, DELETE, OPTIONS")
	s.get("/my-bucket/$dsx").wantProblem(400, codeInvalidStreamID)
	s.do("PUT", "/v1/stream/a/__ds", "x", "Content-Type", "text/plain").want(201)
	s.get("/b/$ds/jwks.json").want(404) // no bucket of that name can be
}

// FuzzControl sends paths and bodies of any kind: nothing is answered with a
// fault of the server, and what is refused is refused in the protocol's form.
func FuzzControl(f *testing.F) {
	f.Add("PUT", "subscriptions/s", `{"type":"pull-wake","pattern":"a","wake_stream":"w"}`, "")
	f.Add("POST", "subscriptions/s/ack", `{"wake_id":"w","generation":1,"acks":[{"stream":"a","offset":"-1"}]}`, "Bearer a.b")
	f.Add("DELETE", "subscriptions/s/streams/a%2fb", ``, "")
	f.Add("POST", "subscriptions/s/claim", `{"worker":"w"}`, "")
	s := subscribed(f)
	handler := s.front.Handler()
	f.Fuzz(func(t *testing.T, method, path, body, auth string) {
		u, err := url.Parse("http://x/v1/stream/__ds/" + path)
		if err != nil || !strings.HasPrefix(u.EscapedPath(), "/v1/stream/__ds/") {
			return
		}
		req := (&http.Request{Method: method, URL: u, Host: "x", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Authorization": {auth}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}).WithContext(t.Context())
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Fatalf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
		if w.Code >= 400 && method != "HEAD" {
			var e map[string]controlError
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e["error"].Code == "" {
				t.Fatalf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
			}
		}
	})
}
