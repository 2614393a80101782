package registry

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

func open(t testing.TB) *Registry {
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
	return New(st, nil)
}

func command(id, version, line string) Submission {
	return Submission{Spec: &protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: id, Version: version, Command: line}}
}

func register(t testing.TB, r *Registry, s Submission) {
	t.Helper()
	if _, err := r.Register(t.Context(), "w", "ann", s); err != nil {
		t.Fatalf("register: %v", err)
	}
}

// TestPrivateHarness: a version that names a secret of its submitter's own is there for
// who registered it alone, by every way to it; another version of the same id is not
// private because of it, and a template never is.
func TestPrivateHarness(t *testing.T) {
	t.Parallel()
	r := open(t)
	ann, bob := r.For("ann"), r.For("bob")
	own := map[string]protocol.EnvValue{"KEY": {Secret: &protocol.SecretRef{SecretRef: "MINE", Scope: protocol.SecretUser}}}
	secretive := func(id, version string) Submission {
		s := command(id, version, "run")
		s.Spec.Env = own
		return s
	}
	got, err := ann.Register(t.Context(), "w", "ann", secretive("mine", "2.0.0"))
	if err != nil || !got.Private {
		t.Fatalf("registered: %+v, %v; want it private", got, err)
	}
	if got, err = ann.Register(t.Context(), "w", "ann", command("mine", "1.0.0", "run")); err != nil || got.Private {
		t.Fatalf("registered: %+v, %v; want it for everybody", got, err)
	}
	register(t, r, secretive("all-mine", "1.0.0"))
	if _, err := r.RegisterTemplate(t.Context(), "w", "ann", protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: "t", Version: "1", Command: "run", Category: "c", Env: own}); err != nil {
		t.Fatal(err)
	}
	register(t, r, Submission{Instance: &protocol.HarnessInstance{Template: protocol.HarnessRef{ID: "t", Version: "1"}, ID: "instance", Version: "1"}})

	list := func(of *Registry) (shown []string) {
		t.Helper()
		all, err := of.Harnesses(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			word := e.ID + "@" + strings.Join(e.Versions, ",")
			if e.Private {
				word += " private"
			}
			shown = append(shown, word)
		}
		return shown
	}
	if diff := cmp.Diff([]string{"all-mine@1.0.0 private", "instance@1 private", "mine@1.0.0,2.0.0 private"}, list(ann)); diff != "" {
		t.Errorf("ann sees (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mine@1.0.0"}, list(bob)); diff != "" {
		t.Errorf("bob sees (-want +got):\n%s", diff)
	}
	for id, version := range map[string]string{"mine": "2.0.0", "all-mine": protocol.Latest, "instance": "1"} {
		ref := protocol.HarnessRef{ID: id, Version: version}
		if _, err := ann.Resolve(t.Context(), "w", ref); err != nil {
			t.Errorf("ann resolves %s: %v", ref, err)
		}
		_, resolve := bob.Resolve(t.Context(), "w", ref)
		_, instance := bob.Instance(t.Context(), "w", id, version)
		_, by := bob.CreatedBy(t.Context(), "w", id, version)
		_, tag := bob.SetTags(t.Context(), "w", id, version, protocol.Tags{})
		_, del := bob.Delete(t.Context(), "w", id, version)
		_, diff := bob.Diff(t.Context(), "w", id, version, version)
		_, pin := bob.Pin(t.Context(), "w", "bob", id, protocol.PinsRequest{Pins: map[string]string{"image": "x"}, Base: version, Version: "9", AllowTags: true})
		for way, err := range map[string]error{"resolve": resolve, "instance": instance, "by": by, "tag": tag, "delete": del, "diff": diff, "pin": pin} {
			if problem := new(protocol.Problem); !errors.As(err, &problem) || problem.Code != protocol.CodeNotFound {
				t.Errorf("bob, %s of %s: %v, want a 404", way, ref, err)
			}
		}
	}
	if spec, err := bob.Resolve(t.Context(), "w", protocol.HarnessRef{ID: "mine"}); err != nil || spec.Version != "1.0.0" {
		t.Errorf("for bob the latest is %s, %v; want the one that he sees", spec.Version, err)
	}
	if spec, err := ann.Resolve(t.Context(), "w", protocol.HarnessRef{ID: "mine"}); err != nil || spec.Version != "2.0.0" {
		t.Errorf("for ann the latest is %s, %v", spec.Version, err)
	}
}

