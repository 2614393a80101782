package environment

import (
	"os"
	"syscall"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// TestHiddenByAMount: a directory that is mounted a second time, where no parent of it tells what it is, is found on the way.
func TestHiddenByAMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	top := t.TempDir()
	write(t, top+"/state/credential", "token")
	write(t, top+"/source/sub/a", "a")
	must(t, os.Mkdir(top+"/source/sub/mounted", 0o755))
	if err := syscall.Mount(top+"/state", top+"/source/sub/mounted", "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("this machine allows no mounts: %v", err)
	}
	defer syscall.Unmount(top+"/source/sub/mounted", syscall.MNT_DETACH)
	c := Config{Hidden: func() []string { return []string{top + "/state"} }}
	for _, path := range []string{"/source", "/source/sub/mounted"} {
		if e := refused(t, c, attempt(t, protocol.RepoSource{Path: top + path})); e.Failure.Class != protocol.ClassConfig {
			t.Errorf("%s: got %+v, want a refusal", path, e.Failure)
		}
	}
}
