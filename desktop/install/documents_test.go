package install

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"howett.net/plist"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file below testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if got != string(want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	golden(t, "dev.everdict.desktop", must(DesktopEntry("/usr/bin/everdict-desktop"))(t))
	golden(t, "autostart.desktop", must(AutostartEntry("/opt/everdict/everdict-desktop"))(t))
	golden(t, "everdict-desktop.service", must(Unit("/usr/bin/everdict-desktop"))(t))
	golden(t, "Info.plist", InfoPlist("1.2.3"))
	golden(t, "dev.everdict.desktop.plist", must(LaunchAgent("/Applications/Everdict.app/Contents/MacOS/everdict-desktop"))(t))
	golden(t, "everdict.svg", IconSVG())
	var keys strings.Builder
	values := append(must(SchemeValues(`C:\Program Files\Everdict\everdict-desktop.exe`))(t), must(RunValue(`C:\Program Files\Everdict\everdict-desktop.exe`))(t))
	for _, v := range values {
		fmt.Fprintf(&keys, "%s\n\t%q = %s\n", v.Key, v.Name, v.Text)
	}
	golden(t, "registry.txt", keys.String())
}

func TestPropertyListsAreRead(t *testing.T) {
	t.Parallel()
	var info struct {
		Identifier string `plist:"CFBundleIdentifier"`
		Version    string `plist:"CFBundleVersion"`
		URLTypes   []struct {
			Schemes []string `plist:"CFBundleURLSchemes"`
		} `plist:"CFBundleURLTypes"`
	}
	if _, err := plist.Unmarshal([]byte(InfoPlist("1 & <2>")), &info); err != nil {
		t.Fatal(err)
	}
	if info.Identifier != AppID || info.Version != "1 & <2>" || len(info.URLTypes) != 1 || info.URLTypes[0].Schemes[0] != Scheme {
		t.Errorf("Info.plist says %+v", info)
	}
	var agent struct {
		Label            string
		ProgramArguments []string
		RunAtLoad        bool
	}
	const odd = `/Users/a & b/<x>/everdict-desktop`
	if _, err := plist.Unmarshal([]byte(must(LaunchAgent(odd))(t)), &agent); err != nil {
		t.Fatal(err)
	}
	if agent.Label != AgentLabel || !agent.RunAtLoad || len(agent.ProgramArguments) != 2 || agent.ProgramArguments[0] != odd || agent.ProgramArguments[1] != BackgroundFlag {
		t.Errorf("the launch agent says %+v", agent)
	}
}

func TestExecArg(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/usr/bin/everdict-desktop": "/usr/bin/everdict-desktop",
		"/opt/100%/e":               "/opt/100%%/e",
		"/home/a b/e":               `"/home/a b/e"`,
		"/home/ünï/e":               "/home/ünï/e",
		`/a"b/e`:                    `"/a\\"b/e"`,
		"/a`b/$c":                   "\"/a\\\\`b/\\\\$c\"",
		`/a\b/e`:                    `"/a\\\\b/e"`,
	} {
		if got, err := execArg(path); got != want || err != nil {
			t.Errorf("%s is written %s (%v), want %s", path, got, err, want)
		}
	}
}

func TestPathsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "everdict-desktop", "/a\nExec=/bin/evil", "/a\x00b"} {
		for name, build := range map[string]func(string) (string, error){"desktop entry": DesktopEntry, "autostart": AutostartEntry, "unit": Unit, "agent": LaunchAgent} {
			if got, err := build(path); !errors.Is(err, ErrPath) {
				t.Errorf("%s of %q: %q, %v, want %v", name, path, got, err, ErrPath)
			}
		}
	}
	for _, path := range []string{"", "everdict-desktop.exe", `C:everdict.exe`, `C:\a" --evil "b.exe`, `C:\%PATH%\e.exe`, "/usr/bin/e"} {
		if got, err := SchemeValues(path); !errors.Is(err, ErrPath) {
			t.Errorf("keys of %q: %v, %v, want %v", path, got, err, ErrPath)
		}
	}
}
