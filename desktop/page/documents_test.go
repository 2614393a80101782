package page_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/protocol"
)

// The page's types are written by hand. They have the keys that the app's documents have, and are optional where those
// can be missing.
func TestDocumentsAreTheAppsOwn(t *testing.T) {
	t.Parallel()
	const source = "../../coordinator/dashboard/web/src/desktop/documents.ts"
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatalf("read the sources of the page: %v", err)
	}
	in := map[string]map[string]bool{} // type, key, whether it may be missing
	for _, m := range regexp.MustCompile(`(?ms)^export interface (\w+) \{\n(.*?)^\}`).FindAllStringSubmatch(string(text), -1) {
		keys := map[string]bool{}
		for _, k := range regexp.MustCompile(`(?m)^  (\w+)(\??):`).FindAllStringSubmatch(m[2], -1) {
			keys[k[1]] = k[2] == "?"
		}
		in[m[1]] = keys
	}
	documents := []any{
		control.State{}, control.Device{}, control.Connection{}, control.Job{}, control.Entry{}, control.EntryFailure{}, control.History{},
		control.Machine{}, control.Pairing{}, control.Question{}, control.PairRequest{}, control.Answer{}, control.PauseRequest{},
		control.ResumeRequest{}, control.Unpaired{}, control.Settings{}, control.Hours{}, control.ConnectionSettings{}, control.Keys{},
		control.KeyMove{}, control.Power{}, control.Notice{}, control.NoticeDismissal{}, control.QuitRequest{}, control.VisitRequest{},
		control.LogChunk{}, protocol.Account{}, doctor.Check{},
	}
	// What the page has no use for.
	unread := map[string][]string{"Check": {"docker"}}
	for _, d := range documents {
		name := reflect.TypeOf(d).Name()
		page, ok := in[name]
		if !ok {
			t.Errorf("%s has no interface %s", source, name)
			continue
		}
		app := keysOf(reflect.TypeOf(d))
		for key, optional := range app {
			switch got, ok := page[key]; {
			case !ok && !slices.Contains(unread[name], key):
				t.Errorf("%s.%s is not in the page's types", name, key)
			case ok && got != optional:
				t.Errorf("%s.%s: optional in the page's types %t, want %t", name, key, got, optional)
			}
		}
		for key := range page {
			if _, ok := app[key]; !ok {
				t.Errorf("%s.%s is in the page's types alone", name, key)
			}
		}
		delete(in, name)
	}
	for name := range in {
		t.Errorf("interface %s is no document of the app", name)
	}
}

// keysOf are the JSON keys of a struct, embedded ones among them, and whether each may be left out.
func keysOf(t reflect.Type) map[string]bool {
	keys := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			for key, optional := range keysOf(f.Type) {
				keys[key] = optional
			}
			continue
		}
		keys[name] = strings.Contains(options, "omitempty")
	}
	return keys
}
