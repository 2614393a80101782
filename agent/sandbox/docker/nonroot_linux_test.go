package docker

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/sandbox"
)

// messy is what a job leaves that is hard to remove: read-only directories, files that nobody may read, links out.
const messy = `mkdir -p d/e/f && echo x >d/f && echo x >d/e/f/g && ln -s /etc d/out && ln -s /nowhere d/dangling &&
	chmod 0 d/e/f/g && chmod 555 d/e/f d/e d && mkdir -p "$(printf 'odd\nname')" && touch "$(printf 'odd\nname')/x"`

// F22 for each kind of runner and of user in the container: who is not root must be able to remove the workspace, and
// nothing outside of it may be touched.
func TestF22_WorkspaceCanBeRemoved(t *testing.T) {
	if user, inside := os.LookupEnv("EVERDICT_TEST_USER"); inside {
		messyRun(t, user)
		return
	}
	if os.Getuid() != 0 {
		messyRun(t, "")
		messyRun(t, "0:0")
		return
	}
	t.Parallel()
	host := engineOf(t).host
	st, err := os.Stat(strings.TrimPrefix(host, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	group := st.Sys().(*syscall.Stat_t).Gid
	// The test's own program and workspace, where somebody else than root can come by.
	dir, err := os.MkdirTemp("", "f22")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		uid  uint32
		user string
	}{
		"root runner":                          {0, ""},
		"runner 1000, commands as the runner":  {1000, ""},
		"runner 1000, commands as root inside": {1000, "0:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^TestF22_WorkspaceCanBeRemoved$")
			cmd.Dir = dir
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "DOCKER_HOST=" + host, "EVERDICT_TEST_USER=" + c.user,
				"XDG_CACHE_HOME=" + filepath.Join(dir, fmt.Sprint("cache-", rand.Text()))}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: c.uid, Groups: []uint32{group}}}
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
				t.Errorf("as user %d: %v\n%s", c.uid, err, out)
			}
		})
	}
}

func messyRun(t *testing.T, user string) {
	before, err := os.Stat("/etc")
	if err != nil {
		t.Fatal(err)
	}
	d := New(Config{Image: busybox, User: user})
	defer d.Close()
	for range 2 {
		dir, err := os.MkdirTemp("", "messy")
		if err != nil {
			t.Fatal(err)
		}
		s := sandbox.Spec{Attempt: "f22-" + strings.ToLower(rand.Text()) + ".1", Dir: dir, Env: []string{"PATH=/bin"}}
		h, err := d.Start(t.Context(), s)
		if err != nil {
			t.Fatalf("start as user %d: %v", os.Getuid(), err)
		}
		p, err := h.Exec(t.Context(), sh(messy))
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || !exit.Success() {
			t.Fatalf("%+v, %v", exit, err)
		}
		if err := h.Release(context.Background()); err != nil {
			t.Errorf("release: %v", err)
		}
		if err := environment.RemoveTree(t.Context(), dir); err != nil {
			t.Errorf("remove the workspace: %v", err)
		}
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("the workspace is still there: %v", err)
			_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error { t.Log(path, err); return nil })
		}
	}
	after, err := os.Stat("/etc")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t); a.Uid != b.Uid || before.Mode() != after.Mode() || a.Ino != b.Ino {
		t.Errorf("/etc was changed through a link: %+v", b)
	}
}
