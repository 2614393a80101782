package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// Every JSON file of this directory is one of these documents.
var (
	runs      = []string{"run.json", "run-command.json", "run-ask.json"}
	harnesses = []string{"harness-command.json"}
	templates = []string{"harness-template.json"}
	instances = []string{"harness-instance.json"}
	// runtimes are also registered and validated by a test of coordinator/registry.
	runtimes = []string{"runtimes/k8s-kubeconfig.json", "runtimes/k8s.json", "runtimes/local.json", "runtimes/nomad-gpu.json", "runtimes/nomad-raw-exec.json",
		"runtimes/nomad.json"}
)

// read decodes an example into its type. A key that the type does not have is a
// fault here: in an example it is a slip that readers would copy.
func read[T any](t *testing.T, name string) *T {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	v := new(T)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s is no %T: %v", name, v, err)
	}
	return v
}

func TestEveryExampleIsTested(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"*.json", "*/*.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	tested := slices.Sorted(slices.Values(slices.Concat(runs, harnesses, templates, instances, runtimes)))
	if !slices.Equal(files, tested) {
		t.Errorf("the directory has %q, the tests know %q", files, tested)
	}
}

func TestRuns(t *testing.T) {
	t.Parallel()
	known := map[string]string{"scripted": protocol.Latest}
	for _, name := range harnesses {
		h := read[protocol.HarnessSpec](t, name)
		known[h.ID] = h.Version
	}
	for _, name := range runs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := read[protocol.RunRequest](t, name)
			if err := errors.Join(r.Validate(), r.Case.ValidateGraders()); err != nil {
				t.Errorf("submitting it would be refused: %v", err)
			}
			if version, ok := known[r.Harness.ID]; !ok || version != r.Harness.Version {
				t.Errorf("it names the harness %s, which no example registers (there are %v)", r.Harness, known)
			}
			if len(r.Case.Graders) == 0 {
				t.Error("it has no grader, so that it would have no verdict")
			}
		})
	}
}

func TestRuntimes(t *testing.T) {
	t.Parallel()
	for _, name := range runtimes {
		s := read[protocol.RuntimeSpec](t, name)
		if err := s.Validate(); err != nil {
			t.Errorf("%s: registering it would be refused: %v", name, err)
		}
	}
}

var placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)

func TestHarnesses(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Concat(harnesses, templates) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := read[protocol.HarnessSpec](t, name)
			if err := h.Validate(); err != nil {
				t.Errorf("registering it would be refused: %v", err)
			}
			for _, m := range placeholder.FindAllStringSubmatch(h.Command, -1) {
				_, given := h.Params[m[1]]
				if !given && !slices.Contains([]string{"task", "model", "run_id"}, m[1]) {
					t.Errorf("{{%s}} stays as it is: there is no such parameter", m[1])
				}
			}
			if isTemplate := slices.Contains(templates, name); isTemplate != (h.Category != "") {
				t.Errorf("category %q: a template has one, a harness has none", h.Category)
			}
		})
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	byID := map[string]*protocol.HarnessTemplate{}
	for _, name := range templates {
		h := read[protocol.HarnessTemplate](t, name)
		byID[h.ID] = h
	}
	for _, name := range instances {
		in := read[protocol.HarnessInstance](t, name)
		of := byID[in.Template.ID]
		if of == nil || of.Version != in.Template.Version {
			t.Fatalf("%s: no example is the template %s", name, in.Template)
		}
		for slot := range in.Pins {
			if slot != "image" && slot != "model" {
				t.Errorf("%s pins %q, which is no slot", name, slot)
			}
		}
		if in.Overrides == nil {
			continue
		}
		for _, variable := range in.Overrides.UnsetEnv {
			if _, there := of.Env[variable]; !there {
				t.Errorf("%s unsets %s, which its template does not set", name, variable)
			}
		}
		for param := range in.Overrides.Params {
			if _, there := of.Params[param]; !there {
				t.Errorf("%s sets the parameter %s, which its template does not have", name, param)
			}
		}
	}
}

// TestREADME holds the curl example at the top against run.json: they are the
// same run.
func TestREADME(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begun := strings.Cut(string(b), "-d '")
	body, _, ended := strings.Cut(rest, "'")
	if !begun || !ended {
		t.Fatal("the README has no curl example with a body")
	}
	var inREADME, inFile any
	if err := json.Unmarshal([]byte(body), &inREADME); err != nil {
		t.Fatalf("the README's body: %v", err)
	}
	file, err := os.ReadFile("run.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &inFile); err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(inREADME)
	want, _ := json.Marshal(inFile)
	if !bytes.Equal(got, want) {
		t.Errorf("the README submits\n%s\nrun.json is\n%s", got, want)
	}
}

// pages are the documents that people read, by path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && path != "deploy" && path != "docs" && !strings.HasPrefix(path, "docs/") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			b, err := os.ReadFile(filepath.Join("..", path))
			if err != nil {
				return err
			}
			found[path] = string(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("only %d pages were found: %q", len(found), slices.Sorted(maps.Keys(found)))
	}
	return found
}

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile("[^a-z0-9 _-]")
)

// anchors are the fragments of a page's headings, as GitHub makes them.
func anchors(page string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(text, " ", "-"))
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for path, page := range all {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
			u, err := url.Parse(m[1])
			if err != nil || u.IsAbs() {
				continue
			}
			target := path
			if u.Path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(path), u.Path))
			}
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
				continue
			}
			if u.Fragment != "" && !slices.Contains(anchors(all[target]), u.Fragment) {
				t.Errorf("%s links to %s; the headings there are %q", path, m[1], anchors(all[target]))
			}
		}
	}
}

// TestPoolsNameEveryField: a field of a runtime is on the page about them.
func TestPoolsNameEveryField(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/pools.md"]
	for f := range reflect.TypeFor[protocol.RuntimeSpec]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/pools.md says nothing of the field %s of a runtime", name)
		}
	}
}

// TestJSONInPages parses every block that says it is JSON, and holds those that
// are harnesses to their type.
func TestJSONInPages(t *testing.T) {
	t.Parallel()
	blocks := 0
	for path, page := range pages(t) {
		for _, m := range fence.FindAllStringSubmatch(page, -1) {
			if m[1] != "json" {
				continue
			}
			blocks++
			if !json.Valid([]byte(m[2])) {
				t.Errorf("%s: this is not JSON:\n%s", path, m[2])
				continue
			}
			var spec protocol.HarnessSpec
			var place protocol.RuntimeSpec
			var grader protocol.GraderSpec
			switch {
			case json.Unmarshal([]byte(m[2]), &place) == nil && slices.Contains([]string{protocol.RuntimeLocal, protocol.RuntimeNomad, protocol.RuntimeK8s}, place.Kind):
				if err := place.Validate(); err != nil {
					t.Errorf("%s: registering this would be refused: %v\n%s", path, err, m[2])
				}
			case json.Unmarshal([]byte(m[2]), &spec) == nil && spec.Kind != "":
				if err := spec.Validate(); err != nil {
					t.Errorf("%s: registering this would be refused: %v\n%s", path, err, m[2])
				}
			case strings.HasSuffix(path, "graders.md") && json.Unmarshal([]byte(m[2]), &grader) == nil && grader.ID != "":
				if err := grader.ValidateConfig(); err != nil {
					t.Errorf("%s: this grader would be refused: %v\n%s", path, err, m[2])
				}
			}
		}
	}
	if blocks < 10 {
		t.Errorf("only %d blocks of JSON were found in the pages", blocks)
	}
}
