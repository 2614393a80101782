package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDesktopFilesAreValid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, exe := range []string{"/usr/bin/everdict-desktop", "/home/a b/100%/$x/everdict-desktop"} {
		for name, text := range map[string]string{"a.desktop": must(DesktopEntry(exe))(t), "b.desktop": must(AutostartEntry(exe))(t)} {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("desktop-file-validate", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("desktop-file-validate: %v\n%s\n%s", err, out, text)
			}
		}
	}
}

// TestLinkOpensTheApp opens a link as a desktop does: what was installed is found, and the
// link comes as one argument.
func TestLinkOpensTheApp(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	opened := filepath.Join(u.home, "opened")
	u.cfg.Executable = filepath.Join(u.home, "bin", "everdict-desktop")
	u.write("bin/everdict-desktop", "#!/bin/sh\nprintf '%s\\n' \"$#\" \"$@\" > "+opened+"\n")
	if err := os.Chmod(u.cfg.Executable, 0o755); err != nil {
		t.Fatal(err)
	}
	u.install()
	const link = "everdict://pair?code=prc_1&c=http%3A%2F%2F127.0.0.1%3A8787&x=$(id)"
	cmd := exec.Command("xdg-open", link)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "XDG_") || strings.HasPrefix(kv, "HOME=") || strings.HasPrefix(kv, "DISPLAY=") || strings.HasPrefix(kv, "WAYLAND_DISPLAY=") || strings.HasPrefix(kv, "BROWSER=")
	})
	// xdg-open looks for handlers only where there is a display; this one it never opens.
	cmd.Env = append(cmd.Env, "HOME="+u.home, "DISPLAY=:fake", "XDG_DATA_DIRS="+filepath.Join(u.home, "all-users"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("xdg-open: %v\n%s", err, out)
	}
	if got, want := u.read("opened"), "1\n"+link+"\n"; got != want {
		t.Errorf("the app was started with %q, want %q", got, want)
	}
}

// TestUnitVerify asks systemd.
func TestUnitVerify(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatalf("this test needs systemd's checker of units (make deps): %v", err)
	}
	dir := t.TempDir()
	// The program that a unit starts has to be there, under a name with all that is quoted.
	exe := filepath.Join(dir, `a b%c$d`)
	if err := os.WriteFile(exe, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, UnitFile)
	if err := os.WriteFile(file, []byte(must(Unit(exe))(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "verify", "--man=no", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), UnitFile) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
