package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// TestPoolTokensOverHTTP: a token is shown once, lets machines join its runtime's
// pool and nothing else, and is of no use once it is revoked.
func TestPoolTokensOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	e.do("POST", "/pools/tokens", `{"runtime":"prod"}`).problem(http.StatusNotFound, protocol.CodeNotFound)
	e.do("POST", "/runtimes", nomadRuntime).wants(http.StatusCreated)
	for _, body := range []string{`{}`, `{"runtime":"prod","expiresInSec":0}`, `{"runtime":"prod","expiresInSec":99999999999}`} {
		e.do("POST", "/pools/tokens", body).problem(http.StatusBadRequest, protocol.CodeBadRequest)
	}
	var issued protocol.IssuedPoolToken
	r := e.do("POST", "/pools/tokens", `{"runtime":"prod","label":"deployment","expiresInSec":3600}`).wants(http.StatusCreated)
	r.into(&issued)
	if r.header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(issued.Token, "plt_") || strings.Contains(issued.JoinCommand, issued.Token) {
		t.Errorf("issued %+v with %v; want a token that is cached nowhere and stands in no command", issued, r.header)
	}
	if listed := e.do("GET", "/pools/tokens", "").wants(http.StatusOK); strings.Contains(string(listed.body), issued.Token) || !strings.Contains(string(listed.body), issued.PoolToken.ID) {
		t.Errorf("listed %s", listed.body)
	}
	bearer := []string{"Authorization", "Bearer " + issued.Token}
	for _, route := range []string{"GET /runs", "POST /runs", "GET /runners", "POST /runners", "GET /pools", "POST /pools/tokens", "GET /runtimes", "DELETE /keys/x"} {
		method, path, _ := strings.Cut(route, " ")
		e.do(method, path, "", bearer...).problem(http.StatusForbidden, protocol.CodeForbidden)
	}
	e.do("POST", "/agent/join", `{}`).problem(http.StatusForbidden, protocol.CodeForbidden)
	e.do("POST", "/agent/join?token="+issued.Token, `{}`).problem(http.StatusBadRequest, protocol.CodeBadRequest)
	var one, two protocol.Joined
	e.do("POST", "/agent/join", `{"label":"pod-1","os":"linux"}`, bearer...).wants(http.StatusCreated).into(&one)
	e.do("POST", "/agent/join", ``, bearer...).wants(http.StatusCreated).into(&two)
	if one.Runner.ID == two.Runner.ID || one.Token == two.Token || one.Runner.Runtime != "prod" || one.Runner.Target != "prod" || two.Runner.Label != "prod" {
		t.Errorf("joined as %+v and %+v", one.Runner, two.Runner)
	}
	e.do("GET", "/runs", "", "Authorization", "Bearer "+one.Token).problem(http.StatusForbidden, protocol.CodeForbidden)
	var list protocol.Runners
	if e.do("GET", "/workspace/runners", "").wants(http.StatusOK).into(&list); len(list.Runners) != 2 {
		t.Errorf("the roster has %+v, want both", list.Runners)
	}
	if e.do("GET", "/runners", "").wants(http.StatusOK).into(&list); len(list.Runners) != 0 {
		t.Errorf("one's own runners are %+v, want none", list.Runners)
	}

	e.do("DELETE", "/pools/tokens/"+issued.PoolToken.ID, "", "X-Everdict-Tenant", "other").wants(http.StatusNoContent)
	e.do("POST", "/agent/join", ``, bearer...).wants(http.StatusCreated) // another workspace cannot revoke it
	for range 2 {
		e.do("DELETE", "/pools/tokens/"+issued.PoolToken.ID, "").wants(http.StatusNoContent)
	}
	p := e.do("POST", "/agent/join", ``, bearer...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	if p.Data["reason"] != "revoked" || !strings.Contains(p.Hint, "everdict pools token create --runtime prod") {
		t.Errorf("a revoked token: %+v", p)
	}
	if e.do("GET", "/workspace/runners", "").wants(http.StatusOK).into(&list); len(list.Runners) != 0 {
		t.Errorf("the roster has %+v after the revocation", list.Runners)
	}
	p = e.do("GET", "/me", "", "Authorization", "Bearer plt_"+strings.Repeat("x", 32)).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	if p.Data["reason"] != "unknown" {
		t.Errorf("an unknown token: %+v", p)
	}
	if strings.Contains(e.log.String(), issued.Token) {
		t.Error("the log has the token")
	}
}
