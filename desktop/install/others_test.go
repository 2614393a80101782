package install

import (
	"bytes"
	"encoding/binary"
	"image/png"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMac(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.cfg.Executable = "/Applications/Everdict.app/Contents/MacOS/everdict-desktop"
	m := mac{u.cfg}
	before := u.tree()
	if r, err := m.install(t.Context()); err != nil || len(r.Written)+len(r.Kept) != 0 {
		t.Errorf("installing a bundle reports %+v, %v, want nothing to do", r, err)
	}
	m.AtLogin = true
	if r, err := m.install(t.Context()); err != nil || len(r.Written) != 1 {
		t.Errorf("starting at login reports %+v, %v, want the agent written", r, err)
	}
	if on, err := m.startsAtLogin(t.Context()); !on || err != nil {
		t.Errorf("it starts at login: %v, %v", on, err)
	}
	agent := u.read("Library/LaunchAgents/" + AgentLabel + ".plist")
	u.write("Library/LaunchAgents/"+AgentLabel+".plist", strings.ReplaceAll(agent, "everdict-desktop", "other"))
	if on, err := m.startsAtLogin(t.Context()); on || err != nil {
		t.Errorf("an agent that starts something else: %v, %v", on, err)
	}
	u.write("Library/LaunchAgents/"+AgentLabel+".plist", agent)
	if r, err := m.uninstall(t.Context()); err != nil || len(r.Removed) != 1 {
		t.Errorf("uninstalling reports %+v, %v", r, err)
	}
	if diff := cmp.Diff(before, u.tree()); diff != "" {
		t.Errorf("after installing and uninstalling (-before +after):\n%s", diff)
	}
	m.Executable = "/usr/local/bin/everdict-desktop"
	if r, err := m.install(t.Context()); err != nil || len(r.Kept) != 1 {
		t.Errorf("without a bundle it reports %+v, %v, want it said that links do not come", r, err)
	}
}

// memory is a registry in memory: keys, each with its texts by name. As in the real one, a key is there without a value, the
// keys above it come with it, and it goes only when it is removed.
type memory map[string]map[string]string

func newMemory(values ...RegistryValue) memory {
	m := memory{}
	for _, v := range values {
		_ = m.set(v) // it never fails
	}
	return m
}

// clone is a registry with the same keys and values.
func (m memory) clone() memory {
	c := memory{}
	for key, values := range m {
		c[key] = maps.Clone(values)
	}
	return c
}

func (m memory) get(key, name string) (string, bool, error) {
	text, ok := m[key][name]
	return text, ok, nil
}

func (m memory) set(v RegistryValue) error {
	for end := range len(v.Key) + 1 {
		if key := v.Key[:end]; (end == len(v.Key) || v.Key[end] == '\\') && m[key] == nil {
			m[key] = map[string]string{}
		}
	}
	m[v.Key][v.Name] = v.Text
	return nil
}

func (m memory) remove(key, name string) error {
	delete(m[key], name)
	return nil
}

func (m memory) removeKey(key string) error {
	for other := range m {
		if strings.HasPrefix(other, key+`\`) {
			return nil
		}
	}
	if len(m[key]) == 0 {
		delete(m, key)
	}
	return nil
}

// testRegistry is what every registry has to do, in a key of the test's own. keys are those that are there in it.
func testRegistry(t *testing.T, r registry, own string, keys func() []string) {
	t.Helper()
	there := func(when string, want ...string) {
		t.Helper()
		if got := keys(); !slices.Equal(got, want) {
			t.Errorf("%s the keys are %q, want %q", when, got, want)
		}
	}
	value := func(key, name, want string, there bool) {
		t.Helper()
		if text, ok, err := r.get(key, name); text != want || ok != there || err != nil {
			t.Errorf("%s, %q has %q, %v, %v, want %q, %v", key, name, text, ok, err, want, there)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	upper, lower := own+`\upper`, own+`\upper\lower`
	value(lower, "", "", false)
	do(r.remove(lower, "none"))
	do(r.removeKey(lower))
	there("in the beginning")
	do(r.set(RegistryValue{Key: lower, Text: "one"}))
	there("with a value", "upper", `upper\lower`)
	value(lower, "", "one", true)
	value(lower, "named", "", false)
	do(r.set(RegistryValue{Key: lower, Name: "named", Text: "two"}))
	do(r.set(RegistryValue{Key: lower, Text: "three"}))
	value(lower, "", "three", true)
	value(lower, "named", "two", true)
	do(r.removeKey(upper))
	do(r.removeKey(lower))
	there("when keys with something in them are removed", "upper", `upper\lower`)
	do(r.remove(lower, ""))
	value(lower, "", "", false)
	do(r.removeKey(lower))
	there("when a key with a named value is removed", "upper", `upper\lower`)
	do(r.remove(lower, "named"))
	there("when a key has no value any more", "upper", `upper\lower`)
	do(r.removeKey(lower))
	there("when the lower key is removed", "upper")
	do(r.removeKey(upper))
	there("when all is removed")
}

// TestMemory: the stand-in does what the registry of Windows is tested for, there.
func TestMemory(t *testing.T) {
	t.Parallel()
	m := memory{}
	testRegistry(t, m, `Software\Everdict test`, func() []string {
		var below []string
		for key := range m {
			if rest, ok := strings.CutPrefix(key, `Software\Everdict test\`); ok {
				below = append(below, rest)
			}
		}
		slices.Sort(below)
		return below
	})
}

func TestWindows(t *testing.T) {
	t.Parallel()
	reg := newMemory(RegistryValue{Key: `Software\Classes\other`, Text: "URL:Other"}, RegistryValue{Key: RunKey, Name: "Other", Text: "other.exe"})
	before := reg.clone()
	w := windows{Config{Executable: `C:\Users\a b\everdict-desktop.exe`, AtLogin: true}, reg}
	if r, err := w.install(t.Context()); err != nil || len(r.Written) != 4 {
		t.Errorf("installing reports %+v, %v, want four values written", r, err)
	}
	if got, want := reg[CommandKey][""], `"C:\Users\a b\everdict-desktop.exe" "%1"`; got != want {
		t.Errorf("links are opened by %s, want %s", got, want)
	}
	if r, err := w.install(t.Context()); err != nil || len(r.Written) != 0 || len(r.Unchanged) != 4 {
		t.Errorf("installing again reports %+v, %v", r, err)
	}
	w.Executable = `D:\new\everdict-desktop.exe`
	if r, err := w.install(t.Context()); err != nil || len(r.Written) != 2 {
		t.Errorf("the program has moved: %+v, %v, want both commands written", r, err)
	}
	if on, err := w.startsAtLogin(t.Context()); !on || err != nil {
		t.Errorf("it starts at login: %v, %v", on, err)
	}
	if r, err := w.uninstall(t.Context()); err != nil || len(r.Removed) != 4 {
		t.Errorf("uninstalling reports %+v, %v", r, err)
	}
	if diff := cmp.Diff(before, reg); diff != "" {
		t.Errorf("after installing and uninstalling (-before +after):\n%s", diff)
	}

	// What others have put into our keys stays, and the keys above it.
	if _, err := w.install(t.Context()); err != nil {
		t.Fatal(err)
	}
	theirs := RegistryValue{Key: SchemeKey + `\DefaultIcon`, Text: "icon.ico"}
	if err := reg.set(theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := w.uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	with := before.clone()
	if err := with.set(theirs); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(with, reg); diff != "" {
		t.Errorf("after uninstalling beside somebody's icon (-want +got):\n%s", diff)
	}

	// Others have both names.
	reg = before.clone()
	w.registry = reg
	for _, v := range []RegistryValue{{Key: CommandKey, Text: `"C:\other.exe" "%1"`}, {Key: RunKey, Name: RunName, Text: `C:\other.exe`}} {
		if err := reg.set(v); err != nil {
			t.Fatal(err)
		}
	}
	before = reg.clone()
	if r, err := w.install(t.Context()); err != nil || r.Handler != `"C:\other.exe" "%1"` || len(r.Kept) != 1 {
		t.Errorf("beside another handler it reports %+v, %v", r, err)
	}
	if r, err := w.uninstall(t.Context()); err != nil || len(r.Kept) != 2 {
		t.Errorf("uninstalling beside another handler reports %+v, %v", r, err)
	}
	if diff := cmp.Diff(before, reg); diff != "" {
		t.Errorf("what is others' was changed (-before +after):\n%s", diff)
	}
	w.TakeOver = true
	if r, err := w.install(t.Context()); err != nil || r.Handler != "" || !ours(reg[CommandKey][""]) {
		t.Errorf("taking over reports %+v, %v", r, err)
	}
}

func TestIcons(t *testing.T) {
	t.Parallel()
	for name, b := range Icons() {
		if strings.HasSuffix(name, ".svg") {
			continue
		}
		img, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, _, _, a := img.At(0, 0).RGBA(); a != 0 {
			t.Errorf("%s: its corner is not clear", name)
		}
		size := img.Bounds().Dx()
		if r, _, bl, a := img.At(size*43/100, size*70/100).RGBA(); a != 0xffff || r < 0xa000 || bl < 0xa000 {
			t.Errorf("%s: the tick is %x, %x, %x, want it light", name, r, bl, a)
		}
	}
	icns := IconICNS()
	if string(icns[:4]) != "icns" || int(binary.BigEndian.Uint32(icns[4:])) != len(icns) {
		t.Errorf("the icon for macOS begins with %q and says that it has %d bytes, want icns and %d", icns[:4], binary.BigEndian.Uint32(icns[4:]), len(icns))
	}
}
