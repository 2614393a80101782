//go:build unix

package environment

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

// victim is a directory of the machine's that no attempt may change.
func victim(t *testing.T) (dir string, intact func()) {
	t.Helper()
	dir = t.TempDir()
	for _, file := range []string{"config", ".git/config", "work/.git/config", "work/file"} {
		write(t, filepath.Join(dir, file), "precious")
	}
	list := func() (all []string) {
		must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			must(t, err)
			if d.Type().IsRegular() {
				b, err := os.ReadFile(path)
				must(t, err)
				path += "=" + string(b)
			}
			all = append(all, path)
			return nil
		}))
		return all
	}
	before := list()
	return dir, func() {
		t.Helper()
		if d := cmp.Diff(before, list()); d != "" {
			t.Errorf("a directory outside of the attempt (-before +after):\n%s", d)
		}
	}
}

// TestWhatSetupLeftSwapsTheRepository: a process that setup left puts a link in the place of the new .git as soon as it
// sees one. Nothing is written behind it.
func TestWhatSetupLeftSwapsTheRepository(t *testing.T) {
	t.Parallel()
	for range 20 {
		dir, intact := victim(t)
		a := attempt(t, protocol.RepoSource{Files: map[string]string{"a": "a"}}, "leave a daemon")
		stop, stopped := make(chan struct{}), make(chan struct{})
		a.Exec = func(context.Context, string, string, io.Writer) (int, error) {
			go func() {
				defer close(stopped)
				git := filepath.Join(a.Root, WorkDir, ".git")
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if info, err := os.Lstat(git); err == nil && info.IsDir() && os.Rename(git, fmt.Sprint(git, n)) == nil {
						_ = os.Symlink(dir, git)
					}
				}
			}()
			return 0, nil
		}
		p, err := NewSet(Config{}).Prepare(t.Context(), a)
		close(stop)
		<-stopped
		intact()
		if err == nil {
			must(t, p.Cleanup(t.Context()))
		}
	}
}

// TestSetupSwapsTheWorkspace: where setup put a link in the place of the workspace, nothing behind it is removed.
func TestSetupSwapsTheWorkspace(t *testing.T) {
	t.Parallel()
	dir, intact := victim(t)
	a := attempt(t, protocol.RepoSource{Files: map[string]string{"a": "a"}}, "swap")
	a.Exec = func(context.Context, string, string, io.Writer) (int, error) {
		work := filepath.Join(a.Root, WorkDir)
		must(t, os.Rename(work, work+".away"))
		must(t, os.Symlink(dir, work))
		return 0, nil
	}
	if _, err := NewSet(Config{}).Prepare(t.Context(), a); err == nil {
		t.Error("prepare: got no error")
	}
	intact()
}

// TestTheAttemptIsSwapped: a job of the process sandbox can put a link in the place of the attempt's directory. What is
// recorded and removed is the attempt all the same.
func TestTheAttemptIsSwapped(t *testing.T) {
	t.Parallel()
	for _, spec := range []protocol.EnvSpec{
		{Kind: protocol.EnvPrompt},
		{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"a": "a"}}},
	} {
		t.Run(spec.Kind, func(t *testing.T) {
			t.Parallel()
			dir, intact := victim(t)
			a := attemptIn(t, filepath.Join(t.TempDir()), spec)
			a.Private = filepath.Join(t.TempDir(), "private")
			p, err := NewSet(Config{}).Prepare(t.Context(), a)
			must(t, err)
			write(t, filepath.Join(p.Dir(), "new"), "x")
			away := a.Root + ".away"
			must(t, os.Rename(a.Root, away))
			t.Cleanup(func() { must(t, os.RemoveAll(away)) })
			must(t, os.Symlink(dir, a.Root))
			s, err := p.Snapshot(t.Context())
			must(t, err)
			if spec.Kind == protocol.EnvRepo && !cmp.Equal(s.Document.ChangedFiles, []string{"new"}) {
				t.Errorf("the snapshot has %v, want what the attempt's directory has", s.Document.ChangedFiles)
			}
			must(t, p.Cleanup(t.Context()))
			intact()
			gone(t, filepath.Join(away, WorkDir))
		})
	}
}
