package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

const nomadRuntime = `{"kind":"nomad","id":"prod","version":"1.0.0","addr":"https://nomad.internal:4646","image":"job-runner:1","authSecret":"nomad-acl-token","maxConcurrent":24,"extra":"dropped"}`

func TestRuntimesOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	var none []protocol.RuntimeEntry
	if e.do("GET", "/runtimes", "").wants(http.StatusOK).into(&none); len(none) != 0 {
		t.Errorf("a new coordinator has the runtimes %+v, want none", none)
	}
	var registered protocol.Registered
	e.do("POST", "/runtimes", nomadRuntime).wants(http.StatusCreated).into(&registered)
	if want := (protocol.Registered{Workspace: "default", ID: "prod", Version: "1.0.0"}); registered != want {
		t.Errorf("registered %+v, want %+v", registered, want)
	}
	// What was read can be registered again as the same.
	stored := e.do("GET", "/runtimes/prod/versions/latest", "").wants(http.StatusOK)
	e.do("POST", "/runtimes", string(stored.body)).wants(http.StatusCreated)
	e.do("POST", "/runtimes", nomadRuntime).wants(http.StatusCreated)
	var spec protocol.RuntimeSpec
	stored.into(&spec)
	if d := cmp.Diff([]string{"docker"}, spec.Capabilities); d != "" || spec.Tags == nil || spec.AuthSecret != "nomad-acl-token" {
		t.Errorf("stored spec %+v, capabilities (-want +got):\n%s", spec, d)
	}
	p := e.do("POST", "/runtimes", strings.Replace(nomadRuntime, "24", "25", 1)).problem(http.StatusConflict, protocol.CodeConflict)
	if !strings.Contains(p.Hint, "new version") {
		t.Errorf("hint of a conflict %q, want it to ask for a new version", p.Hint)
	}
	if got := e.limits["default/prod"]; got != 24 {
		t.Errorf("the pool admits %d runs after a refused version, want 24", got)
	}
	e.do("POST", "/runtimes", strings.NewReplacer("24", "2", "1.0.0", "1.10.0").Replace(nomadRuntime)).wants(http.StatusCreated)
	e.do("POST", "/runtimes", strings.NewReplacer("24", "7", "1.0.0", "1.9.0").Replace(nomadRuntime)).wants(http.StatusCreated)
	if got := e.limits["default/prod"]; got != 2 {
		t.Errorf("the pool admits %d runs, want the 2 of the highest version", got)
	}
	e.do("POST", "/runtimes", `{"kind":"local","id":"a","version":"1"}`).wants(http.StatusCreated)
	e.do("PUT", "/runtimes/prod/versions/latest/tags", `{"tags":["live"]}`).wants(http.StatusOK)
	var list []protocol.RuntimeEntry
	e.do("GET", "/runtimes", "").wants(http.StatusOK).into(&list)
	if len(list) != 2 || list[0].ID != "a" || list[0].Capabilities != nil || list[1].LatestVersion != "1.10.0" ||
		!cmp.Equal(list[1].Versions, []string{"1.0.0", "1.9.0", "1.10.0"}) || !cmp.Equal(list[1].VersionTags, map[string][]string{"1.10.0": {"live"}}) {
		t.Errorf("runtimes %+v", list)
	}
	e.do("GET", "/runtimes/prod/versions/3", "").problem(http.StatusNotFound, protocol.CodeNotFound)
	e.do("GET", "/runtimes/nope/versions/latest", "").problem(http.StatusNotFound, protocol.CodeNotFound)
	e.do("GET", "/runtimes/prod/versions/latest", "", "X-Everdict-Tenant", "other").problem(http.StatusNotFound, protocol.CodeNotFound)
}

// TestP15_RemovedRuntimeKinds: who knows the kinds of old is told what to do.
func TestP15_RemovedRuntimeKinds(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	for kind, want := range map[string]string{"docker": "everdict runners pair", "topology": "traceSource", "slurm": "local, nomad or k8s"} {
		p := e.do("POST", "/runtimes", `{"kind":"`+kind+`","id":"x","version":"1"}`).problem(http.StatusBadRequest, protocol.CodeBadRequest)
		if !strings.Contains(p.Message, want) {
			t.Errorf("kind %s: %q, want it to name %q", kind, p.Message, want)
		}
	}
	e.do("GET", "/runtimes/x/versions/latest", "").problem(http.StatusNotFound, protocol.CodeNotFound)
}

