//go:build cgo

package userns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// These tests start this test binary again, as a user without privileges.

const roleEnv = "EVERDICT_TEST_ROLE"

func TestMain(m *testing.M) {
	runtime.LockOSThread()
	switch role, arg, _ := strings.Cut(os.Getenv(roleEnv), " "); role {
	case "":
		runtime.UnlockOSThread()
		os.Exit(m.Run())
	case "enter":
		err := Enter()
		fmt.Println("inside", Inside(), "refused", Refused() != nil, err)
		fmt.Println("mark", os.Getenv(Mark))
		fmt.Println("mount", unix.Mount("none", "/", "tmpfs", 0, "size=4k"))
		if err := Shed(); err != nil { // of this thread; main's is locked
			fmt.Println(err)
		}
		out, err := exec.Command("sed", "-n", `s/^CapPrm:\t//p`, "/proc/self/status").Output()
		fmt.Println("child", strings.TrimSpace(string(out)), err)
	case "include":
		if err := Enter(); err != nil {
			fmt.Println(err)
		}
		fmt.Println(ownIncludes(arg, "ssh_config"))
		for _, f := range []string{"a.conf", "deep/b", "mine.conf"} {
			path := filepath.Join(arg, f)
			st, err := os.Stat(path)
			if err != nil {
				fmt.Println(err)
				continue
			}
			b, err := os.ReadFile(path)
			fmt.Println(f, st.Sys().(*syscall.Stat_t).Uid, st.Mode().Perm(), string(b), err)
		}
		left, err := filepath.Glob(filepath.Join(os.TempDir(), "everdict-ssh-*"))
		fmt.Println("left", left, err)
	}
	os.Exit(0)
}

const somebody = 1000

// public is a directory with this test's binary, into which everybody may come.
func public(t *testing.T) (dir, self string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "userns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	self = filepath.Join(dir, "test")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, self
}

// as runs a command in a role, as somebody if this is root, and returns the lines that it prints.
func as(t *testing.T, dir, role string, change func(*exec.Cmd), args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = []string{roleEnv + "=" + role, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	}
	if change != nil {
		change(cmd)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", role, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestEnter(t *testing.T) {
	t.Parallel()
	dir, self := public(t)
	got := as(t, dir, "enter", nil, self)
	want := []string{"inside true refused false <nil>", "mark ", "mount <nil>", "child 0000000000000000 <nil>"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A system that allows nobody a user namespace leaves the program as it was.
func TestEnter_Refused(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can take user namespaces from somebody")
	}
	dir, self := public(t)
	got := as(t, dir, "enter", func(cmd *exec.Cmd) {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}
	}, "/bin/sh", "-c", fmt.Sprintf(`echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --reuid %d --regid %d --clear-groups "$0"`, somebody, somebody), self)
	if want := "inside false refused true enter a user namespace: no space left on device"; len(got) < 3 || got[0] != want || got[2] != "mount operation not permitted" {
		t.Errorf("got %q, want first %q", got, want)
	}
}

func TestOwnIncludes(t *testing.T) {
	t.Parallel()
	dir, self := public(t)
	conf := filepath.Join(dir, "ssh")
	for name, content := range map[string]string{
		"ssh_config": "Host *\n  # Include no\n Include *.conf\ninclude=\"" + conf + "/deep/b\"\nInclude nothing\n",
		"a.conf":     "Include deep/b",
		"deep/b":     "Include a.conf",
		"mine.conf":  "Port 22",
		"not":        "Include deep/c",
		"deep/c":     "",
	} {
		path := filepath.Join(conf, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	uid := os.Getuid()
	if uid == 0 {
		uid = somebody
		if err := os.Chown(filepath.Join(conf, "mine.conf"), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	got := as(t, dir, "include "+conf, nil, self)
	perm := "-r--r--r--"
	if os.Getuid() != 0 {
		perm = "-rw-r--r--" // all were this user's before: none is covered
	}
	want := []string{"<nil>", fmt.Sprintf("a.conf %d %s Include deep/b <nil>", uid, perm), fmt.Sprintf("deep/b %d %s Include a.conf <nil>", uid, perm),
		fmt.Sprintf("mine.conf %d -rw-r--r-- Port 22 <nil>", uid), "left [] <nil>"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(conf, "a.conf")); err != nil || string(b) != "Include deep/b" {
		t.Errorf("outside: %q, %v", b, err)
	}
}
