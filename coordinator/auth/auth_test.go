package auth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

func newKeys(t testing.TB) *auth.Keys {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "everdict.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	st, err := store.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return auth.NewKeys(st, nil)
}

func status(err error) int {
	var p *protocol.Problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}

// The table of roles, scopes and actions that existing clients know.
func TestPermissions(t *testing.T) {
	t.Parallel()
	lowest := map[auth.Action][2]string{
		auth.RunsRead: {"viewer", "read"}, auth.RunsSubmit: {"member", "write"}, auth.HarnessesRead: {"viewer", "read"},
		auth.HarnessesRegister: {"viewer", "write"}, auth.HarnessesDelete: {"admin", "admin"}, auth.TemplatesWrite: {"viewer", "write"},
		auth.MembersRead: {"viewer", "read"}, auth.SettingsWrite: {"admin", "admin"}, auth.RunnersRead: {"viewer", "read"},
		auth.RunnersWrite: {"viewer", "write"}, auth.KeysRead: {"viewer", "read"}, auth.KeysWrite: {"viewer", "write"}, auth.KeysManage: {"admin", "admin"},
		auth.SecretsRead: {"admin", "admin"}, auth.SecretsWrite: {"admin", "admin"},
		auth.OwnSecretsRead: {"viewer", "read"}, auth.OwnSecretsWrite: {"viewer", "write"},
	}
	roles, scopes := []string{"viewer", "member", "admin"}, []string{"read", "write", "admin"}
	for action, need := range lowest {
		for i, role := range roles {
			for j, scope := range append([]string{""}, scopes...) {
				p := auth.Principal{Subject: "ann", Workspace: "w", Roles: []string{role}}
				if scope != "" {
					p.Scopes = []string{scope}
				}
				want := i >= slices.Index(roles, need[0]) && (scope == "" || j-1 >= slices.Index(scopes, need[1]))
				if err := p.Permits(action); (err == nil) != want || err != nil && status(err) != http.StatusForbidden {
					t.Errorf("%s as %s with scope %q: %v, want permitted %v", action, role, scope, err, want)
				}
			}
		}
		for _, p := range []auth.Principal{
			{Subject: "dev", Roles: []string{auth.RoleRunner}, RunnerID: "rnr_1"}, {Subject: "nobody"},
			{Subject: "runtime:r", Roles: []string{auth.RoleRunner}, Pool: &store.PoolTokenRecord{}},
			{Subject: "runtime:r", Roles: []string{auth.RoleRunner}, Join: &store.JoinTokenRecord{}}, {Subject: "odd", Roles: []string{"root"}},
			{Subject: "ann", Roles: []string{"admin"}, Scopes: []string{}}, {Subject: "ann", Roles: []string{"admin"}, Scopes: []string{"root"}},
		} {
			if err := p.Permits(action); status(err) != http.StatusForbidden {
				t.Errorf("%s as %+v: %v, want a 403", action, p, err)
			}
		}
	}
	runner := auth.Principal{Subject: "admin", Roles: []string{auth.RoleRunner}, RunnerID: "rnr_1"}
	if err := runner.Permits(auth.RunsRead); err == nil || !strings.Contains(err.Error(), "the token of a runner, which only connects") {
		t.Errorf("a runner's token that reads runs: %v, want that it only connects", err)
	}
	if err := (auth.Principal{Roles: []string{"admin"}}).Permits("moon:land"); status(err) != http.StatusForbidden {
		t.Errorf("an unknown action: %v, want a 403", err)
	}
	own := auth.Principal{Subject: "ann", Roles: []string{"viewer"}}
	if err := own.PermitsOwn(auth.HarnessesDelete, "ann"); err != nil {
		t.Errorf("delete what one has made: %v", err)
	}
	if err := own.PermitsOwn(auth.HarnessesDelete, "ben"); status(err) != http.StatusForbidden {
		t.Errorf("delete what somebody else made: %v, want a 403", err)
	}
	own.Scopes = []string{"write"}
	if err := own.PermitsOwn(auth.HarnessesDelete, "ann"); status(err) != http.StatusForbidden {
		t.Errorf("delete one's own with a key that may only write: %v, want a 403", err)
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	ann := auth.Principal{Subject: "ann", Workspace: "team", Roles: []string{"viewer", "member"}}
	issued, err := keys.Issue(t.Context(), ann, protocol.KeyRequest{Scopes: []string{"write"}})
	if err != nil {
		t.Fatal(err)
	}
	dev, strict := auth.New(auth.Config{Keys: keys}), auth.New(auth.Config{Keys: keys, Required: true})
	tests := []struct {
		name   string
		a      *auth.Authenticator
		header []string
		status int
		want   string
	}{
		{"nothing, development", dev, nil, 0, "dev@default admin"},
		{"tenant, development", dev, []string{"X-Everdict-Tenant", "acme"}, 0, "dev@acme admin"},
		{"tenant of two lines", dev, []string{"X-Everdict-Tenant", "a\tb"}, 400, ""},
		{"nothing, required", strict, nil, 401, ""},
		{"tenant, required", strict, []string{"X-Everdict-Tenant", "acme"}, 401, ""},
		{"key, development", dev, []string{"Authorization", "Bearer " + issued.APIKey, "X-Everdict-Tenant", "acme"}, 0, "ann@team member"},
		{"key, required", strict, []string{"Authorization", "bearer  " + issued.APIKey}, 0, "ann@team member"},
		{"bad key never falls back", dev, []string{"Authorization", "Bearer ak_" + strings.Repeat("a", 32)}, 401, ""},
		{"no runners here", dev, []string{"Authorization", "Bearer rnr_" + strings.Repeat("a", 32)}, 401, ""},
		{"basic is no bearer", strict, []string{"Authorization", "Basic YTpi"}, 401, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("GET", "http://localhost/runs", nil)
			for i := 0; i+1 < len(tt.header); i += 2 {
				r.Header.Set(tt.header[i], tt.header[i+1])
			}
			p, err := tt.a.Authenticate(r)
			if status(err) != tt.status || tt.status == 0 && err != nil {
				t.Fatalf("error %v, want status %d", err, tt.status)
			}
			if tt.want != "" {
				if got := p.Subject + "@" + p.Workspace + " " + p.Role(); got != tt.want {
					t.Errorf("principal %s, want %s", got, tt.want)
				}
			}
		})
	}
}

