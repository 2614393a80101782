package redact

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

func TestP12_JSONStaysJSON(t *testing.T) {
	t.Parallel()
	object := `{"client":"abc","n":[1,2,3]}`
	r := New([]Secret{{"KEY", "0123abcd4567"}, {"URL", urlKey}, {"PIN", "8273645190"}, {"OBJECT", object}, {"ACROSS", `x","y":"z`}})
	for _, tt := range []struct{ name, doc, want string }{
		{"a string", `{"a": "0123abcd4567", "b" : 1.50}`, `{"a": "[redacted:KEY]", "b" : 1.50}`},
		{"inside of a string", `["--0123abcd4567--\n"]`, `["--[redacted:KEY]--\n"]`},
		{"with needless escapes", `["\u0030123\u0061bcd4567 \/"]`, `["[redacted:KEY] /"]`},
		{"with needed escapes", quote(urlKey), `"[redacted:URL]"`},
		{"JSON inside of a string", quote(`{"cmd":` + quote(urlKey) + `}`), quote(`{"cmd":"[redacted:URL]"}`)},
		{"a member's name", `{"0123abcd4567": {"k\u0065y": 1}}`, `{"[redacted:KEY]": {"k\u0065y": 1}}`},
		{"a number", `{"pin": 8273645190, "b": [8273645190.5]}`, `{"pin": "[redacted:PIN]", "b": ["[redacted:PIN]"]}`},
		{"an object", `{"args": ` + object + `, "b": 1}`, `{"args": "[redacted:OBJECT]", "b": 1}`},
		{"across members", `{"b": {"a":"x","y":"z"}, "c": 2}`, `{"b": "[redacted:ACROSS]", "c": 2}`},
		{"all of it", object, `"[redacted:OBJECT]"`},
		{"no secret", `{"a":"\u0041\u00e9", "b":[1e3 , null]}`, `{"a":"\u0041\u00e9", "b":[1e3 , null]}`},
		{"no JSON", `{"a": 0123abcd4567`, `{"a": [redacted:KEY]`},
		{"nothing", ``, ``},
	} {
		got := r.JSON(json.RawMessage(tt.doc))
		if string(got) != tt.want {
			t.Errorf("%s: %s became %s, want %s", tt.name, tt.doc, got, tt.want)
		}
		if json.Valid([]byte(tt.doc)) != json.Valid(got) {
			t.Errorf("%s: %s is no JSON any more", tt.name, got)
		}
	}
}

// fill sets every string that v leads to, and every document.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	case reflect.String:
		v.SetString(text)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":["` + text + `"]}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	}
}

// holding returns the paths of the strings in a document that hold text.
func holding(v any, text, path string, out *[]string) {
	switch v := v.(type) {
	case map[string]any:
		for k, v := range v {
			holding(v, text, path+"."+k, out)
		}
	case []any:
		for _, v := range v {
			holding(v, text, path, out)
		}
	case string:
		if strings.Contains(v, text) {
			*out = append(*out, path)
		}
	}
}

func pathsHolding(t *testing.T, v any, text string) []string {
	t.Helper()
	var doc any
	if err := json.Unmarshal(must(json.Marshal(v)), &doc); err != nil {
		t.Fatal(err)
	}
	var out []string
	holding(doc, text, "", &out)
	slices.Sort(out)
	return out
}

// TestP12_EveryFieldIsMasked fills every string of the documents that leave a
// runner. What is left has to be in the list here: fields whose values the runner
// takes from closed lists, the submitted run, or which the coordinator sets.
func TestP12_EveryFieldIsMasked(t *testing.T) {
	t.Parallel()
	r := New([]Secret{{"KEY", apiKey}})
	text := "key " + apiKey + "."

	var ev protocol.TraceEvent
	fill(reflect.ValueOf(&ev).Elem(), text)
	original := ev
	r.Event(&ev)
	if d := cmp.Diff([]string{".kind"}, pathsHolding(t, ev, apiKey)); d != "" {
		t.Errorf("a trace event holds the secret in (-want):\n%s", d)
	}
	if *original.Text != text || *original.Output != text {
		t.Error("masking an event changed strings that others hold")
	}

	var result protocol.CaseResult
	fill(reflect.ValueOf(&result).Elem(), text)
	r.Result(&result)
	want := []string{
		".caseId", ".evidence.gaps.channel", ".evidence.gaps.reason",
		".execution.arch", ".execution.defaultLimits", ".execution.driver", ".execution.enclosure", ".execution.imageDigest", ".execution.os", ".execution.osResolved", ".execution.platform",
		".failure.class", ".failure.code", ".failure.limit.name", ".failure.limit.unit", ".failure.reason", ".failure.runnerId",
		".failure.signal", ".failure.stage", ".harness",
		".provenance.attestation", ".provenance.by", ".provenance.hostname", ".provenance.ranOn", ".provenance.runner", ".provenance.runnerLabel",
		".scores.authority", ".scores.graderId", ".scores.reason", ".scores.status",
		".snapshot.baseline", ".snapshot.kind", ".snapshot.omitted.reason", ".snapshot.omitted.sha256", ".trace.kind",
	}
	if d := cmp.Diff(want, pathsHolding(t, result, apiKey)); d != "" {
		t.Errorf("a result holds the secret in (-want):\n%s", d)
	}
	r.Failure(nil)
	New(nil).Result(&result) // changes nothing, panics at nothing
}
