//go:build unix

package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/everdict/everdict/agent/private"
	"github.com/everdict/everdict/protocol/link"
)

// Another user of the machine can make the directory of the locks first, and links in it.
func TestLockIsNotTakenInTheDirectoryOfAnother(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	dir, credential := private.Path(), link.Secret("rnr_of_this_test")
	lock := func() error {
		release, err := lockCredential(credential)
		if err == nil {
			release()
		}
		return err
	}
	if err := lock(); err != nil {
		t.Fatalf("a directory of our own: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(tmp, "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	holder := filepath.Join(dir, "runner-"+credential.Identity()+".lock.holder")
	if err := os.Remove(holder); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(precious, holder); err != nil {
		t.Fatal(err)
	}
	if err := lock(); err == nil {
		t.Error("a directory that others can write to was taken")
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
		t.Errorf("the file behind the link is %q, %v: want it untouched", b, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if err := lock(); err == nil {
		t.Error("a link in the place of the directory was taken")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return // only root can make what belongs to another
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := lock(); err == nil {
		t.Error("the directory of another user was taken")
	}
}
