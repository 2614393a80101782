package install

import (
	"bytes"
	"encoding/binary"
	"image/png"
	"maps"
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

// memory is a registry in memory: texts by key and name.
type memory map[[2]string]string

func (m memory) get(key, name string) (string, bool, error) {
	text, ok := m[[2]string{key, name}]
	return text, ok, nil
}

func (m memory) set(v RegistryValue) error {
	m[[2]string{v.Key, v.Name}] = v.Text
	return nil
}

func (m memory) remove(key, name string) error {
	delete(m, [2]string{key, name})
	return nil
}

// removeKey: in memory a key is there as long as a value is.
func (m memory) removeKey(string) error { return nil }

func TestWindows(t *testing.T) {
	t.Parallel()
	reg := memory{{`Software\Classes\other`, ""}: "URL:Other", {RunKey, "Other"}: "other.exe"}
	before := maps.Clone(reg)
	w := windows{Config{Executable: `C:\Users\a b\everdict-desktop.exe`, AtLogin: true}, reg}
	if r, err := w.install(t.Context()); err != nil || len(r.Written) != 4 {
		t.Errorf("installing reports %+v, %v, want four values written", r, err)
	}
	if got, want := reg[[2]string{CommandKey, ""}], `"C:\Users\a b\everdict-desktop.exe" "%1"`; got != want {
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

	// Others have both names.
	reg[[2]string{CommandKey, ""}], reg[[2]string{RunKey, RunName}] = `"C:\other.exe" "%1"`, "C:\\other.exe"
	before = maps.Clone(reg)
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
	if r, err := w.install(t.Context()); err != nil || r.Handler != "" || !ours(reg[[2]string{CommandKey, ""}]) {
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