func TestValidateRuntime(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	validate := func(body string) (v protocol.RuntimeValidation) {
		t.Helper()
		e.do("POST", "/runtimes/validate", body).wants(http.StatusOK).into(&v)
		return v
	}
	// This coordinator keeps no secrets, so that the one named is missing.
	if v := validate(nomadRuntime); !v.OK || v.Kind != "nomad" || v.VersionExists || v.MissingSecrets == nil || !cmp.Equal(*v.MissingSecrets, []string{"nomad-acl-token"}) {
		t.Errorf("a good spec: %+v", v)
	}
	if v := validate(`{"id":"prod"}`); v.OK || len(v.Errors) != 1 {
		t.Errorf("a name that is not registered: %+v", v)
	}
	e.do("POST", "/runtimes", nomadRuntime).wants(http.StatusCreated)
	if v := validate(`{"id":"prod","version":"latest"}`); !v.OK || v.Version != "1.0.0" || !v.VersionExists {
		t.Errorf("a registered one by name: %+v", v)
	}
	if v := validate(`{"kind":"local","id":"x","version":"1"}`); !v.OK || v.MissingSecrets != nil {
		t.Errorf("a spec without secrets: %+v, want no word of them", v)
	}
	if v := validate(`{"kind":"k8s","id":"prod","version":"1.0.0","maxConcurrent":0}`); v.OK || len(v.Errors) != 2 || !v.VersionExists {
		t.Errorf("two faults: %+v", v)
	}
	if v := validate(`{"kind":"k8s","id":"prod","version":"1.0.0","image":"i","maxConcurrent":"many"}`); v.OK || !v.VersionExists ||
		len(v.Errors) != 1 || !strings.HasPrefix(v.Errors[0], "maxConcurrent: want a whole number in range, got string (line 1, column ") {
		t.Errorf("another kind of value: %+v, want its error", v)
	}
	for _, body := range []string{`[]`, `"prod"`, `{"id":7}`} {
		if v := validate(body); v.OK || len(v.Errors) != 1 || v.ExistingVersions == nil {
			t.Errorf("%s: %+v, want its error", body, v)
		}
	}
	if v := validate(`{"kind":"k8s","id":"k","version":"1","image":"i","servr":"http://k","maxConcurent":2,"tolerations":[{"key":"a","efect":"NoSchedule"}]}`); !v.OK ||
		!cmp.Equal(v.Warnings, []string{"maxConcurent is not known, and is ignored", "servr is not known, and is ignored", "tolerations[0].efect is not known, and is ignored"}) {
		t.Errorf("keys that nobody reads: %+v, want them named", v)
	}
	e.do("POST", "/runtimes/validate", `{"kind":`).problem(http.StatusBadRequest, protocol.CodeBadRequest)
}

// TestProbeRuntime: what this build cannot ask it does not claim to know.
func TestProbeRuntime(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	var p protocol.Probe
	if e.do("POST", "/runtimes/probe", `{"kind":"local","id":"x","version":"1"}`).wants(http.StatusOK).into(&p); !p.Reachable || p.Kind != "local" {
		t.Errorf("local: %+v", p)
	}
	p = protocol.Probe{}
	if e.do("POST", "/runtimes/probe", nomadRuntime).wants(http.StatusOK).into(&p); p.Reachable || !strings.Contains(p.Detail, "cannot probe") || p.Reason != "" {
		t.Errorf("nomad without a prober: %+v", p)
	}
	e.do("GET", "/runtimes/prod/versions/latest", "").problem(http.StatusNotFound, protocol.CodeNotFound) // never kept
	e.do("POST", "/runtimes/probe", `{"id":"prod","version":"latest"}`).problem(http.StatusNotFound, protocol.CodeNotFound)
	e.do("POST", "/runtimes/probe", `{"kind":"k8s","id":"x","version":"1"}`).problem(http.StatusBadRequest, protocol.CodeBadRequest)
	e.do("POST", "/runtimes/probe", ``).problem(http.StatusBadRequest, protocol.CodeBadRequest)
}

func TestRuntimeRights(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	var paired protocol.Paired
	e.do("POST", "/runners", `{"label":"mac"}`).wants(http.StatusOK).into(&paired)
	for _, route := range []string{"POST /runtimes", "POST /runtimes/validate", "POST /runtimes/probe", "GET /runtimes"} {
		method, path, _ := strings.Cut(route, " ")
		e.do(method, path, nomadRuntime, "Authorization", "Bearer "+paired.Token).problem(http.StatusForbidden, protocol.CodeForbidden)
	}
	var issued protocol.IssuedKey
	e.do("POST", "/keys", `{"scopes":["read"]}`).wants(http.StatusCreated).into(&issued)
	read := issued.APIKey
	e.do("GET", "/runtimes", "", "Authorization", "Bearer "+read).wants(http.StatusOK)
	e.do("POST", "/runtimes", nomadRuntime, "Authorization", "Bearer "+read).problem(http.StatusForbidden, protocol.CodeForbidden)
}

