package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/protocol"
)

const (
	template = `{"kind":"command","id":"agent","version":"1.0.0","category":"coding","image":"agent:1","command":"agent {{task}}","env":{"A":"1","B":"2"},"params":{"p":"1"}}`
	instance = `{"template":{"id":"agent","version":"latest"},"id":"mine","version":"1.0.0","pins":{"model":"m1"},"overrides":{"env":{"C":"3"},"unsetEnv":["A"],"params":{"q":"2"}},"extra":"dropped"}`
)

func TestHarnessesOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	e.do("POST", "/harness-templates", template).wants(http.StatusCreated)
	var registered protocol.Registered
	e.do("POST", "/harnesses", instance).wants(http.StatusCreated).into(&registered)
	if want := (protocol.Registered{Workspace: "default", ID: "mine", Version: "1.0.0"}); registered != want {
		t.Errorf("registered %+v, want %+v", registered, want)
	}
	e.do("POST", "/harnesses", instance).wants(http.StatusCreated) // the same again
	p := e.do("POST", "/harnesses", strings.Replace(instance, `"m1"`, `"m2"`, 1)).problem(http.StatusConflict, protocol.CodeConflict)
	if !strings.Contains(p.Hint, "new version") {
		t.Errorf("hint of a conflict %q, want it to ask for a new version", p.Hint)
	}
	var spec protocol.HarnessSpec
	e.do("GET", "/harnesses/mine/latest", "").wants(http.StatusOK).into(&spec)
	want := protocol.HarnessSpec{
		Kind: "command", ID: "mine", Version: "1.0.0", Image: "agent:1", Command: "agent {{task}}", Setup: []string{}, Trace: &protocol.CommandTrace{Kind: protocol.TraceNone},
		Env:   map[string]protocol.EnvValue{"B": {Value: "2"}, "C": {Value: "3"}},
		Model: &protocol.ModelBinding{Name: "m1"}, Params: map[string]string{"p": "1", "q": "2"},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("resolved harness (-want +got):\n%s", diff)
	}
	e.do("GET", "/harnesses/mine/1.0.0/instance", "").wants(http.StatusOK)
	e.do("POST", "/harnesses", `{"kind":"command","id":"plain","version":"1","command":"x {{task}}"}`).wants(http.StatusCreated)
	e.do("GET", "/harnesses/plain/1/instance", "").problem(http.StatusNotFound, protocol.CodeNotFound)
	e.do("DELETE", "/harnesses/plain/versions/1", "").wants(http.StatusOK)
	e.do("GET", "/harnesses/scripted", "").wants(http.StatusOK)
	e.do("GET", "/harnesses/scripted/latest", "").wants(http.StatusOK)

	// A pin without a digest could change what runs.
	e.do("POST", "/harnesses/mine/pins", `{"version":"1.1.0","pins":{"image":"agent:2"}}`).problem(http.StatusBadRequest, protocol.CodeBadRequest)
	var pinned protocol.Pinned
	e.do("POST", "/harnesses/mine/pins", `{"version":"1.1.0","pins":{"image":"agent:2"},"allowTags":true}`).wants(http.StatusCreated).into(&pinned)
	if pinned.Base != "1.0.0" || pinned.Version != "1.1.0" || pinned.Unchanged {
		t.Errorf("pinned %+v", pinned)
	}
	e.do("POST", "/harnesses/mine/pins", `{"version":"1.2.0","pins":{"image":"agent:2"},"allowTags":true}`).wants(http.StatusOK).into(&pinned)
	if !pinned.Unchanged || pinned.Version != "1.1.0" {
		t.Errorf("the same pins again: %+v, want unchanged 1.1.0", pinned)
	}
	var diff protocol.SpecDiff
	e.do("GET", "/harnesses/mine/diff?base=1.0.0&candidate=latest", "").wants(http.StatusOK).into(&diff)
	if want := []protocol.SpecChange{{Path: "image", Op: "changed", Base: "agent:1", Candidate: "agent:2"}}; !cmp.Equal(want, diff.Changes) {
		t.Errorf("diff %+v, want %+v", diff.Changes, want)
	}
	var tagged protocol.Tagged
	e.do("PUT", "/harnesses/mine/versions/latest/tags", `{"tags":["prod"]}`).wants(http.StatusOK).into(&tagged)
	var versions protocol.Versions
	e.do("GET", "/harnesses/mine", "").wants(http.StatusOK).into(&versions)
	if want := (protocol.Versions{ID: "mine", Versions: []string{"1.0.0", "1.1.0"}, VersionTags: map[string][]string{"1.1.0": {"prod"}}}); !cmp.Equal(want, versions) {
		t.Errorf("versions %+v, want %+v", versions, want)
	}
	var valid protocol.Validation
	e.do("POST", "/harnesses/validate", `{"kind":"command","id":"mine","version":"1.0.0","resources":{"cpu":-1}}`).wants(http.StatusOK).into(&valid)
	if valid.OK || len(valid.Errors) != 2 || !valid.VersionExists {
		t.Errorf("validation %+v, want two faults and that the version exists", valid)
	}
	e.do("POST", "/harnesses/validate", `{"kind":"command","id":"new","version":"1","command":"x"}`).wants(http.StatusOK).into(&valid)
	if !valid.OK {
		t.Errorf("validation of a good spec: %+v", valid)
	}
	var entries []protocol.HarnessEntry
	e.do("GET", "/harnesses", "").wants(http.StatusOK).into(&entries)
	if len(entries) != 1 || entries[0].LatestVersion != "1.1.0" || entries[0].TemplateID != "agent" || entries[0].Category != "coding" || entries[0].Kind != "command" {
		t.Errorf("harnesses %+v", entries)
	}
	var deleted protocol.Deleted
	e.do("DELETE", "/harnesses/mine/versions/1.1.0", "").wants(http.StatusOK).into(&deleted)
	e.do("DELETE", "/harnesses/mine/versions/1.1.0", "").problem(http.StatusNotFound, protocol.CodeNotFound)
	e.do("GET", "/harnesses/mine/latest", "").wants(http.StatusOK).into(&spec)
	if !deleted.Deleted || spec.Version != "1.0.0" {
		t.Errorf("latest after deleting %+v is %s, want 1.0.0", deleted, spec.Version)
	}
}

func TestRunnersOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	var paired protocol.Paired
	e.do("POST", "/runners", `{"label":"my-mac","capabilities":["git"]}`, "X-Forwarded-Proto", "https").wants(http.StatusOK).into(&paired)
	if want := "everdict runner --pair - --api-url https://" + strings.TrimPrefix(e.url, "http://"); paired.AttachCommand != want {
		t.Errorf("attach command %q, want %q", paired.AttachCommand, want)
	}
	if paired.Runner.Target != "self:"+paired.Runner.ID || paired.Runner.Online {
		t.Errorf("paired %+v, want it offline with its target", paired.Runner)
	}
	e.do("POST", "/runs", strings.Replace(goodRun, "{", `{"runtime":"self:`+paired.Runner.ID+`",`, 1)).wants(http.StatusAccepted)

	var shared protocol.Paired
	e.do("POST", "/workspace/runners", `{"label":"ci"}`).wants(http.StatusOK).into(&shared)
	if shared.Runner.Owner != pairing.WorkspaceOwner("default") {
		t.Errorf("owner of a workspace's runner = %q", shared.Runner.Owner)
	}
	for path, want := range map[string][]string{
		"/runners": {"my-mac"}, "/workspace/runners": {"ci", "my-mac"}, "/workspace/runners/owned": {"ci"},
	} {
		var list protocol.Runners
		e.do("GET", path, "").wants(http.StatusOK).into(&list)
		var labels []string
		for _, r := range list.Runners {
			labels = append(labels, r.Label)
		}
		if !cmp.Equal(want, labels) {
			t.Errorf("%s lists %v, want %v", path, labels, want)
		}
	}

	// A runner's token connects a runner, and does nothing else.
	token := []string{"Authorization", "Bearer " + paired.Token}
	var me protocol.Me
	e.do("GET", "/me", "", token...).wants(http.StatusOK).into(&me)
	if me.RunnerID != paired.Runner.ID || me.Via != auth.ViaRunner {
		t.Errorf("me by a runner's token = %+v", me)
	}
	for _, request := range [][2]string{{"POST", "/runners"}, {"GET", "/runners"}, {"POST", "/keys"}, {"GET", "/runs"}, {"POST", "/runs"}, {"GET", "/metrics"}} {
		e.do(request[0], request[1], "", token...).problem(http.StatusForbidden, protocol.CodeForbidden)
	}

	e.do("DELETE", "/runners/"+shared.Runner.ID, "").wants(http.StatusNoContent) // not one's own: nothing happens
	e.do("GET", "/me", "", "Authorization", "Bearer "+shared.Token).wants(http.StatusOK)
	e.do("DELETE", "/workspace/runners/"+shared.Runner.ID, "").wants(http.StatusNoContent)
	e.do("DELETE", "/runners/"+paired.Runner.ID, "").wants(http.StatusNoContent)
	e.do("DELETE", "/runners/"+paired.Runner.ID, "").wants(http.StatusNoContent)
	p := e.do("GET", "/me", "", token...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	if p.Data["reason"] != "revoked" {
		t.Errorf("a revoked runner is told %+v, want the reason revoked", p)
	}
}

