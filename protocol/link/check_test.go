package link

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Check tells a good credential from a bad one, and a coordinator from anything else, and makes no session.
func TestF35_CheckMakesNoSession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := DialConfig{URL: b.server.URL, Credential: testToken}
	noErr(t, "check", Check(t.Context(), cfg))
	cfg.URL = "ws" + strings.TrimPrefix(b.server.URL, "http")
	noErr(t, "check ws://", Check(t.Context(), cfg))
	if n := b.acceptor.Sessions(); n != 0 {
		t.Errorf("after Check there are %d sessions, want none", n)
	}

	var revoked *RevokedError
	cfg.Credential = Secret("rnr_other")
	if err := Check(t.Context(), cfg); !errors.As(err, &revoked) {
		t.Errorf("another credential: got %v, want a *RevokedError", err)
	}
	var bad *ConfigError
	if err := Check(t.Context(), DialConfig{URL: b.server.URL}); !errors.As(err, &bad) {
		t.Errorf("no credential: got %v, want a *ConfigError", err)
	}

	b.acceptor.Drain(Drain{RetryAfter: Duration(time.Second)})
	var draining *DrainingError
	if err := Check(t.Context(), DialConfig{URL: b.server.URL, Credential: testToken}); !errors.As(err, &draining) {
		t.Errorf("while draining: got %v, want a *DrainingError", err)
	}

	for status, want := range map[int]int{http.StatusOK: 200, http.StatusFound: 302, http.StatusForbidden: 403} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(web.Close)
		var other *HTTPError
		if err := Check(t.Context(), DialConfig{URL: web.URL, Credential: testToken}); !errors.As(err, &other) || other.Status != want || Terminal(err) {
			t.Errorf("a web server that answers %d: got %v, want a *HTTPError that is not terminal", status, err)
		}
	}
}
