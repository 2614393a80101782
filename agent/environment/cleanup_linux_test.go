package environment

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestF22_FailedCleanupIsReported: what belongs to somebody else stays, and the
// error says where.
func TestF22_FailedCleanupIsReported(t *testing.T) {
	if os.Geteuid() == 0 {
		// A mount point in a workspace is something that even root cannot remove.
		top := t.TempDir()
		tree := filepath.Join(top, "tree")
		write(t, tree+"/a/file", "x")
		must(t, os.MkdirAll(tree+"/a/mounted", 0o755))
		if err := syscall.Mount(t.TempDir(), tree+"/a/mounted", "", syscall.MS_BIND, ""); err != nil {
			t.Skipf("this machine allows no mounts: %v", err)
		}
		defer syscall.Unmount(tree+"/a/mounted", syscall.MNT_DETACH)
		err := RemoveTree(t.Context(), tree)
		if err == nil || !strings.Contains(err.Error(), "a") {
			t.Errorf("a workspace with a mount in it: got %v, want an error", err)
		}
		gone(t, tree+"/a/file")
		return
	}
	top := t.TempDir()
	tree := filepath.Join(top, "tree")
	write(t, tree+"/f", "x")
	must(t, os.Chmod(top, 0o555))
	defer os.Chmod(top, 0o755)
	if err := RemoveTree(t.Context(), tree); err == nil {
		t.Error("a workspace whose parent is read-only: got no error")
	}
}