func TestF48_QueryCredentials(t *testing.T) {
	t.Parallel()
	key, token := protocol.NewCredential("ak_"), protocol.NewCredential("rnr_")
	id := protocol.NewID(protocol.RunnerPrefix)
	for query, refused := range map[string]bool{
		"":                                  false,
		"runner=" + id:                      false,
		"limit=5&cursor=AQAAAAAAAAAB":       false,
		"token=x":                           true,
		"Access_Token=x":                    true,
		"q=" + key:                          true,
		"q=" + token:                        true,
		"q=%61k_" + key[3:]:                 true,
		"a;b=" + key:                        true, // does not parse
		"q=%zz&x=" + token:                  true,
		key:                                 true,
		"redirect=http://x/?t=" + token:     true,
		"q=task_" + strings.Repeat("a", 32): false,
	} {
		r := httptest.NewRequest("GET", "http://localhost/runs", nil)
		r.URL.RawQuery = query
		err := auth.RefuseQueryCredentials(r.URL)
		if (err != nil) != refused {
			t.Errorf("query %q: %v, want refused %v", query, err, refused)
		}
		if err != nil && (strings.Contains(err.Error(), key) || strings.Contains(err.Error(), token)) {
			t.Errorf("query %q: the answer repeats the credential: %v", query, err)
		}
	}
	for _, prefix := range []string{protocol.RunnerTokenPrefix, protocol.PoolTokenPrefix, protocol.JoinTokenPrefix} {
		secret := protocol.NewCredential(prefix)
		if got := auth.Redact("with " + secret); strings.Contains(got, secret) {
			t.Errorf("a credential that begins with %s is not masked", prefix)
		}
	}
	if got := auth.Redact("GET /runs/" + key + " and " + token + " not " + id); strings.Contains(got, key) || strings.Contains(got, token) || !strings.Contains(got, id) {
		t.Errorf("redacted: %s", got)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	first, err := keys.Bootstrap(t.Context(), "team")
	if err != nil || !strings.HasPrefix(first, "ak_") {
		t.Fatalf("bootstrap: %q, %v", first, err)
	}
	if again, err := keys.Bootstrap(t.Context(), "team"); again != "" || err != nil {
		t.Errorf("bootstrap with a key there: %q, %v; want nothing", again, err)
	}
	writer := auth.Principal{Subject: "ann", Workspace: "team", Roles: []string{"admin"}, Scopes: []string{"write"}}
	if _, err := keys.Issue(t.Context(), writer, protocol.KeyRequest{Scopes: []string{"read", "admin"}}); status(err) != http.StatusForbidden {
		t.Errorf("a key that issues a stronger one: %v, want a 403", err)
	}
	issued, err := keys.Issue(t.Context(), writer, protocol.KeyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := keys.List(t.Context(), writer)
	if err != nil || len(list) != 1 || !slices.Equal(list[0].Scopes, []string{"write"}) {
		t.Errorf("keys %+v, %v; want one with the issuer's own scope", list, err)
	}
	a := auth.New(auth.Config{Keys: keys, Required: true})
	use := func() error {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.Header.Set("Authorization", "Bearer "+issued.APIKey)
		_, err := a.Authenticate(r)
		return err
	}
	for range 2 { // from the database, then from memory
		if err := use(); err != nil {
			t.Fatal(err)
		}
	}
	stranger := auth.Principal{Subject: "ben", Workspace: "team"}
	if err := keys.Delete(t.Context(), stranger, issued.ID); err != nil {
		t.Fatal(err)
	}
	if err := use(); err != nil {
		t.Errorf("after a stranger's delete: %v, want the key to work", err)
	}
	if err := keys.Delete(t.Context(), writer, issued.ID); err != nil {
		t.Fatal(err)
	}
	if err := use(); status(err) != http.StatusUnauthorized {
		t.Errorf("after the delete: %v, want a 401 at once", err)
	}
}

// P15: a key ends and issues only what is within its own scopes, so that the last
// key that may administer a workspace outlives every lesser one; and a refusal
// names the scope, not the role, where the scope is what is missing.
func TestP15_AKeyActsWithinItsScopes(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	first, err := keys.Bootstrap(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	strict := auth.New(auth.Config{Keys: keys, Required: true})
	as := func(key string) (auth.Principal, error) {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		return strict.Authenticate(r)
	}
	admin, err := as(first)
	if err != nil {
		t.Fatal(err)
	}
	all, err := keys.List(t.Context(), admin)
	if err != nil || len(all) != 1 {
		t.Fatalf("keys after the bootstrap: %+v, %v; want one", all, err)
	}
	bootstrap := all[0].ID
	principal := make(map[string]auth.Principal)
	id := make(map[string]string)
	for _, scope := range []string{"read", "write", "admin"} {
		issued, err := keys.Issue(t.Context(), admin, protocol.KeyRequest{Scopes: []string{scope}})
		if err != nil {
			t.Fatal(err)
		}
		id[scope] = issued.ID
		if principal[scope], err = as(issued.APIKey); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		by, ends string
		status   int
	}{
		{"read", "write", http.StatusForbidden}, {"read", "admin", http.StatusForbidden}, {"write", "admin", http.StatusForbidden},
		{"write", "read", 0}, {"write", "write", 0}, {"admin", "admin", 0},
	} {
		target, err := keys.Issue(t.Context(), admin, protocol.KeyRequest{Scopes: []string{row.ends}})
		if err != nil {
			t.Fatal(err)
		}
		if err := keys.Delete(t.Context(), principal[row.by], target.ID); status(err) != row.status || row.status == 0 && err != nil {
			t.Errorf("a %s key ends a %s key: %v, want status %d", row.by, row.ends, err, row.status)
		}
		if _, err := as(target.APIKey); (err == nil) != (row.status != 0) {
			t.Errorf("a %s key that a %s key ended: %v, want it to live: %t", row.ends, row.by, err, row.status != 0)
		}
	}
	if err := keys.Delete(t.Context(), principal["write"], bootstrap); status(err) != http.StatusForbidden {
		t.Errorf("a write key ends the first key: %v, want a 403", err)
	}
	if _, err := as(first); err != nil {
		t.Errorf("the first key after that: %v, want it to work", err)
	}
	if err := keys.Delete(t.Context(), principal["write"], "key_gone"); err != nil {
		t.Errorf("to end what is not there: %v, want no error", err)
	}
	for scope, may := range map[string]bool{"read": true, "write": true, "admin": false} {
		_, err := keys.Issue(t.Context(), principal["write"], protocol.KeyRequest{Scopes: []string{scope}})
		if (err == nil) != may {
			t.Errorf("a write key issues a %s key: %v, want allowed: %t", scope, err, may)
		}
		if err != nil && strings.Contains(err.Error(), "[") {
			t.Errorf("the refusal %q shows a list as Go does", err)
		}
	}

	var p *protocol.Problem
	err = principal["read"].Permits(auth.RunsSubmit)
	if !errors.As(err, &p) || !strings.Contains(p.Message, "this API key has the scope read, and runs:submit needs write") || strings.Contains(p.Error(), "role") {
		t.Errorf("a read key submits: %v, want it to name the key's scope and no role", err)
	}
	viewer := auth.Principal{Subject: "ann", Workspace: "w", Roles: []string{"viewer"}, Scopes: []string{"admin"}}
	if err := viewer.Permits(auth.RunsSubmit); !errors.As(err, &p) || !strings.Contains(p.Hint, "the role member") || strings.Contains(p.Error(), "scope") {
		t.Errorf("a viewer submits: %v, want it to name the role and no scope", err)
	}
}

// An admin makes, sees and ends the keys of others, of its own workspace and with no
// more than it has; nobody else does, and no key ends one with a higher role.
func TestKeysOfOthers(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	strict := auth.New(auth.Config{Keys: keys, Required: true})
	as := func(key string) (auth.Principal, error) {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		return strict.Authenticate(r)
	}
	issue := func(p auth.Principal, req protocol.KeyRequest) (auth.Principal, protocol.IssuedKey) {
		t.Helper()
		issued, err := keys.Issue(t.Context(), p, req)
		if err != nil {
			t.Fatalf("%s issues %+v: %v", p.Subject, req, err)
		}
		made, err := as(issued.APIKey)
		if err != nil {
			t.Fatal(err)
		}
		return made, issued
	}
	first, err := keys.Bootstrap(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := as(first)
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := keys.Tenant(t.Context(), protocol.TenantKeyRequest{Workspace: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := as(tenant.APIKey)
	if err != nil || stranger.Workspace != "acme" || stranger.Role() != "admin" {
		t.Fatalf("the first key of acme acts as %+v, %v; want its admin", stranger, err)
	}
	member, annsKey := issue(admin, protocol.KeyRequest{Subject: "ann"})
	viewer, _ := issue(admin, protocol.KeyRequest{Subject: "ben", Role: "viewer"})
	second, _ := issue(admin, protocol.KeyRequest{Subject: "cleo", Role: "admin"})
	writer, _ := issue(admin, protocol.KeyRequest{Scopes: []string{"write"}})
	less, _ := issue(second, protocol.KeyRequest{Role: "viewer", Scopes: []string{"write"}})
	for _, row := range []struct {
		got  auth.Principal
		want string
	}{{member, "ann@team member"}, {viewer, "ben@team viewer"}, {second, "cleo@team admin"}, {writer, "admin@team admin"}, {less, "cleo@team viewer"}} {
		if got := row.got.Subject + "@" + row.got.Workspace + " " + row.got.Role(); got != row.want {
			t.Errorf("principal %s, want %s", got, row.want)
		}
	}
	for _, row := range []struct {
		name   string
		by     auth.Principal
		req    protocol.KeyRequest
		status int
	}{
		{"a member for another", member, protocol.KeyRequest{Subject: "ben", Role: "viewer"}, http.StatusForbidden},
		{"a viewer for another", viewer, protocol.KeyRequest{Subject: "ann"}, http.StatusForbidden},
		{"an admin's key that may only write, for another", writer, protocol.KeyRequest{Subject: "ann", Role: "viewer"}, http.StatusForbidden},
		{"a member of a higher role", member, protocol.KeyRequest{Role: "admin"}, http.StatusForbidden},
		{"a viewer's key of an admin of a higher role", less, protocol.KeyRequest{Subject: "cleo", Role: "admin"}, http.StatusForbidden},
		{"a role that does not exist", admin, protocol.KeyRequest{Role: "king"}, http.StatusBadRequest},
		{"as the workspace", admin, protocol.KeyRequest{Subject: "ws:team"}, http.StatusBadRequest},
		{"as two lines", admin, protocol.KeyRequest{Subject: "a\nb"}, http.StatusBadRequest},
	} {
		if _, err := keys.Issue(t.Context(), row.by, row.req); status(err) != row.status {
			t.Errorf("%s: %v, want status %d", row.name, err, row.status)
		}
	}

	lists := func(p auth.Principal) (seen []string) {
		t.Helper()
		list, err := keys.List(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list {
			seen = append(seen, strings.TrimSpace(k.Subject+" "+k.Role+" "+k.CreatedBy))
		}
		slices.Sort(seen)
		return seen
	}
	everybody := []string{"admin admin", "admin admin", "ann member admin", "ben viewer admin", "cleo admin admin", "cleo viewer"}
	for _, row := range []struct {
		by   auth.Principal
		want []string
	}{
		{admin, everybody}, {second, everybody}, {writer, []string{"admin admin", "admin admin"}}, {member, []string{"ann member admin"}},
		{less, []string{"cleo admin admin", "cleo viewer"}}, {stranger, []string{"admin admin operator"}},
	} {
		if got := lists(row.by); !slices.Equal(got, row.want) {
			t.Errorf("%s@%s %s sees %q, want %q", row.by.Subject, row.by.Workspace, row.by.Role(), got, row.want)
		}
	}

	// Of cleo's two keys the viewer's may not end the admin's.
	list, err := keys.List(t.Context(), less)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(k protocol.Key) bool { return k.Role == "admin" })
	if err := keys.Delete(t.Context(), less, list[i].ID); status(err) != http.StatusForbidden {
		t.Errorf("a viewer's key ends an admin's of the same person: %v, want a 403", err)
	}
	for _, row := range []struct {
		by   auth.Principal
		ends bool
	}{{viewer, false}, {stranger, false}, {writer, false}, {second, true}} {
		if err := keys.Delete(t.Context(), row.by, annsKey.ID); err != nil {
			t.Errorf("%s@%s ends ann's key: %v", row.by.Subject, row.by.Workspace, err)
		}
		if _, err := as(annsKey.APIKey); (err != nil) != row.ends {
			t.Errorf("ann's key after %s@%s ended it: %v, want ended: %t", row.by.Subject, row.by.Workspace, err, row.ends)
		}
	}
}

// TestTokensThatJoinDoNothingElse: neither kind permits an action, and each says so.
func TestTokensThatJoinDoNothingElse(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]auth.Principal{
		"pool token": {Workspace: "w", Roles: []string{auth.RoleRunner}, Pool: &store.PoolTokenRecord{PoolToken: protocol.PoolToken{Runtime: "prod"}}},
		"join token": {Workspace: "w", Roles: []string{auth.RoleRunner}, Join: &store.JoinTokenRecord{Runtime: "prod"}},
	} {
		var problem *protocol.Problem
		if err := p.Permits(auth.RunsRead); !errors.As(err, &problem) || problem.Status != http.StatusForbidden || !strings.Contains(problem.Hint, "prod") {
			t.Errorf("%s: %v, want a 403 that names the runtime", name, err)
		}
	}
}
