package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// key is a credential of somebody with a role.
func (e *env) key(subject, role string, scopes ...string) []string {
	e.t.Helper()
	value := protocol.NewCredential(protocol.APIKeyPrefix)
	if len(scopes) == 0 {
		scopes = []string{protocol.ScopeAdmin}
	}
	err := e.store.InsertKey(e.t.Context(), store.KeyRecord{
		Key:       protocol.Key{ID: protocol.NewID(protocol.KeyPrefix), Subject: subject, Role: role, Scopes: scopes, CreatedAt: protocol.At(time.Now())},
		Workspace: "default", Hash: store.HashSecret(value),
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return []string{"Authorization", "Bearer " + value}
}

// listed are the secrets that somebody sees: "scope NAME".
func (e *env) listed(header ...string) string {
	e.t.Helper()
	var list []protocol.Secret
	e.do("GET", "/secrets", "", header...).wants(http.StatusOK).into(&list)
	var names []string
	for _, s := range list {
		if s.Kind != protocol.SecretPlain || s.UpdatedAt.IsZero() {
			e.t.Errorf("listed %+v, want its kind and time", s)
		}
		names = append(names, s.Scope+" "+s.Name)
	}
	return strings.Join(names, ", ")
}

// TestP12_SecretsOverHTTP: they are set, listed, used and deleted, and no answer, no
// log line and no document has a value.
func TestP12_SecretsOverHTTP(t *testing.T) {
	t.Parallel()
	const value = "hunter2-and-more"
	e := newEnv(t, options{})
	var seen strings.Builder
	do := func(method, path, body string, status int) reply {
		r := e.do(method, path, body).wants(status)
		fmt.Fprintf(&seen, "%v %s\n", r.header, r.body)
		return r
	}
	if r := do("PUT", "/secrets/DEPLOY_TOKEN", `{"value":"`+value+`"}`, http.StatusNoContent); len(r.body) != 0 {
		t.Errorf("a 204 has a body: %s", r.body)
	}
	do("PUT", "/secrets/DEPLOY_TOKEN", `{"value":"`+value+` again","scope":"workspace"}`, http.StatusNoContent)
	do("PUT", "/secrets/MINE", `{"value":"`+value+`","scope":"user","extra":1}`, http.StatusNoContent)
	if got := e.listed(); got != "workspace DEPLOY_TOKEN, user MINE" {
		t.Errorf("listed %s", got)
	}
	if got := e.listed("x-everdict-tenant", "other"); got != "" {
		t.Errorf("another workspace sees %s", got)
	}
	do("POST", "/harnesses", `{"kind":"command","id":"h","version":"1","command":"x","env":{"T":{"secretRef":"DEPLOY_TOKEN"},"M":{"secretRef":"MINE","scope":"user"},"P":"plain"}}`, http.StatusCreated)
	do("POST", "/harness-templates", `{"kind":"command","id":"t","version":"1","category":"c","command":"x","env":{"OLD":{"secretRef":"DEPLOY_TOKEN"}}}`, http.StatusCreated)
	do("POST", "/harnesses", `{"template":{"id":"t","version":"1"},"id":"i","version":"2","overrides":{"env":{"NEW":{"secretRef":"DEPLOY_TOKEN","scope":"workspace"}}}}`, http.StatusCreated)
	do("POST", "/harnesses", `{"kind":"command","id":"gone","version":"1","command":"x","env":{"T":{"secretRef":"DEPLOY_TOKEN"}}}`, http.StatusCreated)
	do("DELETE", "/harnesses/gone/versions/1", "", http.StatusOK)
	var usage []protocol.SecretUsage
	do("GET", "/secrets/usage", "", http.StatusOK).into(&usage)
	use := func(label, id, version, variable string) protocol.SecretUse {
		return protocol.SecretUse{Kind: "harness", Field: "env", Label: label, ResourceID: id, Version: version, Detail: variable}
	}
	want := map[string][]protocol.SecretUse{
		"DEPLOY_TOKEN": {use("h@1", "h", "1", "T"), use("i@2", "i", "2", "NEW"), use("i@2", "i", "2", "OLD")},
		"MINE":         {use("h@1", "h", "1", "M")},
	}
	got := map[string][]protocol.SecretUse{}
	for _, u := range usage {
		got[u.Name] = u.Refs
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if v, err := e.secrets.Resolve(t.Context(), secret.Owner{Workspace: "default", Subject: "dev"}, protocol.SecretRef{SecretRef: "DEPLOY_TOKEN"}); err != nil || v != value+" again" {
		t.Errorf("resolved %q, %v, want the value that was set last", v, err)
	}
	for _, path := range []string{"/secrets", "/harnesses/h/1", "/openapi.json", "/docs", "/me"} {
		do("GET", path, "", http.StatusOK)
	}
	do("GET", "/secrets/DEPLOY_TOKEN", "", http.StatusMethodNotAllowed)
	do("PUT", "/secrets/BAD", `{"value":"`+value+`","scope":`, http.StatusBadRequest)
	do("PUT", "/secrets/BAD", `{"value":{"of":"`+value+`"}}`, http.StatusBadRequest)
	do("PUT", "/secrets/BAD", `["`+value+`"]`, http.StatusBadRequest)
	do("DELETE", "/secrets/DEPLOY_TOKEN", "", http.StatusNoContent)
	do("DELETE", "/secrets/MINE?scope=user", "", http.StatusNoContent)
	do("DELETE", "/secrets/MINE?scope=user", "", http.StatusNoContent) // the answer to the first may have been lost
	if got := e.listed(); got != "" {
		t.Errorf("after their deletion, %s", got)
	}
	seen.WriteString(e.log.String())
	if strings.Contains(seen.String(), "hunter2") {
		t.Errorf("the value was told:\n%s", seen.String())
	}
}

// TestP12_WhoMaySeeAndSetSecrets: the workspace's are the admins', one's own are one's
// own, and a runner has none.
func TestP12_WhoMaySeeAndSetSecrets(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	admin, member, viewer := e.key("root", protocol.RoleAdmin), e.key("ann", protocol.RoleMember), e.key("vic", protocol.RoleViewer)
	writer, reader := e.key("root", protocol.RoleAdmin, protocol.ScopeWrite), e.key("ann", protocol.RoleMember, protocol.ScopeRead)
	paired, err := e.runners.Pair(t.Context(), "default", pairing.WorkspaceOwner("default"), protocol.PairRequest{Label: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	runner := []string{"Authorization", "Bearer " + paired.Token}
	const ours, own = `{"value":"value of all"}`, `{"value":"value of one","scope":"user"}`
	for _, row := range []struct {
		who        string
		with       []string
		ours, own  int
		read, uses int
		sees       string
	}{
		{"an admin", admin, 204, 204, 200, 200, "workspace T, user T"},
		{"an admin whose key may write", writer, 403, 204, 200, 403, "user T"},
		{"a member", member, 403, 204, 200, 403, "user T"},
		{"a member whose key may read", reader, 403, 403, 200, 403, "user T"},
		{"a viewer", viewer, 403, 204, 200, 403, "user T"},
		{"a runner", runner, 403, 403, 403, 403, ""},
	} {
		for _, call := range []struct {
			method, path, body string
			status             int
		}{
			{"PUT", "/secrets/T", ours, row.ours}, {"PUT", "/secrets/T", own, row.own},
			{"GET", "/secrets", "", row.read}, {"GET", "/secrets/usage", "", row.uses},
		} {
			r := e.do(call.method, call.path, call.body, row.with...)
			if r.status != call.status {
				t.Errorf("%s: %s %s %s: status %d, want %d: %s", row.who, call.method, call.path, call.body, r.status, call.status, r.body)
			}
		}
		if row.read == http.StatusOK {
			if got := e.listed(row.with...); got != row.sees {
				t.Errorf("%s sees %q, want %q", row.who, got, row.sees)
			}
		}
	}
	p := e.do("DELETE", "/secrets/T", "", member...).problem(http.StatusForbidden, protocol.CodeForbidden)
	if p.Data["action"] != "secrets:write" || p.Hint == "" {
		t.Errorf("a 403 says %+v, want the action and a hint", p)
	}
	// Each deletes their own, and no other's.
	e.do("DELETE", "/secrets/T?scope=user", "", viewer...).wants(http.StatusNoContent)
	if got := e.listed(viewer...) + "; " + e.listed(member...) + "; " + e.listed(admin...); got != "; user T; workspace T, user T" {
		t.Errorf("afterwards %s", got)
	}
}
