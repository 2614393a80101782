//go:build cgo

package userns

import (
	"encoding/binary"
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
		sed := "sed"
		if arg != "" {
			sed = arg
		}
		out, err := exec.Command(sed, "-n", `s/^CapPrm:\t//p`, "/proc/self/status").Output()
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
	self = filepath.Join(dir, "test")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyProgram(t, me, self)
	return dir, self
}

// copyProgram leaves the writing to a process of its own: what another test starts meanwhile would hold the file open.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
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

// A program's file can grant rights, and they hold in the namespace, too: not those that take a cover away.
func TestF27_FilesGrantNoRightToUncover(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give rights to a file")
	}
	dir, self := public(t)
	found, err := exec.LookPath("sed")
	if err != nil {
		t.Fatal(err)
	}
	sed := filepath.Join(dir, "sed")
	copyProgram(t, found, sed)
	// struct vfs_cap_data: the magic of version 2, then permitted and inheritable, low words first
	rights := uint64(1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_PERFMON | 1<<unix.CAP_NET_RAW)
	var attr []byte
	for _, v := range []uint32{0x02000000, uint32(rights), 0, uint32(rights >> 32), 0} {
		attr = binary.LittleEndian.AppendUint32(attr, v)
	}
	if err := unix.Setxattr(sed, "security.capability", attr, 0); err != nil {
		t.Fatal(err)
	}
	got := as(t, dir, "enter "+sed, nil, self)
	if want := fmt.Sprintf("child %016x <nil>", 1<<unix.CAP_NET_RAW); got[len(got)-1] != want {
		t.Errorf("a program with rights of its own: got %q, want last %q", got, want)
	}
}

// In a namespace of root's a job would be root, with every right in it: whatever the environment says, root stays out.
func TestF27_RootDoesNotEnter(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("this is not root")
	}
	dir, self := public(t)
	got := as(t, dir, "enter", func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, Mark+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // it tries to mount
	}, self)
	if want := []string{"inside false refused false <nil>", "mark "}; len(got) < 2 || !slices.Equal(got[:2], want) {
		t.Errorf("got %q, want first %q", got, want)
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
