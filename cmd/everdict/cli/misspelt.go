package cli

import (
	"encoding"
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
	for _, m := range misspelt(document, kind, "") {
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
	text := protocol.Clip(m.path, 200) + " is not known, and is ignored"
	if m.near != "" {
		return text + fmt.Sprintf(": did you mean %q?", m.near)
	}
	if m.otherwise != "" {
		return text + ": " + m.otherwise
	}
	return text
}

// misspelt compares the keys of a document with the JSON names of a Go type, in
// the order of the document's keys. Values that a type reads by itself, and raw
// ones, are not looked into: those who read them refuse what they do not know.
func misspelt(document json.RawMessage, kind reflect.Type, path string) []misspelling {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if readsItself(kind) {
		return nil
	}
	switch kind.Kind() {
	case reflect.Struct:
		var object map[string]json.RawMessage
		if json.Unmarshal(document, &object) != nil {
			return nil // what is no object is the server's to refuse
		}
		fields := jsonFields(kind)
		var out []misspelling
		for _, key := range slices.Sorted(maps.Keys(object)) {
			at := path + key
			// encoding/json takes any case.
			i := slices.IndexFunc(fields, func(f jsonField) bool { return strings.EqualFold(f.name, key) })
			if i >= 0 {
				out = append(out, misspelt(object[key], fields[i].kind, at+".")...)
				continue
			}
			names := make([]string, len(fields))
			for i, f := range fields {
				names[i] = f.name
			}
			out = append(out, misspelling{path: at, near: spelling.Nearest(key, names)})
		}
		return out
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(document, &list) != nil {
			return nil
		}
		var out []misspelling
		for i, element := range list {
			out = append(out, misspelt(element, kind.Elem(), fmt.Sprintf("%s[%d].", strings.TrimSuffix(path, "."), i))...)
		}
		return out
	case reflect.Map:
		var object map[string]json.RawMessage
		if json.Unmarshal(document, &object) != nil {
			return nil
		}
		var out []misspelling
		for _, key := range slices.Sorted(maps.Keys(object)) {
			out = append(out, misspelt(object[key], kind.Elem(), path+key+".")...)
		}
		return out
	}
	return nil
}

// readsItself reports whether a type has a form of its own in JSON.
func readsItself(kind reflect.Type) bool {
	pointer := reflect.PointerTo(kind)
	return pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) || pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

type jsonField struct {
	name string
	kind reflect.Type
}

// jsonFields are the fields of a struct as encoding/json names them.
func jsonFields(kind reflect.Type) []jsonField {
	var out []jsonField
	for _, f := range reflect.VisibleFields(kind) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		out = append(out, jsonField{name, f.Type})
	}
	return out
}
