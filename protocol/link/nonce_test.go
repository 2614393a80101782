package link

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// A device asks for a nonce before each connection, below the same prefix, without a
// credential, and sends its signature and nothing else.
func TestDeviceSignsANonceForEachConnection(t *testing.T) {
	t.Parallel()
	device := DeviceKey{Runner: "rnr_1", Key: protocol.NewDeviceKey()}
	var given atomic.Int32
	var log []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log = append(log, r.Method+" "+r.RequestURI)
		if r.URL.Path == "/prefix"+NoncePath {
			if r.Header.Get("Authorization") != "" || r.Header.Get("User-Agent") != "test" {
				t.Errorf("the nonce was asked for with %v", r.Header)
			}
			_ = json.NewEncoder(w).Encode(protocol.Nonce{Nonce: fmt.Sprint("nonce", given.Add(1))})
			return
		}
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		s, err := protocol.ParseDeviceSession(token)
		if err != nil || s.Nonce != fmt.Sprint("nonce", given.Load()) || !s.Signed(device.Key.Public().(ed25519.PublicKey)) {
			t.Errorf("connected with %q: %v", token, err)
		}
		refuse(w, &RefusedError{Status: http.StatusUnauthorized, Code: CodeNonce, Message: "over"})
	}))
	defer server.Close()
	cfg := DialConfig{URL: server.URL + "/prefix/", Credential: device, UserAgent: "test", Handler: &runner{}, Hello: func() Hello { return Hello{} }}
	for range 2 {
		_, err := Dial(t.Context(), cfg)
		var he *HTTPError
		if !errors.As(err, &he) || he.Code != CodeNonce || Terminal(err) {
			t.Errorf("dial: %v, want a nonce that is over, to be tried again", err)
		}
	}
	if err := Check(t.Context(), cfg); Terminal(err) {
		t.Errorf("check: %v", err)
	}
	want := []string{"POST /prefix" + NoncePath, "GET /prefix" + Path}
	if got := strings.Join(log, "\n"); got != strings.Join(append(append(append([]string{}, want...), want...), want...), "\n") {
		t.Errorf("requests:\n%s", got)
	}
	if s := fmt.Sprintf("%v %+v %#v", device, device, device); strings.Contains(s, string(device.Key)) || !strings.Contains(s, "rnr_1") {
		t.Errorf("a device key prints as %s", s)
	}
}

// What answers and is no coordinator gets no signature, and no connection.
func TestNonceThatIsNone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer   http.HandlerFunc
		terminal bool
		status   int
	}{
		"a page":         {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, false, 200},
		"no nonce":       {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }, false, 200},
		"one with lines": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"nonce":"a\nb"}`) }, false, 200},
		"a long one": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"nonce":%q}`, strings.Repeat("a", protocol.MaxNonce+1))
		}, false, 200},
		"a flood": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Repeat(" ", 1<<20)+`{"nonce":"a"}`)
		}, false, 200},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, false, 302},
		"too many": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "2")
			refuse(w, &RefusedError{Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", Message: "later"})
		}, false, 429},
		"403 of a proxy": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, false, 403},
		"403 of a coordinator": {func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, &RefusedError{Status: http.StatusForbidden, Code: "revoked", Message: "no"})
		}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connects atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && r.URL.Path == NoncePath {
					row.answer(w, r)
					return
				}
				connects.Add(1)
			}))
			defer server.Close()
			cfg := DialConfig{URL: server.URL, Credential: DeviceKey{Runner: "rnr_1", Key: protocol.NewDeviceKey()}, Handler: &runner{}, Hello: func() Hello { return Hello{} }}
			_, err := Dial(t.Context(), cfg)
			var he *HTTPError
			if errors.As(err, &he) && he.Status != row.status || err == nil || Terminal(err) != row.terminal || !row.terminal && he == nil {
				t.Errorf("dial: %v, want status %d, terminal %t", err, row.status, row.terminal)
			}
			if connects.Load() != 0 {
				t.Error("it connected all the same")
			}
		})
	}
}

// Without a key there is nothing to be connected with.
func TestDeviceWithoutAKey(t *testing.T) {
	t.Parallel()
	for _, c := range []Credential{nil, Secret(""), DeviceKey{}, DeviceKey{Runner: "rnr_1"}} {
		var bad *ConfigError
		cfg := DialConfig{URL: "http://127.0.0.1:1", Credential: c, Handler: &runner{}, Hello: func() Hello { return Hello{} }}
		if _, err := Dial(t.Context(), cfg); !errors.As(err, &bad) {
			t.Errorf("dial with %#v: %v, want a *ConfigError", c, err)
		}
	}
}
