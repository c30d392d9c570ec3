package subscriptions

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"headwater/ci/engines"
	"headwater/keys"
)

func tokenOf(t testing.TB, e *env, name string, generation uint64) string {
	t.Helper()
	u := &sub{id: ID{Name: name}}
	u.UID, u.Generation = "u", generation
	token, err := e.newToken(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Nothing but the token itself is a token: not one that was changed in any
// byte, re-encoded, cut, or signed with another key.
func TestForgedTokens(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		id := ID{Name: "s"}
		token := tokenOf(t, e, "s", 7)
		c, err := e.verifyToken(t.Context(), id, token)
		if err != nil || c.generation != 7 || c.uid != "u" {
			t.Fatal(c, err)
		}
		for i := range token {
			for _, b := range []byte{'A', 'Z', '.', '=', 0, token[i] ^ 1} {
				if forged := token[:i] + string(b) + token[i+1:]; forged != token {
					_, err := e.verifyToken(t.Context(), id, forged)
					mustFail(t, err, CodeTokenInvalid)
				}
			}
			_, err := e.verifyToken(t.Context(), id, token[:i])
			mustFail(t, err, CodeTokenInvalid)
		}
		body, mac, _ := strings.Cut(token, ".")
		raw, err := base64.RawURLEncoding.DecodeString(body)
		if err != nil {
			t.Fatal(err)
		}
		var claims map[string]any
		if err := json.Unmarshal(raw, &claims); err != nil {
			t.Fatal(err)
		}
		claims["gen"] = 8
		raw, err = json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		for _, forged := range []string{
			b64(raw) + "." + mac, b64(raw) + ".", b64(raw), "." + mac, "", ".", token + ".", token + "=", " " + token,
			strings.Repeat("a", 1<<16),
		} {
			_, err := e.verifyToken(t.Context(), id, forged)
			mustFail(t, err, CodeTokenInvalid)
		}
		_, err = e.verifyToken(t.Context(), ID{Bucket: "bucket", Name: "s"}, token)
		mustFail(t, err, CodeTokenInvalid)
		other := newEnv(t, e.db)
		_, err = other.verifyToken(t.Context(), id, token)
		mustFail(t, err, CodeTokenInvalid)
	})
}

func FuzzTokens(f *testing.F) {
	e := newEnv(f, engines.Embedded(f))
	e.put("s", pull("events/*"))
	good := tokenOf(f, e, "s", 1)
	f.Add(good, "w_1", uint64(1), "events/a", "-1")
	f.Add("a.b", "", uint64(0), "", "")
	f.Fuzz(func(t *testing.T, token, wakeID string, generation uint64, stream, offset string) {
		ctx, id := t.Context(), ID{Name: "s"}
		if _, err := e.verifyToken(ctx, id, token); err == nil && token != good {
			t.Fatalf("%q was accepted", token)
		}
		req := AckRequest{WakeID: wakeID, Generation: generation, Acks: []Ack{{stream, offset}}, Done: true}
		for _, tok := range []string{token, good} {
			if _, err := e.Ack(ctx, id, tok, req); err == nil {
				t.Fatal("acked a wake that nobody holds")
			}
			if err := e.Release(ctx, id, tok, req); err == nil {
				t.Fatal("released a wake that nobody holds")
			}
		}
		if acks, err := parseAcks("", req.Acks); err == nil {
			if o, err := keys.ParseOffset(offset); err != nil || acks[0].offset != o {
				t.Fatalf("%q became %v", offset, acks[0].offset)
			}
		}
	})
}
