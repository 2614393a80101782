package protocol

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// UnknownKey is a key of a document that nobody reads.
type UnknownKey struct {
	// Path is where it stands, such as case.graders[1].authorty, and Name its last part.
	Path, Name string
	// Known are the keys that there are in its place.
	Known []string
}

// String says what becomes of it.
func (k UnknownKey) String() string { return Clip(k.Path, 200) + " is not known, and is ignored" }

// UnknownKeys compares the keys of a document with the JSON names of a Go type, in
// order. Values that a type reads by itself, and raw ones, are not looked into: those
// who read them refuse what they do not know.
func UnknownKeys(document json.RawMessage, kind reflect.Type) []UnknownKey {
	return unknownKeys(document, kind, "")
}

func unknownKeys(document json.RawMessage, kind reflect.Type, path string) []UnknownKey {
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
		var out []UnknownKey
		for _, key := range slices.Sorted(maps.Keys(object)) {
			at := path + key
			// encoding/json takes any case.
			i := slices.IndexFunc(fields, func(f jsonField) bool { return strings.EqualFold(f.name, key) })
			if i >= 0 {
				out = append(out, unknownKeys(object[key], fields[i].kind, at+".")...)
				continue
			}
			names := make([]string, len(fields))
			for i, f := range fields {
				names[i] = f.name
			}
			out = append(out, UnknownKey{at, key, names})
		}
		return out
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(document, &list) != nil {
			return nil
		}
		var out []UnknownKey
		for i, element := range list {
			out = append(out, unknownKeys(element, kind.Elem(), fmt.Sprintf("%s[%d].", strings.TrimSuffix(path, "."), i))...)
		}
		return out
	case reflect.Map:
		var object map[string]json.RawMessage
		if json.Unmarshal(document, &object) != nil {
			return nil
		}
		var out []UnknownKey
		for _, key := range slices.Sorted(maps.Keys(object)) {
			out = append(out, unknownKeys(object[key], kind.Elem(), path+key+".")...)
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