// The command is made to be pasted into a shell, and the Host is the client's.
func TestAttachCommandIsQuoted(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{auth: auth.Config{AnyHost: true}})
	req, err := http.NewRequestWithContext(t.Context(), "POST", e.url+"/runners", strings.NewReader(`{"label":"mac"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "x$(reboot);'a'"
	req.Header.Set("X-Forwarded-Proto", "https")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var paired protocol.Paired
	if err := json.NewDecoder(res.Body).Decode(&paired); err != nil {
		t.Fatal(err)
	}
	if want := `everdict runner --pair - --api-url 'https://x$(reboot);'\''a'\'''`; paired.AttachCommand != want {
		t.Errorf("attach command %s, want %s", paired.AttachCommand, want)
	}
}

// Who operates the coordinator makes the first key of a workspace, whose admin makes the
// others; nobody else makes either.
func TestTenantKeys(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef0123456789abcdef"
	const path, body = "/internal/tenant-keys", `{"workspace":"acme"}`
	header := func(pairs ...string) []string { return pairs }
	none := newEnv(t, options{auth: auth.Config{Required: true}})
	for _, h := range [][]string{nil, header("X-Internal-Token", ""), header("X-Internal-Token", token)} {
		if p := none.do("POST", path, body, h...).problem(http.StatusNotFound, protocol.CodeNotFound); !strings.Contains(p.Hint, "EVERDICT_INTERNAL_TOKEN") {
			t.Errorf("without an operator the hint is %q, want how to have one", p.Hint)
		}
	}

	e := newEnv(t, options{auth: auth.Config{Required: true, InternalToken: token}})
	admin, err := e.keys.Bootstrap(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	bearer := func(key string) []string { return header("Authorization", "Bearer "+key) }
	for name, h := range map[string][]string{
		"nothing": nil, "a part of it": header("X-Internal-Token", token[:31]), "another": header("X-Internal-Token", token+"0"),
		"an admin": bearer(admin), "the token as a bearer": bearer(token),
	} {
		p := e.do("POST", path, "{", h...).problem(http.StatusForbidden, protocol.CodeForbidden) // before the body is looked at
		if p.Hint == "" || strings.Contains(p.Message+p.Hint, token) {
			t.Errorf("%s: %q, %q; want a hint, and not the token", name, p.Message, p.Hint)
		}
	}
	operator := header("X-Internal-Token", token)
	e.do("POST", path+"?token="+token, body, operator...).problem(http.StatusBadRequest, protocol.CodeBadRequest)
	e.do("POST", path, `{"workspace":"a/b"}`, operator...).problem(http.StatusBadRequest, protocol.CodeBadRequest)
	e.do("GET", "/keys", "", operator...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated) // it opens nothing else
	var first protocol.TenantKey
	r := e.do("POST", path, body, operator...).wants(http.StatusCreated)
	r.into(&first)
	if first.Workspace != "acme" || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("a first key of %q with Cache-Control %q, want acme and no-store", first.Workspace, r.header.Get("Cache-Control"))
	}

	var ann protocol.IssuedKey
	e.do("POST", "/keys", `{"subject":"ann","role":"member","label":"laptop"}`, bearer(first.APIKey)...).wants(http.StatusCreated).into(&ann)
	var me protocol.Me
	e.do("GET", "/me", "", bearer(ann.APIKey)...).wants(http.StatusOK).into(&me)
	if me.Subject != "ann" || me.Workspace != "acme" || len(me.Roles) != 1 || me.Roles[0] != protocol.RoleMember {
		t.Errorf("ann's key acts as %+v, want a member of acme", me)
	}
	e.do("POST", "/keys", `{"subject":"ben"}`, bearer(ann.APIKey)...).problem(http.StatusForbidden, protocol.CodeForbidden)
	for key, want := range map[string]int{first.APIKey: 2, ann.APIKey: 1, admin: 1} {
		var list []protocol.Key
		e.do("GET", "/keys", "", bearer(key)...).wants(http.StatusOK).into(&list)
		if len(list) != want {
			t.Errorf("keys %+v, want %d", list, want)
		}
	}
	e.do("DELETE", "/keys/"+ann.ID, "", bearer(admin)...).wants(http.StatusNoContent) // of another workspace: it is not there
	e.do("GET", "/me", "", bearer(ann.APIKey)...).wants(http.StatusOK)
	e.do("DELETE", "/keys/"+ann.ID, "", bearer(first.APIKey)...).wants(http.StatusNoContent)
	e.do("GET", "/me", "", bearer(ann.APIKey)...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	if strings.Contains(e.log.String(), token) {
		t.Error("the log has the internal token")
	}
}

func TestKeysOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{auth: auth.Config{Required: true}})
	e.do("GET", "/me", "").problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	admin, err := e.keys.Bootstrap(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	bearer := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	var reader protocol.IssuedKey
	e.do("POST", "/keys", `{"label":"dashboards","scopes":["read"]}`, bearer(admin)...).wants(http.StatusCreated).into(&reader)
	e.do("GET", "/runs", "", bearer(reader.APIKey)...).wants(http.StatusOK)
	p := e.do("POST", "/runs", goodRun, bearer(reader.APIKey)...).problem(http.StatusForbidden, protocol.CodeForbidden)
	if p.Data["action"] != "runs:submit" || p.Data["workspace"] != "team" {
		t.Errorf("a 403 says %v, want the action and the workspace", p.Data)
	}
	e.do("POST", "/keys", `{"scopes":["admin"]}`, bearer(reader.APIKey)...).problem(http.StatusForbidden, protocol.CodeForbidden)
	var keys []protocol.Key
	r := e.do("GET", "/keys", "", bearer(admin)...).wants(http.StatusOK)
	r.into(&keys)
	if len(keys) != 2 || keys[0].ID != reader.ID || keys[0].Prefix != reader.APIKey[:12] {
		t.Errorf("keys %+v, want the new one first, known by its prefix", keys)
	}
	if strings.Contains(string(r.body), reader.APIKey) {
		t.Error("the list shows a key's value")
	}
	e.do("DELETE", "/keys/"+reader.ID, "", bearer(admin)...).wants(http.StatusNoContent)
	e.do("DELETE", "/keys/"+reader.ID, "", bearer(admin)...).wants(http.StatusNoContent)
	e.do("GET", "/runs", "", bearer(reader.APIKey)...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	// The workspace is the key's, whatever the header of the development mode says.
	var me protocol.Me
	e.do("GET", "/me", "", "Authorization", "Bearer "+admin, "x-everdict-tenant", "other").wants(http.StatusOK).into(&me)
	if me.Workspace != "team" || me.Subject != "admin" {
		t.Errorf("me = %+v, want the key's own workspace", me)
	}
}
