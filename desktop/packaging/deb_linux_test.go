package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// clean is a directory that a package can be installed in: the C library and a shell of this
// machine, and dpkg's list that says the former is there.
type clean struct {
	t    *testing.T
	root string
}

func newClean(t *testing.T) *clean {
	t.Helper()
	c := &clean{t, t.TempDir()}
	status, err := exec.Command("dpkg-query", "--status", "libc6").Output()
	if err != nil {
		t.Fatalf("ask dpkg for the C library: %v", err)
	}
	c.write("var/lib/dpkg/status", append(status, '\n'))
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/log", "tmp"} {
		if err := os.MkdirAll(filepath.Join(c.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *clean) write(name string, content []byte) {
	c.t.Helper()
	path := filepath.Join(c.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// libraries puts those in place that a program asks for, with its loader.
func (c *clean) libraries(program string) {
	c.t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		c.t.Fatalf("ldd %s: %v", program, err)
	}
	for _, path := range regexp.MustCompile(`/\S+`).FindAllString(string(out), -1) {
		content, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		c.write(path, content)
	}
}

// asRoot has the command think that it is root, in a user namespace, where we are not.
func asRoot(cmd *exec.Cmd) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

func (c *clean) dpkg(args ...string) {
	c.t.Helper()
	cmd := asRoot(exec.Command("dpkg", append([]string{"--root=" + c.root, "--log=/dev/null", "--force-not-root"}, args...)...))
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("dpkg %q: %v\n%s", args, err, out)
	}
}

// run runs a program in the directory, with nothing of this machine around it.
func (c *clean) run(name string, args ...string) string {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Path, cmd.Dir, cmd.Err = name, "/", nil
	cmd.Env = []string{"HOME=/tmp", "PATH=/usr/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root}
	out, err := asRoot(cmd).CombinedOutput()
	if err != nil {
		c.t.Fatalf("run %s %q in a clean directory: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// tree lists what is there, but dpkg's own files.
func (c *clean) tree() []string {
	c.t.Helper()
	var names []string
	err := filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
		if path == filepath.Join(c.root, "var/lib/dpkg") {
			return filepath.SkipDir
		}
		names = append(names, path)
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return names
}

func TestDebInACleanRoot(t *testing.T) {
	b := build(t)
	native := slices.IndexFunc(targets, target.native)
	if native < 0 {
		t.Fatal("there is no package for this machine")
	}
	deb := b.packages[targets[native]]
	c := newClean(t)
	c.libraries(b.programs[targets[native]])
	c.libraries(b.release.cli)
	before := c.tree()

	c.dpkg("--install", deb)
	if got := c.run("/usr/bin/everdict-desktop", "version"); !strings.HasPrefix(got, "everdict-desktop v1.2.3 ") {
		t.Errorf("the installed app is of version %q, want v1.2.3", got)
	}
	if got := c.run("/usr/bin/everdict", "version"); !strings.HasPrefix(got, "everdict ") {
		t.Errorf("the installed program everdict says %q", got)
	}
	if out, err := exec.Command("desktop-file-validate", filepath.Join(c.root, "usr/share/applications/dev.everdict.desktop")).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("desktop-file-validate: %v\n%s", err, out)
	}
	// Every file is as the package says.
	sums, err := os.ReadFile(filepath.Join(c.root, "var/lib/dpkg/info/everdict-desktop.md5sums"))
	if err != nil || len(sums) == 0 {
		t.Fatalf("the package has no checksums: %v", err)
	}
	check := exec.Command("md5sum", "--check", "--quiet")
	check.Dir, check.Stdin = c.root, bytes.NewReader(sums)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("md5sum: %v\n%s", err, out)
	}
	c.dpkg("--purge", "everdict-desktop")
	if after := c.tree(); !slices.Equal(before, after) {
		t.Errorf("after the purge there are\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	if _, err := os.Stat(filepath.Join(c.root, "var/lib/dpkg/info/everdict-desktop.list")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dpkg still knows the package: %v", err)
	}
}

func TestDebOfEachArchitecture(t *testing.T) {
	b := build(t)
	for _, target := range targets {
		if target.OS != "linux" {
			continue
		}
		fields := map[string]string{}
		for _, name := range []string{"Package", "Version", "Architecture", "Depends", "Recommends"} {
			out, err := exec.Command("dpkg-deb", "--field", b.packages[target], name).Output()
			if err != nil {
				t.Fatal(err)
			}
			fields[name] = strings.TrimSpace(string(out))
		}
		want := map[string]string{"Package": "everdict-desktop", "Version": "1.2.3", "Architecture": target.Arch, "Depends": "libc6", "Recommends": "libwebkit2gtk-4.1-0, xdg-utils"}
		if fmt.Sprint(fields) != fmt.Sprint(want) {
			t.Errorf("%v: its fields are %v, want %v", target, fields, want)
		}
		out, err := exec.Command("dpkg-deb", "--contents", b.packages[target]).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); f[1] != "root/root" || strings.HasPrefix(f[0], "d") && f[0] != "drwxr-xr-x" || strings.HasPrefix(f[0], "-") && f[0] != "-rw-r--r--" && f[0] != "-rwxr-xr-x" {
				t.Errorf("%v: owner or mode of %s", target, strings.TrimSpace(line))
			}
		}
		if got := strings.Contains(string(out), "./usr/bin/everdict\n"); got != target.native() {
			t.Errorf("%v: the program everdict is in it: %v, want %v", target, got, target.native())
		}
	}
}
