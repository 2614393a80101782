//go:build unix

package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// unprivileged runs the calling test as a user whom permissions bind. For root,
// whom they do not, it runs the test in a copy of this binary as nobody, and returns false.
func unprivileged(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	dir, err := os.MkdirTemp("", "nobody")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Skipf("needs another user than root, or /proc: %v", err)
	}
	defer self.Close()
	copied, err := os.OpenFile(filepath.Join(dir, "test"), os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(copied, self)
	must(t, errors.Join(err, copied.Close()))
	cmd := exec.Command(copied.Name(), "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
	return false
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
}

// TestF22_ReadOnlyTreeIsRemoved: directories without write, read or search
// permission, as "go mod download" and hostile agents leave them.
func TestF22_ReadOnlyTreeIsRemoved(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	top := t.TempDir()
	outside := filepath.Join(top, "outside")
	write(t, outside+"/precious", "x")
	must(t, os.Chmod(outside, 0o555))
	defer os.Chmod(outside, 0o755)
	tree := filepath.Join(top, "tree")
	for i, mode := range []fs.FileMode{0o555, 0o000, 0o444, 0o222, 0o111} {
		dir := fmt.Sprintf("%s/d%d", tree, i)
		write(t, dir+"/sub/f", "x")
		must(t, os.Symlink(outside, dir+"/out"))
		must(t, os.Symlink(outside+"/precious", dir+"/sub/out"))
		must(t, os.Chmod(dir+"/sub/f", 0o000))
		must(t, os.Chmod(dir+"/sub", mode))
		must(t, os.Chmod(dir, mode))
	}
	must(t, os.Chmod(tree, 0o500))
	must(t, RemoveTree(t.Context(), tree))
	gone(t, tree)
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("a directory that a link leads to: got %v, %v, want it untouched", info, err)
	}
	if _, err := os.Stat(outside + "/precious"); err != nil {
		t.Errorf("a file that a link leads to: %v", err)
	}
}

// TestRemoveTreeDeeperThanOpenFiles removes what a process cannot walk with one
// open directory for each level.
func TestRemoveTreeDeeperThanOpenFiles(t *testing.T) {
	t.Parallel()
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.Mkdir(tree, 0o755))
	root, err := os.OpenRoot(tree)
	must(t, err)
	at, err := root.OpenRoot(".")
	must(t, err)
	for i := range 1500 {
		must(t, at.Mkdir("d", 0o755))
		if i%100 == 0 {
			must(t, at.WriteFile("f", nil, 0o644))
		}
		next, err := at.OpenRoot("d")
		must(t, err)
		at.Close()
		at = next
	}
	at.Close()
	root.Close()
	info, err := os.Lstat(tree)
	must(t, err)
	top, err := os.OpenRoot(filepath.Dir(tree))
	must(t, err)
	defer top.Close()
	must(t, removeDir(t.Context(), top, filepath.Base(tree), info)) // the slow way, whatever os.RemoveAll can do
	must(t, os.Remove(tree))
}

func TestRemoveManyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 100,000 files")
	}
	t.Parallel()
	tree := filepath.Join(t.TempDir(), "tree")
	for d := range 100 {
		dir := fmt.Sprintf("%s/%d", tree, d)
		must(t, os.MkdirAll(dir, 0o755))
		write(t, dir+"/file", "x")
		must(t, os.Symlink("/etc", dir+"/link"))
		for f := range 998 { // names without inodes of their own are quick to make
			must(t, os.Link(dir+"/file", fmt.Sprintf("%s/%d", dir, f)))
		}
	}
	must(t, RemoveTree(t.Context(), tree))
	gone(t, tree)
}

func TestRemoveTreeOfOtherThings(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	must(t, RemoveTree(t.Context(), filepath.Join(top, "missing")))
	write(t, top+"/kept/f", "x")
	must(t, os.Symlink(top+"/kept", top+"/link"))
	must(t, RemoveTree(t.Context(), top+"/link"))
	gone(t, top+"/link")
	if _, err := os.Stat(top + "/kept/f"); err != nil {
		t.Errorf("the link was followed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RemoveTree(ctx, top+"/kept"); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancelling: got %v", err)
	}
}

// TestUnreadableFilesAreNamed: what the agent has locked is no deletion.
func TestUnreadableFilesAreNamed(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	a := attempt(t, protocol.RepoSource{Files: map[string]string{"file": "x\n", "dir/a": "a\n", "other": "y\n"}})
	p := prepare(t, a)
	write(t, p.Dir()+"/file", "changed and locked\n")
	must(t, os.Chmod(p.Dir()+"/file", 0o000))
	must(t, os.Chmod(p.Dir()+"/dir", 0o000))
	write(t, p.Dir()+"/other", "z\n")
	s, err := p.Snapshot(t.Context())
	must(t, err)
	if got := fmt.Sprint(s.Document.ChangedFiles); got != "[other]" {
		t.Errorf("changed: got %s, want other alone", got)
	}
	if got := s.Document.Omitted; len(got) != 2 || got[0].Path != "dir/" || got[1].Path != "file" || got[0].Reason != "unreadable" || got[1].Reason != "unreadable" {
		t.Errorf("omitted: got %+v, want dir/ and file as unreadable", got)
	}
	must(t, p.Cleanup(t.Context()))
	gone(t, p.Dir())
	gone(t, filepath.Join(a.Root, "private"))
}
