package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A literal may name a route whole, or leave its path to what is put in.
var (
	namesRoute = regexp.MustCompile(`\b(GET|POST|PUT|DELETE) (/|%s)`)
	endsInVerb = regexp.MustCompile(`\b(GET|POST|PUT|DELETE) $`)
)

// problems are the functions whose text reaches whoever made a request.
var problems = []string{"WithHint", "BadRequest", "NotFound", "Conflict", "Forbidden", "Unauthenticated", "Unavailable", "TooLarge"}

// Whatever route the server names in a hint, the command line says as a command
// that exists; and no text of the server shows a list as Go prints it.
func TestHintsOfTheServerNameCommands(t *testing.T) {
	t.Parallel()
	found := 0
	for _, file := range serverFiles(t) {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if n.Kind != token.STRING || err != nil {
					return true
				}
				for _, hint := range spelledOut(text) {
					found++
					checkHint(t, set.Position(n.Pos()).String(), hint)
				}
			case *ast.CallExpr:
				checkVerbs(t, set, n)
			}
			return true
		})
	}
	if found < 8 {
		t.Errorf("found %d hints with routes, want at least 8: is the pattern still right?", found)
	}
}

// spelledOut is a literal that names routes as it reaches people, once per what
// can be put into it.
func spelledOut(text string) []string {
	registries := []string{"/harnesses", "/harness-templates"}
	switch {
	case strings.Contains(text, "GET %s/%s"):
		var out []string
		for _, r := range registries {
			out = append(out, strings.Replace(text, "%s/%s", r+"/my-agent", 1))
		}
		return out
	case endsInVerb.MatchString(text):
		return []string{text + registries[0], text + registries[1]}
	case text == "no such route: %s %s": // it repeats what was asked for
		return nil
	case namesRoute.MatchString(text):
		return []string{strings.ReplaceAll(text, "%s", "x")}
	}
	return nil
}

func checkHint(t *testing.T, where, hint string) {
	t.Helper()
	shown := asCommands(hint)
	if namesRoute.MatchString(shown) {
		t.Errorf("%s: %q is shown as %q, which names a route", where, hint, shown)
		return
	}
	for _, part := range strings.Split(shown, "everdict ")[1:] {
		words := strings.FieldsFunc(part, func(r rune) bool { return !(r == '-' || r >= 'a' && r <= 'z') })
		if target, _, err := New(Hooks{}).Find(words[:min(2, len(words))]); err != nil || target.CommandPath() == "everdict" && words[0] != "--help" {
			t.Errorf("%s: %q is shown as %q, and there is no command everdict %s", where, hint, shown, strings.Join(words, " "))
		}
	}
}

// checkVerbs refuses %v for anything but an error in what people read.
func checkVerbs(t *testing.T, set *token.FileSet, call *ast.CallExpr) {
	t.Helper()
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(problems, selector.Sel.Name) || len(call.Args) == 0 {
		return
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok || !strings.Contains(literal.Value, "%v") {
		return
	}
	for _, arg := range call.Args[1:] {
		if name, ok := arg.(*ast.Ident); ok && name.Name == "err" {
			return
		}
	}
	t.Errorf("%s: %s shows a value as Go prints it", set.Position(call.Pos()), literal.Value)
}

// serverFiles are the sources of what answers a request, without tests.
func serverFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{"coordinator", "protocol", "lease"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(files) < 50 {
		t.Fatalf("found %d files of the server, want all of them", len(files))
	}
	return files
}

func TestAsCommands(t *testing.T) {
	t.Parallel()
	for hint, want := range map[string]string{
		"GET /runs lists them, POST /keys makes one":                    "everdict runs list lists them, everdict keys create makes one",
		"register it with POST /harnesses, or use one that is built in": "register it with everdict harnesses register, or use one that is built in",
		`GET /harnesses/my-agent lists its versions`:                    "everdict harnesses list lists its versions",
		"GET /harness-templates/t.1 lists its versions":                 "everdict harnesses list --templates lists its versions",
		"register it with POST /harness-templates":                      "register it with everdict harnesses register --template",
		"GET /runs/{id}/trajectory/live has what is there so far":       "everdict runs trace has what is there so far",
		"see GET /runs/run_01k0.":                                       "see everdict runs get.",
		"an admin pairs one: POST /workspace/runners":                   "an admin pairs one: everdict runners pair --workspace",
		"GET /else stays": "GET /else stays",
		"nothing to do":   "nothing to do",
	} {
		if got := asCommands(hint); got != want {
			t.Errorf("%q is shown as %q, want %q", hint, got, want)
		}
	}
}
