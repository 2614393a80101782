package everdict_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/everdict/everdict/"

// floor says on which floor of the house a package lives; every import goes
// down, or stays within the same wing.
func floor(pkg string) (wing string, level int) {
	switch top, rest, _ := strings.Cut(pkg, "/"); {
	case top == "cmd", top == "desktop", top == "e2e", top == "examples", top == "deploy":
		return top, 3
	case top == "coordinator", top == "agent":
		return top, 2
	case top == "lease":
		return "lease", 1
	case top == "protocol" && strings.HasPrefix(rest, "link"):
		return "link", 1
	case top == "protocol" && strings.HasPrefix(rest, "client"):
		return "client", 1
	case top == "protocol":
		return "protocol", 0
	}
	return "", -1
}

// mayImport says whether the wing from may use the wing to.
func mayImport(from, to string) bool {
	allowed := map[string][]string{
		"cmd":         {"coordinator", "agent", "lease", "link", "client", "protocol", "cmd", "desktop"},
		"desktop":     {"agent", "client", "protocol", "link", "desktop"},
		"e2e":         {"cmd", "desktop", "coordinator", "agent", "lease", "link", "client", "protocol", "e2e"},
		"examples":    {"client", "protocol"},
		"deploy":      {"cmd", "protocol"},
		"coordinator": {"coordinator", "lease", "link", "protocol"},
		"agent":       {"agent", "link", "protocol"},
		"lease":       {"lease"},
		"link":        {"link", "protocol"},
		"client":      {"client", "protocol"},
		"protocol":    {"protocol"},
	}
	return slices.Contains(allowed[from], to)
}

// TestLayers holds every import of the module against design section 2.
func TestLayers(t *testing.T) {
	t.Parallel()
	for _, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		if dir == "." {
			continue
		}
		from, level := floor(dir)
		if level < 0 {
			t.Errorf("%s: package %s has no place in the house: add it to floor", file, dir)
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			path, ours := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module)
			if !ours {
				continue
			}
			// A test of the coordinator or of the agent may use what it tests against.
			if to, _ := floor(path); !mayImport(from, to) {
				t.Errorf("%s imports %s: %s may not use %s", file, path, from, to)
			}
		}
	}
}

// TestPackageComments checks that each package says in one comment what it is.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{}
	for _, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		if _, seen := comments[dir]; !seen && !strings.HasSuffix(file, "_test.go") {
			comments[dir] = nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if packageComment(f) && !strings.HasSuffix(f.Name.Name, "_test") {
			comments[dir] = append(comments[dir], file)
		}
	}
	for dir, files := range comments {
		if len(files) != 1 {
			t.Errorf("package %s: want one package comment, got %d %v", dir, len(files), files)
		}
	}
}

func packageComment(f *ast.File) bool { return f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" }

// TestFileLengths keeps files readable: above 600 lines a reason stands at the
// top ("Long because ...").
func TestFileLengths(t *testing.T) {
	t.Parallel()
	for _, file := range goFiles(t) {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		lines := set.Position(f.End()).Line
		if lines <= 600 || len(f.Comments) > 0 && strings.Contains(f.Comments[0].Text(), "Long because") {
			continue
		}
		t.Errorf("%s has %d lines: split it, or say at its top why it is long", file, lines)
	}
}

// TestRunnerLinks checks that the runner side carries no database and no
// cluster client.
func TestRunnerLinks(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "./agent/...", "./cmd/job-runner", "./cmd/launched", "./cmd/member").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, banned := range []string{"mattn/go-sqlite3", "k8s.io/", "hashicorp/nomad", module + "lease", module + "coordinator"} {
			if strings.Contains(dep, banned) {
				t.Errorf("a runner links %s", dep)
			}
		}
	}
}

// TestDesktopLinks checks that the desktop app carries no database and no cluster client,
// on any system, and that nothing but it links purego, which makes a program without cgo
// depend on the C library.
func TestDesktopLinks(t *testing.T) {
	t.Parallel()
	deps := func(goos, cgo string, packages ...string) []string {
		cmd := exec.Command("go", append([]string{"list", "-deps"}, packages...)...)
		cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED="+cgo)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list %s for %s: %v", packages, goos, err)
		}
		return strings.Fields(string(out))
	}
	for _, goos := range []string{"linux", "windows", "darwin"} {
		for _, dep := range deps(goos, "0", "./cmd/everdict-desktop", "./desktop/...") {
			for _, banned := range []string{"mattn/go-sqlite3", "k8s.io/", "hashicorp/nomad", module + "lease", module + "coordinator"} {
				if strings.Contains(dep, banned) {
					t.Errorf("the desktop app links %s on %s", dep, goos)
				}
			}
		}
	}
	for _, dep := range slices.Concat(deps("linux", "1", "./cmd/everdict"), deps("linux", "0", "./cmd/job-runner", "./agent/...", "./protocol/...")) {
		if strings.Contains(dep, "ebitengine/purego") || strings.HasPrefix(dep, module+"desktop") {
			t.Errorf("a program without a window links %s", dep)
		}
	}
}

// TestClusterClients checks that a cluster's client is imported by the package that is
// named for it alone, and of Nomad nothing but the client: its server is not free.
func TestClusterClients(t *testing.T) {
	t.Parallel()
	clients := []struct{ imports, only, of string }{
		{"k8s.io/", "coordinator/fleet/kube e2e/kube e2e/k8s deploy", "Kubernetes"},
		{"github.com/hashicorp/nomad", "coordinator/fleet/nomad e2e/nomad deploy", "Nomad"},
	}
	for _, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			for _, c := range clients {
				knows := slices.ContainsFunc(strings.Fields(c.only), func(p string) bool { return dir == p || strings.HasPrefix(dir, p+"/") })
				if strings.HasPrefix(path, c.imports) && !knows {
					t.Errorf("%s imports %s: only %s know %s", file, path, c.only, c.of)
				}
			}
			if strings.HasPrefix(path, "github.com/hashicorp/nomad") && path != "github.com/hashicorp/nomad/api" {
				t.Errorf("%s imports %s: only the client of Nomad's API may be used", file, path)
			}
		}
	}
	out, err := exec.Command("go", "list", "-m", "all").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name == "github.com/hashicorp/nomad" {
			t.Error("the module github.com/hashicorp/nomad is required: its licence is BUSL")
		}
	}
}

func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