func TestVersionOrder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ registered, want string }{
		{"1.0.0 1.10.0 1.9.0", "1.0.0 1.9.0 1.10.0"},
		{"2.0.0 1.0.0 v1.5.0", "1.0.0 v1.5.0 2.0.0"},
		{"b a c", "b a c"},
		{"nightly 0.1.0 weekly", "nightly weekly 0.1.0"},
		{"1.0.0-rc2 1.0.0-rc1 1.0.0", "1.0.0-rc2 1.0.0-rc1 1.0.0"},
		{"1.0 1.0.x 0.0.1", "1.0 1.0.x 0.0.1"},
		{"99999999999999999999.0.0 1.0.0", "99999999999999999999.0.0 1.0.0"},
	} {
		var list []store.Definition
		for v := range strings.FieldsSeq(tt.registered) {
			list = append(list, store.Definition{DefinitionKey: store.DefinitionKey{Version: v}})
		}
		sortVersions(list)
		if got := strings.Join(names(list), " "); got != tt.want {
			t.Errorf("%s sorts to %s, want %s", tt.registered, got, tt.want)
		}
	}
}

func TestResolveBuiltin(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, id := range []string{"scripted", "claude-code", "codex"} {
		for version, want := range map[string]string{"latest": BuiltinVersion, "": BuiltinVersion, "1.2.3": "1.2.3"} {
			if id == protocol.AdapterScripted {
				want = BuiltinVersion // it has no other
			}
			spec, err := r.Resolve(t.Context(), "w", protocol.HarnessRef{ID: id, Version: version})
			if diff := cmp.Diff(protocol.HarnessSpec{Kind: "process", ID: id, Version: want}, spec); err != nil || diff != "" {
				t.Errorf("resolve %s@%s (%v) (-want +got):\n%s", id, version, err, diff)
			}
		}
	}
	for _, id := range protocol.Adapters() {
		if v, err := r.Versions(t.Context(), "w", id); err != nil || !slices.Equal(v.Versions, []string{BuiltinVersion}) {
			t.Errorf("versions of %s: %+v, %v; want %s", id, v, err, BuiltinVersion)
		}
		var p *protocol.Problem
		if _, err := r.Instance(t.Context(), "w", id, protocol.Latest); !errors.As(err, &p) || p.Status != 404 || !strings.Contains(p.Hint, "/harnesses/"+id+"/builtin") {
			t.Errorf("%s as an instance: %v, want a 404 that names its spec", id, err)
		}
	}
	// What a workspace registers under the same id is what it gets.
	register(t, r, command("codex", "9.0.0", "my-codex {{task}}"))
	if spec, err := r.Resolve(t.Context(), "w", protocol.HarnessRef{ID: "codex", Version: "latest"}); err != nil || spec.Command == "" {
		t.Errorf("resolve a registered codex: %+v, %v", spec, err)
	}
	if v, err := r.Versions(t.Context(), "w", "codex"); err != nil || !slices.Equal(v.Versions, []string{"9.0.0"}) {
		t.Errorf("versions of a registered codex: %+v, %v", v, err)
	}
	if spec, err := r.Resolve(t.Context(), "other", protocol.HarnessRef{ID: "codex", Version: "latest"}); err != nil || spec.Kind != "process" {
		t.Errorf("resolve codex in another workspace: %+v, %v; want the built-in", spec, err)
	}
}

