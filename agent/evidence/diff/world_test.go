//go:build unix

package diff

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// world is a workspace with its baseline, and a copy of the baseline's files to
// apply diffs to.
type world struct {
	t        tester
	top      string
	work     string
	base     *Baseline
	original files
}

// files is a tree as git sees it, by path.
type files map[string]node

type node struct {
	Mode    gitobj.Mode
	Content string
}

func text(s string) node       { return node{gitobj.ModeFile, s} }
func executable(s string) node { return node{gitobj.ModeExecutable, s} }
func symlink(to string) node   { return node{gitobj.ModeSymlink, to} }

// newWorld writes a tree to top/work and records it.
func newWorld(t tester, top string, start files, cfg Config) *world {
	t.Helper()
	w := &world{t: t, top: top, work: filepath.Join(top, "work")}
	must(t, os.Mkdir(w.work, 0o755))
	for _, p := range sortedPaths(start) {
		w.put(p, start[p])
	}
	cfg.Dir, cfg.Store = w.work, filepath.Join(top, "store")
	var err error
	w.base, err = Take(contextOf(t), cfg)
	must(t, err)
	must(t, w.base.WriteRepository(contextOf(t)))
	w.original = readTree(t, w.work)
	return w
}

func sortedPaths(f files) []string {
	var paths []string
	for p := range f {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// at is a path in the workspace; p may hold any byte.
func (w *world) at(p string) string { return w.work + "/" + p }

// put makes p what n says, whatever was there.
func (w *world) put(p string, n node) {
	w.t.Helper()
	for i := range len(p) { // a file where a directory has to be gives way
		if p[i] == '/' {
			if info, err := os.Lstat(w.at(p[:i])); err == nil && !info.IsDir() {
				must(w.t, os.Remove(w.at(p[:i])))
			}
		}
	}
	if info, err := os.Lstat(w.at(p)); err == nil && (info.IsDir() || n.Mode == gitobj.ModeSymlink || !info.Mode().IsRegular()) {
		must(w.t, os.RemoveAll(w.at(p)))
	}
	must(w.t, os.MkdirAll(filepath.Dir(w.at(p)), 0o755))
	if n.Mode == gitobj.ModeSymlink {
		must(w.t, os.Symlink(n.Content, w.at(p)))
		return
	}
	must(w.t, os.WriteFile(w.at(p), []byte(n.Content), 0o644))
	must(w.t, os.Chmod(w.at(p), fs.FileMode(n.Mode&0o777)))
}

// snapshot takes one and checks promise P10 on it.
func (w *world) snapshot() *Snapshot {
	w.t.Helper()
	s, err := w.base.Snapshot(contextOf(w.t))
	must(w.t, err)
	w.check(s)
	return s
}

// readTree reads a directory by plain means, without what git cannot carry.
func readTree(t tester, dir string) files {
	t.Helper()
	out := make(files)
	var walk func(prefix string)
	walk = func(prefix string) {
		list, err := os.ReadDir(dir + "/" + prefix)
		must(t, err)
		for _, d := range list {
			p := prefix + d.Name()
			info, err := os.Lstat(dir + "/" + p)
			must(t, err)
			switch mode := info.Mode(); {
			case !portable(p, mode&fs.ModeSymlink != 0):
			case mode.IsDir():
				walk(p + "/")
			case mode&fs.ModeSymlink != 0:
				to, err := os.Readlink(dir + "/" + p)
				must(t, err)
				out[p] = symlink(to)
			case mode.IsRegular():
				if info.Size() > 64<<20 {
					out[p] = node{gitobj.ModeFile, "huge"}
					continue
				}
				b, err := os.ReadFile(dir + "/" + p)
				must(t, err)
				n := text(string(b))
				if mode&0o100 != 0 {
					n.Mode = gitobj.ModeExecutable
				}
				out[p] = n
			}
		}
	}
	walk("")
	return out
}

// expected is the tree that the diff has to lead to: the one on disk, with what
// Omitted names as it was at the baseline.
func (w *world) expected(s *Snapshot) files {
	now := make(files)
	if _, err := os.Lstat(w.work); err == nil {
		now = readTree(w.t, w.work)
	}
	w.mask(now)
	for _, o := range s.Omitted {
		if o.Reason != OverLimit && o.Reason != Ignored {
			continue
		}
		for _, p := range append(sortedPaths(now), sortedPaths(w.original)...) {
			if p != o.Path && !(strings.HasSuffix(o.Path, "/") && strings.HasPrefix(p, o.Path)) {
				continue
			}
			delete(now, p)
			if n, ok := w.original[p]; ok && !under(now, p) {
				now[p] = n
			}
		}
	}
	return now
}

// under reports whether one of the directories above path is a file in tree: an
// ignored file has no place in a tree where the directory that held it is a file.
func under(tree files, path string) bool {
	for i := range len(path) {
		if _, file := tree[path[:i]]; file && path[i] == '/' {
			return true
		}
	}
	return false
}

// baseline is what the diff applies to: the files there were, but for the ignored
// ones that have no place in the tree it leads to.
func (w *world) baseline(want files) files {
	out := maps.Clone(w.original)
	for _, p := range ignoredNow(w.base) {
		if under(want, p) {
			delete(out, p)
		}
	}
	return out
}

// check applies the diff to the baseline, once in an index and once in a
// checkout, and compares both with the disk, byte for byte and mode for mode.
func (w *world) check(s *Snapshot) {
	w.t.Helper()
	want := w.expected(s)
	r, err := s.Open()
	must(w.t, err)
	patch, err := io.ReadAll(r)
	must(w.t, errorsOf(err, r.Close()))
	if int64(len(patch)) != s.Size {
		w.t.Errorf("size of the diff: Size says %d, Open gives %d bytes", s.Size, len(patch))
	}

	dir, err := os.MkdirTemp(w.top, "apply")
	must(w.t, err)
	defer os.RemoveAll(dir)
	target := &world{t: w.t, top: dir, work: filepath.Join(dir, "checkout")}
	must(w.t, os.Mkdir(target.work, 0o755))
	original := w.baseline(want)
	for _, p := range sortedPaths(original) {
		target.put(p, original[p])
	}
	w.git(target.work, "", "init", "-q", "--template=")
	must(w.t, os.MkdirAll(filepath.Join(target.work, ".git", "info"), 0o755))
	must(w.t, os.WriteFile(filepath.Join(target.work, ".git", "info", "attributes"), []byte("* -text !eol -ident !filter !working-tree-encoding !whitespace\n"), 0o644))
	w.git(target.work, "", "add", "-A", "-f", ".")
	baseTree := w.git(target.work, "", "write-tree")
	if !slices.ContainsFunc(s.Omitted, func(o Omission) bool { return o.Reason == Ignored }) && len(ignoredNow(w.base)) == 0 && baseTree != s.BaselineTree {
		w.t.Errorf("tree of the baseline: got %s, git makes %s of the same files", s.BaselineTree, baseTree)
	}
	if len(patch) > 0 {
		if out, err := w.tryGit(target.work, string(patch), "apply", "--binary", "--whitespace=nowarn", "--cached", "-"); err != nil {
			w.t.Fatalf("git apply --cached: %v\n%s\nchanged: %v\nomitted: %v\nfrom: %q\nto: %q\n%s", err, out, s.Changed, s.Omitted, sortedPaths(w.original), sortedPaths(want), clip(patch))
		}
		w.git(target.work, string(patch), "apply", "--binary", "--whitespace=nowarn", "-")
	}
	got := readTree(w.t, target.work)
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("apply(diff, baseline) is not the tree (-want +got):\n%s\npatch:\n%s", d, clip(patch))
	}
	cached := w.git(target.work, "", "write-tree")
	w.git(target.work, "", "add", "-A", "-f", ".")
	if worktree := w.git(target.work, "", "write-tree"); cached != worktree {
		w.t.Errorf("git apply --cached gives tree %s, git apply gives %s", cached, worktree)
	}
	if complete(s) && len(ignoredNow(w.base)) == 0 && cached != s.Tree {
		w.t.Errorf("tree after the change: got %s, applying the diff gives %s", s.Tree, cached)
	}
	w.checkChanged(s, original, want)
}

// checkChanged compares the list of changes with the two trees.
func (w *world) checkChanged(s *Snapshot, original, want files) {
	w.t.Helper()
	var changes []Change
	all := make(files)
	for p, n := range original {
		all[p] = n
	}
	for p, n := range want {
		all[p] = n
	}
	for _, p := range sortedPaths(all) {
		old, before := original[p]
		now, after := want[p]
		switch {
		case !before:
			changes = append(changes, Change{p, Added})
		case !after:
			changes = append(changes, Change{p, Deleted})
		case old != now:
			changes = append(changes, Change{p, Modified})
		}
	}
	if d := cmp.Diff(changes, s.Changed); d != "" {
		w.t.Errorf("changed paths (-want +got):\n%s", d)
	}
}

// complete reports whether the snapshot names no content that the diff lacks.
func complete(s *Snapshot) bool {
	return !slices.ContainsFunc(s.Omitted, func(o Omission) bool {
		return o.Reason == OverLimit || o.Reason == Unreadable || o.Reason == TooDeep || o.Reason == Secret
	})
}

func ignoredNow(b *Baseline) (paths []string) {
	for _, e := range b.entries {
		if e.ignored {
			paths = append(paths, e.path)
		}
	}
	return paths
}

func clip(b []byte) []byte { return b[:min(len(b), 3000)] }

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// git runs a trusted git for the test itself.
func (w *world) git(dir, stdin string, args ...string) string {
	w.t.Helper()
	out, err := w.tryGit(dir, stdin, args...)
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s\nstdin:\n%s", strings.Join(args, " "), err, out, clip([]byte(stdin)))
	}
	return out
}

func (w *world) tryGit(dir, stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "LC_ALL=C")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return errs.String(), err
	}
	return strings.TrimSpace(out.String()), nil
}
