package cli

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/harness/scripted"
	"github.com/everdict/everdict/protocol"
)

func TestMisspeltKeys(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, document string
		kind           reflect.Type
		want           []string
	}{
		{"nothing wrong", `{"harness":{"id":"a","version":"1","params":{"any":"x"}},"case":{"id":"c","env":{"kind":"repo","source":{"files":{"a.txt":"x"}}},"task":"t","graders":[{"id":"tests-pass","config":{"anything":1}}]}}`,
			reflect.TypeFor[protocol.RunRequest](), nil},
		{"at the top", `{"harnes":{},"case":{}}`, reflect.TypeFor[protocol.RunRequest](), []string{`harnes is not known, and is ignored: did you mean "harness"?`}},
		{"below", `{"case":{"timeoutSecs":1,"env":{"sorce":{},"source":{"fles":{}}}}}`, reflect.TypeFor[protocol.RunRequest](), []string{
			`case.env.sorce is not known, and is ignored: did you mean "source"?`,
			`case.env.source.fles is not known, and is ignored: did you mean "files"?`,
			`case.timeoutSecs is not known, and is ignored: did you mean "timeoutSec"?`}},
		{"in a list", `{"case":{"graders":[{"id":"a"},{"id":"b","authorty":"judge"}]}}`, reflect.TypeFor[protocol.RunRequest](), []string{
			`case.graders[1].authorty is not known, and is ignored: did you mean "authority"?`}},
		{"nothing near", `{"xyzzy":"x"}`, reflect.TypeFor[protocol.RunRequest](), []string{`xyzzy is not known, and is ignored`}},
		{"other case is read", `{"CASE":{"TimeoutSec":1}}`, reflect.TypeFor[protocol.RunRequest](), nil},
		{"of a harness", `{"kind":"command","comand":"x","env":{"A":{"secretRef":"k"}},"model":{"ref":"m"},"trace":{"knd":"none"}}`, specType([]byte(`{}`), false), []string{
			`comand is not known, and is ignored: did you mean "command"?`, `trace.knd is not known, and is ignored: did you mean "kind"?`}},
		{"of an instance", `{"template":{"id":"t"},"pins":{"image":"x"},"overides":{}}`, specType([]byte(`{"template":{"id":"t"}}`), false), []string{
			`overides is not known, and is ignored: did you mean "overrides"?`}},
		{"of a template", `{"template":{},"kind":"command"}`, specType([]byte(`{"template":{}}`), true), []string{`template is not known, and is ignored`}},
		{"other kinds of values", `{"case":[1],"harness":"x","origin":7}`, reflect.TypeFor[protocol.RunRequest](), nil},
	} {
		var got []string
		for _, m := range misspelt([]byte(row.document), row.kind) {
			got = append(got, m.String())
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

// The parameters that are known here are those that the agent reads.
func TestScriptedParamsAreTheAgents(t *testing.T) {
	t.Parallel()
	for _, name := range protocol.ScriptedParams() {
		if err := scripted.Check(map[string]string{name: "\x00 no such thing"}); err == nil {
			t.Errorf("the scripted agent does not look at the parameter %q", name)
		}
	}
	if err := scripted.Check(map[string]string{"skript": "\x00 no such thing"}); err != nil {
		t.Errorf("a parameter that is not known: %v, want it to be passed over", err)
	}
	a := newTestApp(t, "")
	a.warnOfParams("--param ", []string{"delay", "scrpt", "colour"})
	want := []string{`--param scrpt is not known, and is ignored: did you mean "script"?`, `--param colour is not known, and is ignored: the scripted agent knows script and delay`}
	for _, text := range want {
		if !strings.Contains(a.stderr.String(), "warning: "+text+"\n") {
			t.Errorf("warned of %q, want %q", &a.stderr, text)
		}
	}
}