func TestResolveFollowsRegistrations(t *testing.T) {
	t.Parallel()
	r := open(t)
	resolve := func(version string) string {
		spec, err := r.Resolve(t.Context(), "w", protocol.HarnessRef{ID: "mine", Version: version})
		var p *protocol.Problem
		if errors.As(err, &p) && p.Status == 404 {
			return "none"
		}
		if err != nil {
			t.Fatal(err)
		}
		return spec.Version
	}
	steps := []struct {
		do           func()
		latest, wide string
	}{
		{func() {}, "none", "none"},
		{func() { register(t, r, command("mine", "1.0.0", "a")) }, "1.0.0", "1.0.0"},
		{func() { register(t, r, command("mine", "1.1.0", "a")) }, "1.1.0", "1.0.0"},
		{func() { register(t, r, command("mine", "0.9.0", "a")) }, "1.1.0", "1.0.0"},
		{func() { del(t, r, "1.1.0") }, "1.0.0", "1.0.0"},
		{func() { del(t, r, "1.0.0") }, "0.9.0", "none"},
		{func() { register(t, r, command("mine", "1.1.0", "a")) }, "1.1.0", "none"}, // the same again revives it
	}
	for i, step := range steps {
		step.do()
		if got := resolve("latest"); got != step.latest {
			t.Errorf("step %d: latest is %s, want %s", i, got, step.latest)
		}
		if got := resolve("1.0.0"); got != step.wide {
			t.Errorf("step %d: 1.0.0 is %s, want %s", i, got, step.wide)
		}
	}
}

func del(t testing.TB, r *Registry, version string) {
	t.Helper()
	if _, err := r.Delete(t.Context(), "w", "mine", version); err != nil {
		t.Fatal(err)
	}
}