// TestP12_WhoGivesASecretToAnAddress: the first who does must be able to read it; with
// what is registered, everybody who may register runtimes may go on.
func TestP12_WhoGivesASecretToAnAddress(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{auth: auth.Config{Required: true}})
	admin, viewer := e.key("root", protocol.RoleAdmin), e.key("vic", protocol.RoleViewer)
	writes := e.key("root", protocol.RoleAdmin, protocol.ScopeWrite)
	as := func(key []string, path, body string) reply { return e.do("POST", path, body, key...) }
	spec := func(kind, id, version, rest string) string {
		return `{"kind":"` + kind + `","id":"` + id + `","version":"` + version + `","image":"i",` + rest + `}`
	}
	const cluster, evil = `"addr":"https://nomad.internal:4646"`, `"addr":"http://evil"`
	for name, row := range map[string]struct{ good, bad string }{
		"another address":      {spec("nomad", "n", "1", cluster+`,"authSecret":"TOKEN"`), spec("nomad", "n", "9", evil+`,"authSecret":"TOKEN"`)},
		"another secret":       {spec("nomad", "n", "1", cluster+`,"authSecret":"TOKEN"`), spec("nomad", "n", "9", cluster+`,"authSecret":"OPENAI_API_KEY"`)},
		"an API server":        {spec("k8s", "k", "1", `"server":"https://kube:6443","authSecret":"KUBE"`), spec("k8s", "k", "9", `"server":"https://evil","authSecret":"KUBE"`)},
		"a kubeconfig":         {spec("k8s", "c", "1", `"kubeconfigSecret":"CONFIG"`), spec("k8s", "c", "9", `"kubeconfigSecret":"OPENAI_API_KEY"`)},
		"a kubeconfig's token": {spec("k8s", "c", "1", `"kubeconfigSecret":"CONFIG"`), spec("k8s", "c", "9", `"kubeconfigSecret":"CONFIG","server":"https://evil","authSecret":"CONFIG"`)},
		"traces": {spec("nomad", "n", "2", cluster+`,"traceSource":{"kind":"otel","endpoint":"http://traces","authSecret":"TRACES"}`),
			spec("nomad", "n", "9", cluster+`,"traceSource":{"kind":"otel","endpoint":"http://evil","authSecret":"TRACES"}`)},
	} {
		as(admin, "/runtimes", row.good).wants(http.StatusCreated)
		for who, key := range map[string][]string{"a viewer": viewer, "an admin's key for writing": writes} {
			for _, path := range []string{"/runtimes", "/runtimes/probe"} {
				p := as(key, path, row.bad).problem(http.StatusForbidden, protocol.CodeForbidden)
				if !strings.Contains(p.Hint, "an admin registers") || !strings.Contains(p.Message, "secret") || p.Data["action"] != string(auth.SecretsRead) {
					t.Errorf("%s, %s of %s: %+v, want who may and what to do", name, path, who, p)
				}
			}
			var v protocol.RuntimeValidation
			if as(key, "/runtimes/validate", row.bad).wants(http.StatusOK).into(&v); v.OK || len(v.Errors) != 1 || v.VersionExists || len(v.ExistingVersions) == 0 {
				t.Errorf("%s: %s is told %+v, want what registering would refuse", name, who, v)
			}
			as(key, "/runtimes/probe", row.good).wants(http.StatusOK)
			as(key, "/runtimes", row.good).wants(http.StatusCreated)
			again := strings.NewReplacer(`"version":"`, `"version":"1.`, `"id":"`, `"id":"of-a-viewer-`).Replace(row.good)
			as(key, "/runtimes/probe", again).wants(http.StatusOK)
			as(key, "/runtimes", again).wants(http.StatusCreated)
			if as(key, "/runtimes/validate", again).wants(http.StatusOK).into(&v); !v.OK {
				t.Errorf("%s: %s is told %+v of a pair that is bound", name, who, v)
			}
		}
	}
	e.do("GET", "/runtimes/n/versions/9", "", admin...).problem(http.StatusNotFound, protocol.CodeNotFound)
	as(viewer, "/runtimes/probe", `{"id":"n","version":"1"}`).wants(http.StatusOK)
	as(viewer, "/runtimes", spec("nomad", "open", "1", evil)).wants(http.StatusCreated) // which gets no secret
	// What cannot be is said before who may.
	as(viewer, "/runtimes", spec("nomad", "n", "9", `"authSecret":"TOKEN"`)).problem(http.StatusBadRequest, protocol.CodeBadRequest)
}
