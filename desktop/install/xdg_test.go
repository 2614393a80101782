package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// user is a home directory.
type user struct {
	t    *testing.T
	home string
	cfg  Config
}

func newUser(t *testing.T) *user {
	t.Helper()
	home := t.TempDir()
	return &user{t, home, Config{
		Executable: "/opt/everdict/everdict-desktop", Home: home,
		DataHome: filepath.Join(home, ".local/share"), ConfigHome: filepath.Join(home, ".config"),
		DataDirs: []string{filepath.Join(home, "all-users")},
	}}
}

func (u *user) write(name, text string) {
	u.t.Helper()
	path := filepath.Join(u.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) read(name string) string {
	u.t.Helper()
	b, err := os.ReadFile(filepath.Join(u.home, name))
	if err != nil {
		u.t.Fatal(err)
	}
	return string(b)
}

// tree is all that is in the home directory.
func (u *user) tree() map[string]string {
	u.t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(u.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == u.home {
			return err
		}
		name, err := filepath.Rel(u.home, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			tree[name+"/"] = ""
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			tree[name] = "-> " + to
			return err
		default:
			b, err := os.ReadFile(path)
			tree[name] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return tree
}

func (u *user) install(change ...func(*Config)) Report {
	u.t.Helper()
	cfg := u.cfg
	for _, c := range change {
		c(&cfg)
	}
	r, err := xdg{cfg}.install(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	return r
}

func (u *user) uninstall() Report {
	u.t.Helper()
	r, err := xdg{u.cfg}.uninstall(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	return r
}

func everything(c *Config) { c.AtLogin, c.Service = true, true }

func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setup func(*user)
	}{
		{"an empty home", func(*user) {}},
		{"with defaults of its own", func(u *user) {
			u.write(".config/mimeapps.list", "[Default Applications]\ntext/html=firefox.desktop\n\n# mine\n")
		}},
		{"with other menus and icons", func(u *user) {
			u.write(".local/share/applications/other.desktop", "[Desktop Entry]\nMimeType=x-scheme-handler/other;\n")
			u.write(".local/share/icons/hicolor/16x16/apps/other.png", "png")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			tt.setup(u)
			before := u.tree()
			r := u.install(everything)
			// .desktop, icons, autostart, unit, mimeapps.list
			if want := 1 + len(Icons()) + 1 + 1 + 1; len(r.Written) != want || len(r.Kept) != 0 || r.Handler != "" || len(r.Next) == 0 {
				t.Errorf("installing reports %+v, want %d written and nothing kept", r, want)
			}
			if h := Handlers(u.read(".config/mimeapps.list")); !slices.Equal(h, []string{DesktopFile}) {
				t.Errorf("our links are opened by %q, want %s", h, DesktopFile)
			}
			installed := u.tree()
			if r := u.install(everything); len(r.Written) != 0 || len(r.Kept) != 0 {
				t.Errorf("installing again reports %+v, want nothing written", r)
			}
			if diff := cmp.Diff(installed, u.tree()); diff != "" {
				t.Errorf("installing again changed something:\n%s", diff)
			}
			u.uninstall()
			if diff := cmp.Diff(before, u.tree()); diff != "" {
				t.Errorf("after installing and uninstalling (-before +after):\n%s", diff)
			}
			if r := u.uninstall(); len(r.Removed)+len(r.Written)+len(r.Kept) != 0 {
				t.Errorf("uninstalling again reports %+v", r)
			}
		})
	}
}

func TestInstallBringsUpToDate(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.install(everything)
	r := u.install(everything, func(c *Config) { c.Executable = "/usr/local/bin/everdict-desktop" })
	if len(r.Written) != 3 || len(r.Kept) != 0 {
		t.Errorf("the program has moved: %+v, want the entry, the autostart and the unit written", r)
	}
	if e := u.read(".local/share/applications/" + DesktopFile); !strings.Contains(e, "Exec=/usr/local/bin/everdict-desktop %u\n") {
		t.Errorf("the entry is\n%s", e)
	}
}

func TestWhatIsNotOursStays(t *testing.T) {
	t.Parallel()
	t.Run("files that were there before", func(t *testing.T) {
		t.Parallel()
		u := newUser(t)
		u.write(".local/share/applications/"+DesktopFile, "[Desktop Entry]\nName=Mine\n")
		u.write("elsewhere", "x")
		if err := os.MkdirAll(filepath.Join(u.home, ".config/autostart"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(u.home, "elsewhere"), filepath.Join(u.home, ".config/autostart", DesktopFile)); err != nil {
			t.Fatal(err)
		}
		before := u.tree()
		if r := u.install(everything); len(r.Kept) != 2 {
			t.Errorf("installing reports %+v, want two kept", r)
		}
		u.uninstall()
		if diff := cmp.Diff(before, u.tree()); diff != "" {
			t.Errorf("after installing and uninstalling (-before +after):\n%s", diff)
		}
	})
	t.Run("files that were changed since", func(t *testing.T) {
		t.Parallel()
		u := newUser(t)
		u.install(everything)
		const mine = "[Desktop Entry]\nName=Changed\n"
		u.write(".local/share/applications/"+DesktopFile, mine)
		if r := u.install(everything); len(r.Kept) != 1 {
			t.Errorf("installing again reports %+v, want the changed file kept", r)
		}
		if r := u.uninstall(); len(r.Kept) != 1 {
			t.Errorf("uninstalling reports %+v, want the changed file kept", r)
		}
		if got := u.read(".local/share/applications/" + DesktopFile); got != mine {
			t.Errorf("the changed file is now\n%s", got)
		}
	})
	t.Run("defaults that were changed since", func(t *testing.T) {
		t.Parallel()
		u := newUser(t)
		u.install()
		u.write(".config/mimeapps.list", u.read(".config/mimeapps.list")+"text/html=firefox.desktop\n")
		u.uninstall()
		if got, want := u.read(".config/mimeapps.list"), "[Default Applications]\ntext/html=firefox.desktop\n"; got != want {
			t.Errorf("the defaults are\n%s\nwant\n%s", got, want)
		}
	})
}

func TestAnotherHandler(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setup func(*user)
	}{
		{"chosen", func(u *user) {
			u.write(".config/mimeapps.list", "[Default Applications]\nx-scheme-handler/everdict=other.desktop\n")
		}},
		{"of all users", func(u *user) {
			u.write("all-users/applications/other.desktop", "[Desktop Entry]\nMimeType=a/b;x-scheme-handler/everdict;\n")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			tt.setup(u)
			before := u.tree()
			if r := u.install(); r.Handler != "other.desktop" || slices.Contains(r.Written, filepath.Join(u.home, ".config/mimeapps.list")) {
				t.Errorf("installing reports %+v, want the other handler, and the defaults not written", r)
			}
			if r := u.install(func(c *Config) { c.TakeOver = true }); r.Handler != "" {
				t.Errorf("taking over reports %+v", r)
			}
			if h := Handlers(u.read(".config/mimeapps.list")); h[0] != DesktopFile {
				t.Errorf("after taking over our links are opened by %q", h)
			}
			if r := u.install(); r.Handler != "" || len(r.Written) != 0 {
				t.Errorf("installing after that reports %+v", r)
			}
			u.uninstall()
			if diff := cmp.Diff(before, u.tree()); diff != "" {
				t.Errorf("after installing and uninstalling (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPackageForAllUsers(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.write("all-users/applications/"+DesktopFile, must(DesktopEntry(u.cfg.Executable))(t))
	r := u.install()
	if _, err := os.Stat(filepath.Join(u.home, ".local/share/applications")); err == nil || len(r.Written) != 1 {
		t.Errorf("beside a package, installing reports %+v, want the defaults written alone", r)
	}
}

func TestAtLogin(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	x := xdg{u.cfg}
	before := u.tree()
	want := func(step string, want bool) {
		t.Helper()
		if got, err := x.startsAtLogin(t.Context()); got != want || err != nil {
			t.Errorf("%s: it starts at login: %v, %v, want %v", step, got, err, want)
		}
	}
	set := func(on bool) Report {
		t.Helper()
		r, err := x.atLogin(t.Context(), on)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want("at first", false)
	set(true)
	want("turned on", true)
	set(true)
	// As the settings of a desktop do it.
	u.write(".config/autostart/"+DesktopFile, u.read(".config/autostart/"+DesktopFile)+"Hidden=true\n")
	want("turned off by the desktop", false)
	if r := set(true); len(r.Written) != 1 {
		t.Errorf("turning it on again reports %+v", r)
	}
	want("turned on again", true)
	set(false)
	want("turned off", false)
	if r := set(false); len(r.Removed) != 0 {
		t.Errorf("turning it off again reports %+v", r)
	}
	if diff := cmp.Diff(before, u.tree()); diff != "" {
		t.Errorf("after turning it on and off (-before +after):\n%s", diff)
	}
	// Somebody else's file in that place: it is kept, reported, and is no start of ours unless it runs us.
	u.write(".config/autostart/"+DesktopFile, "[Desktop Entry]\nType=Application\nName=Everdict\nExec=/usr/bin/other\n")
	if r := set(true); len(r.Kept) != 1 {
		t.Errorf("turning it on beside somebody else's file reports %+v", r)
	}
	want("somebody else's file", false)
	u.write(".config/autostart/"+DesktopFile, "[Desktop Entry]\nType=Application\nName=Everdict\nExec = \"/home/a b/everdict-desktop\" --background\n")
	want("a file by hand", true)
	set(false)
	want("a file by hand, which the app does not remove", true)
}

// TestRefusalChangesNothing: P15.
func TestRefusalChangesNothing(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	before := u.tree()
	cfg := u.cfg
	cfg.Executable = "/opt/x\ny/everdict-desktop"
	everything(&cfg)
	if _, err := (xdg{cfg}).install(t.Context()); err == nil {
		t.Error("a path with a line break was taken")
	}
	u.write(".local/share/everdict/installed.json", "no JSON")
	broken := u.tree()
	if _, err := (xdg{u.cfg}).install(t.Context()); err == nil {
		t.Error("a list of what is installed that cannot be read was passed over")
	}
	if diff := cmp.Diff(broken, u.tree()); diff != "" {
		t.Errorf("a refused installation changed something:\n%s", diff)
	}
	if _, ok := before[".local/"]; ok {
		t.Error("a refused installation made directories")
	}
}

func TestDirectories(t *testing.T) {
	u := newUser(t)
	t.Setenv("HOME", u.home)
	t.Setenv("XDG_DATA_HOME", filepath.Join(u.home, "data"))
	t.Setenv("XDG_CONFIG_HOME", "relative")
	t.Setenv("XDG_DATA_DIRS", "")
	got, err := Config{Executable: "/x"}.withDefaults()
	want := Config{Executable: "/x", Home: u.home, DataHome: filepath.Join(u.home, "data"), ConfigHome: filepath.Join(u.home, ".config"), DataDirs: []string{"/usr/local/share", "/usr/share"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