func TestParamsOfAReference(t *testing.T) {
	t.Parallel()
	r := open(t)
	s := command("mine", "1.0.0", "x {{a}} {{b}}")
	s.Spec.Params = map[string]string{"a": "1", "b": "1"}
	register(t, r, s)
	with := func(params map[string]string) map[string]string {
		spec, err := r.Resolve(t.Context(), "w", protocol.HarnessRef{ID: "mine", Version: "1.0.0", Params: params})
		if err != nil {
			t.Fatal(err)
		}
		return spec.Params
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "c": "3"}, with(map[string]string{"b": "2", "c": "3"})); diff != "" {
		t.Errorf("params (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "1"}, with(nil)); diff != "" {
		t.Errorf("params of another run changed the spec (-want +got):\n%s", diff)
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	agent := protocol.HarnessTemplate{Kind: "command", ID: "agent", Version: "1.0.0", Category: "coding", Command: "agent {{task}}", Image: "agent:1",
		Model: &protocol.ModelBinding{Name: "m0"}, Env: map[string]protocol.EnvValue{"A": {Value: "1"}, "B": {Value: "2"}}, Resources: &protocol.Resources{CPU: 1}}
	scripted := protocol.HarnessTemplate{Kind: "process", ID: "scripted", Version: "1.0.0", Category: "test"}
	for _, tpl := range []protocol.HarnessTemplate{agent, scripted} {
		if _, err := r.RegisterTemplate(ctx, "w", "ann", tpl); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, body string
		want       string // the resolved spec as JSON, or what the problem says
		status     int
	}{
		{name: "plain", body: `{"template":{"id":"agent","version":"1.0.0"},"id":"i","version":"1"}`,
			want: `{"kind":"command","id":"i","version":"1","image":"agent:1","resources":{"cpu":1},"command":"agent {{task}}","model":"m0","setup":[],"env":{"A":"1","B":"2"},"params":{},"trace":{"kind":"none"}}`},
		{name: "pins", body: `{"template":{"id":"agent"},"id":"i","version":"2","pins":{"image":"agent:2","model":"m1"},"description":"d"}`,
			want: `{"kind":"command","id":"i","version":"2","description":"d","image":"agent:2","resources":{"cpu":1},"command":"agent {{task}}","model":"m1","setup":[],"env":{"A":"1","B":"2"},"params":{},"trace":{"kind":"none"}}`},
		{name: "overrides", body: `{"template":{"id":"agent"},"id":"i","version":"3","overrides":{"env":{"B":"3","C":{"secretRef":"s"}},"unsetEnv":["A","Z"],"params":{"p":"q"},"resources":{"memoryMb":5}}}`,
			want: `{"kind":"command","id":"i","version":"3","image":"agent:1","resources":{"memoryMb":5},"command":"agent {{task}}","model":"m0","setup":[],"env":{"B":"3","C":{"secretRef":"s"}},"params":{"p":"q"},"trace":{"kind":"none"}}`},
		{name: "a process keeps the adapter", body: `{"template":{"id":"scripted"},"id":"i","version":"4"}`,
			want: `{"kind":"process","id":"i","version":"4","adapter":"scripted"}`},
		{name: "unknown slot", body: `{"template":{"id":"agent"},"id":"i","version":"5","pins":{"web":"x"}}`, status: 400, want: `unknown slot "web"`},
		{name: "empty pin", body: `{"template":{"id":"agent"},"id":"i","version":"5","pins":{"image":" "}}`, status: 400, want: `pins.image is empty`},
		{name: "pin of a process", body: `{"template":{"id":"scripted"},"id":"i","version":"5","pins":{"image":"x"}}`, status: 400, want: `no slots`},
		{name: "unknown version", body: `{"template":{"id":"agent","version":"7"},"id":"i","version":"5"}`, status: 404, want: `no version "7"`},
		{name: "bad override", body: `{"template":{"id":"agent"},"id":"i","version":"5","overrides":{"env":{"1A":"x"}}}`, status: 400, want: `variable name`},
		{name: "no id", body: `{"template":{"id":"agent"},"version":"5"}`, status: 400, want: `harness.id`},
	}
	for _, tt := range tests {
		var s Submission
		if err := json.Unmarshal([]byte(tt.body), &s); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		_, err := r.Register(ctx, "w", "ann", s)
		if tt.status != 0 {
			var p *protocol.Problem
			if !errors.As(err, &p) || p.Status != tt.status || !strings.Contains(p.Message, tt.want) {
				t.Errorf("%s: %v, want a %d that says %q", tt.name, err, tt.status, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		spec, err := r.Resolve(ctx, "w", protocol.HarnessRef{ID: "i", Version: s.Instance.Version})
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(spec)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s resolves to\n%s (%v), want\n%s", tt.name, got, err, tt.want)
		}
	}
	// An instance of the latest template does not follow it.
	newer := agent
	newer.Version, newer.Image = "2.0.0", "agent:9"
	if _, err := r.RegisterTemplate(ctx, "w", "ann", newer); err != nil {
		t.Fatal(err)
	}
	if spec, err := r.Resolve(ctx, "w", protocol.HarnessRef{ID: "i", Version: "3"}); err != nil || spec.Image != "agent:1" {
		t.Errorf("after a newer template, version 3 runs %s (%v), want agent:1", spec.Image, err)
	}
	entries, err := r.Templates(ctx, "w")
	if err != nil || len(entries) != 2 || entries[0].ID != "agent" || entries[0].LatestVersion != "2.0.0" || entries[0].Category != "coding" {
		t.Errorf("templates %+v, %v", entries, err)
	}
	if _, err := r.Template(ctx, "other", "agent", "latest"); err == nil {
		t.Error("a template is seen from another workspace")
	}
}

// BenchmarkResolve is what each submit pays.
func BenchmarkResolve(b *testing.B) {
	r := open(b)
	register(b, r, command("mine", "1.0.0", "x"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Resolve(b.Context(), "w", protocol.HarnessRef{ID: "mine", Version: "latest"}); err != nil {
			b.Fatal(err)
		}
	}
}
