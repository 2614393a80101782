package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/everdict/everdict/cmd/everdict/spelling"
	"github.com/everdict/everdict/protocol"
)

// warnOfKeys names the keys of a document that its type does not have: the server
// drops them without a word, as its API promises.
func (a *app) warnOfKeys(document json.RawMessage, kind reflect.Type) {
	for _, m := range misspelt(document, kind) {
		a.warn("%s", m)
	}
}

// warnOfRun is warnOfKeys for the body of a run.
func (a *app) warnOfRun(body json.RawMessage) {
	a.warnOfKeys(body, reflect.TypeFor[protocol.RunRequest]())
	var run struct {
		Harness struct {
			ID     string                     `json:"id"`
			Params map[string]json.RawMessage `json:"params"`
		} `json:"harness"`
	}
	if json.Unmarshal(body, &run) == nil && run.Harness.ID == protocol.AdapterScripted {
		a.warnOfParams("harness.params.", slices.Sorted(maps.Keys(run.Harness.Params)))
	}
}

// warnOfParams names the parameters that the scripted agent does not have.
func (a *app) warnOfParams(prefix string, names []string) {
	for _, name := range names {
		if !slices.Contains(protocol.ScriptedParams(), name) {
			a.warn("%s", misspelling{prefix + name, spelling.Nearest(name, protocol.ScriptedParams()), "the scripted agent knows " + strings.Join(protocol.ScriptedParams(), " and ")})
		}
	}
}

// specType is the type of a spec: an instance, if it has a template.
func specType(spec json.RawMessage, template bool) reflect.Type {
	var probe struct {
		Template json.RawMessage `json:"template"`
	}
	if !template && json.Unmarshal(spec, &probe) == nil && len(probe.Template) > 0 && string(probe.Template) != "null" {
		return reflect.TypeFor[protocol.HarnessInstance]()
	}
	return reflect.TypeFor[protocol.HarnessSpec]()
}

// misspelling is a key that nobody reads.
type misspelling struct {
	// path is where the key stands, near what was probably meant.
	path, near string
	// otherwise is said when nothing is near.
	otherwise string
}

func (m misspelling) String() string {
	text := protocol.UnknownKey{Path: m.path}.String()
	if m.near != "" {
		return text + fmt.Sprintf(": did you mean %q?", m.near)
	}
	if m.otherwise != "" {
		return text + ": " + m.otherwise
	}
	return text
}

// misspelt are the keys of a document that its type does not have.
func misspelt(document json.RawMessage, kind reflect.Type) []misspelling {
	var out []misspelling
	for _, k := range protocol.UnknownKeys(document, kind) {
		out = append(out, misspelling{path: k.Path, near: spelling.Nearest(k.Name, k.Known)})
	}
	return out
}
