//go:build unix

package environment

import (
	"context"
	"encoding/json"
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

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// git runs a git that knows no configuration, and returns what it prints.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(dir, args...)
	if err != nil {
		t.Fatalf("git %s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return out
}

func tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C",
		"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@x", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@x")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// shell runs setup commands on this machine.
func shell(ctx context.Context, line, dir string, output io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func attempt(t testing.TB, source protocol.RepoSource, setup ...string) Attempt {
	return attemptIn(t, t.TempDir(), protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &source, Setup: setup})
}

func attemptIn(t testing.TB, dir string, spec protocol.EnvSpec) Attempt {
	t.Helper()
	files, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { files.Close() })
	return Attempt{Root: dir, Files: files, Spec: spec, Exec: shell}
}

func prepare(t testing.TB, a Attempt) Prepared {
	t.Helper()
	p, err := NewSet(Config{}).Prepare(t.Context(), a)
	must(t, err)
	t.Cleanup(func() { must(t, p.Cleanup(context.Background())) })
	return p
}

// refused prepares what must fail, and checks that nothing is left of it.
func refused(t *testing.T, c Config, a Attempt) *Error {
	t.Helper()
	p, err := NewSet(c).Prepare(t.Context(), a)
	var e *Error
	if p != nil || !errors.As(err, &e) {
		t.Fatalf("prepare: got %v, %v, want an *Error", p, err)
	}
	left, err := os.ReadDir(a.Root)
	if must(t, err); len(left) != 0 || e.Leftover != nil {
		t.Errorf("the refused environment left %v (%v)", left, e.Leftover)
	}
	return e
}

func TestRepoFromFiles(t *testing.T) {
	t.Parallel()
	a := attempt(t, protocol.RepoSource{Files: map[string]string{"README": "hello\n", "src/a/b.txt": "b", ".gitignore": "*.o\n", "kept.o": "tracked"}})
	p := prepare(t, a)
	if got := git(t, p.Dir(), "status", "--porcelain", "--ignored"); got != "" {
		t.Errorf("git status in the fresh workspace: got %q, want nothing", got)
	}
	if got := git(t, p.Dir(), "ls-files"); got != ".gitignore\nREADME\nkept.o\nsrc/a/b.txt" {
		t.Errorf("files of the commit: got %q", got)
	}
	if got := git(t, p.Dir(), "rev-parse", "HEAD"); got != p.Baseline() {
		t.Errorf("HEAD: got %s, want the baseline %s", got, p.Baseline())
	}
	if again := prepare(t, attempt(t, *a.Spec.Source)); again.Baseline() != p.Baseline() {
		t.Errorf("the same files give the baselines %s and %s, want the same", p.Baseline(), again.Baseline())
	}
	s, err := p.Snapshot(t.Context())
	must(t, err)
	want := protocol.Snapshot{Kind: protocol.EnvRepo, HeadSHA: p.Baseline(), Baseline: p.Baseline(), ChangedFiles: []string{}}
	if d := cmp.Diff(want, s.Document); d != "" {
		t.Errorf("snapshot without a change (-want +got):\n%s", d)
	}
	write(t, filepath.Join(p.Dir(), "ok.txt"), "done\n")
	git(t, p.Dir(), "add", "-A")
	git(t, p.Dir(), "commit", "-q", "-m", "mine")
	write(t, filepath.Join(p.Dir(), "new\nline"), "x")
	s, err = p.Snapshot(t.Context())
	must(t, err)
	if d := cmp.Diff([]string{`"new\nline"`, "ok.txt"}, s.Document.ChangedFiles); d != "" {
		t.Errorf("changed files (-want +got):\n%s", d)
	}
	if head := git(t, p.Dir(), "rev-parse", "HEAD"); s.Document.HeadSHA != head || s.Document.DiffBytes == 0 {
		t.Errorf("got head %s and %d bytes of diff, want %s and some", s.Document.HeadSHA, s.Document.DiffBytes, head)
	}
}

func TestEmptyRepo(t *testing.T) {
	t.Parallel()
	p := prepare(t, attempt(t, protocol.RepoSource{Files: map[string]string{}}))
	if got := git(t, p.Dir(), "log", "--format=%an %ad %s", "--date=iso"); got != "Everdict 2000-01-01 00:00:00 +0000 baseline" {
		t.Errorf("log of an empty workspace: got %q", got)
	}
	write(t, filepath.Join(p.Dir(), "ok.txt"), "done")
	s, err := p.Snapshot(t.Context())
	must(t, err)
	r, err := s.Diff.Open()
	must(t, err)
	defer r.Close()
	patch, err := io.ReadAll(r)
	if must(t, err); !strings.Contains(string(patch), "+++ b/ok.txt\n@@ -0,0 +1 @@\n+done\n") {
		t.Errorf("diff that adds ok.txt: got\n%s", patch)
	}
}

func TestSetupRunsBeforeTheBaseline(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	a := attempt(t, protocol.RepoSource{Files: map[string]string{".gitignore": "deps/\n", "a": "a\n"}},
		"git log --format=%s", "mkdir deps && echo dep > deps/d && echo generated > gen", "git checkout -q -b side && git commit -q --allow-empty -m answer")
	a.Progress = &log
	p := prepare(t, a)
	if !strings.Contains(log.String(), "baseline\n") {
		t.Errorf("setup asked git for its log: got %q, want the baseline in it", log.String())
	}
	if got := git(t, p.Dir(), "ls-files"); got != ".gitignore\na\ngen" {
		t.Errorf("files of the commit: got %q", got)
	}
	if got := git(t, p.Dir(), "log", "--all", "--format=%s"); got != "baseline" {
		t.Errorf("commits in the workspace: got %q, want nothing of setup's", got)
	}
	s, err := p.Snapshot(t.Context())
	must(t, err)
	if s.Diff.Size != 0 || len(s.Diff.Omitted) != 0 {
		t.Errorf("what setup made is in the snapshot: %v %v", s.Diff.Changed, s.Diff.Omitted)
	}
}

func TestSetupFails(t *testing.T) {
	t.Parallel()
	files := protocol.RepoSource{Files: map[string]string{"a": "a"}}
	e := refused(t, Config{}, attempt(t, files, "true", "echo no such package >&2; exit 3"))
	f := e.Failure
	if f.Class != protocol.ClassConfig || f.Code != protocol.CodeHarnessInstallFailed || f.Stage != protocol.StageInstall || f.Retryable ||
		f.ExitCode == nil || *f.ExitCode != 3 || f.LogTail != "no such package" || !strings.Contains(f.Message, "command 2 of 2") {
		t.Errorf("setup that exits 3: got %+v", f)
	}
	a := attempt(t, files, "true")
	a.Exec = func(context.Context, string, string, io.Writer) (int, error) { return 0, errors.New("sandbox is gone") }
	if f := refused(t, Config{}, a).Failure; f.Class != protocol.ClassInfra || !f.Retryable {
		t.Errorf("setup that could not be run: got %+v", f)
	}
	a = attempt(t, files, "true")
	a.Exec = nil
	if f := refused(t, Config{}, a).Failure; f.Class != protocol.ClassConfig {
		t.Errorf("setup without a sandbox: got %+v", f)
	}
}

func TestCancelledPrepareLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	a := attempt(t, protocol.RepoSource{Files: map[string]string{"a": "a"}}, "true")
	a.Exec = func(context.Context, string, string, io.Writer) (int, error) { cancel(); return 1, nil }
	p, err := NewSet(Config{}).Prepare(ctx, a)
	if p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v, want context.Canceled", p, err)
	}
	if left, err := os.ReadDir(a.Root); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		source *protocol.RepoSource
	}{
		{"no source", nil},
		{"empty source", &protocol.RepoSource{}},
		{"path traversal", &protocol.RepoSource{Files: map[string]string{"good": "x", "../evil": "x"}}},
		{"hook", &protocol.RepoSource{Files: map[string]string{".git/hooks/post-checkout": "x"}}},
		{"relative path", &protocol.RepoSource{Path: "some/where"}},
		{"missing path", &protocol.RepoSource{Path: "/nonexistent/everdict"}},
		{"path is a file", &protocol.RepoSource{Path: "/etc/passwd"}},
		{"git option", &protocol.RepoSource{Git: "--upload-pack=touch /tmp/x"}},
		{"transport that runs programs", &protocol.RepoSource{Git: "ext::sh -c touch% /tmp/x"}},
		{"unknown scheme", &protocol.RepoSource{Git: "gopher://x/y"}},
		{"ref is an option", &protocol.RepoSource{Git: "https://h/r", Ref: "--exec=x"}},
		{"ref is a pair", &protocol.RepoSource{Git: "https://h/r", Ref: "main:refs/heads/x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := attemptIn(t, t.TempDir(), protocol.EnvSpec{Kind: protocol.EnvRepo, Source: tt.source})
			if f := refused(t, Config{}, a).Failure; f.Class != protocol.ClassConfig || f.Code != protocol.CodeBadRequest || f.Retryable {
				t.Errorf("got %+v, want a config failure", f)
			}
		})
	}
	a := attemptIn(t, t.TempDir(), protocol.EnvSpec{Kind: "browser"})
	if f := refused(t, Config{}, a).Failure; f.Class != protocol.ClassConfig || f.Reason != protocol.ReasonUnsupportedByRunner {
		t.Errorf("unknown kind: got %+v", f)
	}
}

func TestWithoutGit(t *testing.T) {
	t.Parallel()
	none := Config{Git: filepath.Join(t.TempDir(), "git")}
	f := refused(t, none, attempt(t, protocol.RepoSource{Files: map[string]string{}})).Failure
	if f.Class != protocol.ClassConfig || !strings.Contains(f.Message, "git is not installed") {
		t.Errorf("repo without git: got %+v", f)
	}
	a := attemptIn(t, t.TempDir(), protocol.EnvSpec{Kind: protocol.EnvPrompt})
	p, err := NewSet(none).Prepare(t.Context(), a)
	must(t, err)
	s, err := p.Snapshot(t.Context())
	must(t, err)
	if s.Document.Kind != protocol.EnvPrompt || s.Diff != nil || p.Baseline() != "" {
		t.Errorf("prompt's snapshot: got %+v", s)
	}
	must(t, p.Cleanup(t.Context()))
	if _, err := os.Lstat(p.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the workspace is still there: %v", err)
	}
}

// TestF31_SnapshotFailureIsAFailure: what git's failure becomes for the run.
func TestF31_SnapshotFailureIsAFailure(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "git")
	must(t, os.WriteFile(broken, []byte("#!/bin/sh\nexit 0\n"), 0o755))
	a := attempt(t, protocol.RepoSource{Files: map[string]string{"a": "a"}})
	p, err := NewSet(Config{Git: broken}).Prepare(t.Context(), a)
	must(t, err)
	defer p.Cleanup(context.Background())
	write(t, filepath.Join(p.Dir(), "a"), "b")
	s, err := p.Snapshot(t.Context())
	var e *Error
	if s != nil || !errors.As(err, &e) || e.Failure.Stage != protocol.StageCollect || e.Failure.Reason != protocol.ReasonSnapshot ||
		e.Failure.Code != protocol.CodeDriverSnapshotFailed || e.Failure.Class != protocol.ClassInfra {
		t.Errorf("got %v, %v, want a snapshot failure", s, err)
	}
}

// TestLongListsAreCutAndSaySo: a record stays small whatever an agent makes.
func TestLongListsAreCutAndSaySo(t *testing.T) {
	t.Parallel()
	p := prepare(t, attempt(t, protocol.RepoSource{Files: map[string]string{}}))
	write(t, filepath.Join(p.Dir(), "x", "0"), "x")
	for i := range maxListed + 6 {
		must(t, os.Link(filepath.Join(p.Dir(), "x", "0"), filepath.Join(p.Dir(), "x", fmt.Sprint(i+1))))
	}
	s, err := p.Snapshot(t.Context())
	must(t, err)
	last := s.Document.Omitted[len(s.Document.Omitted)-1]
	if len(s.Document.ChangedFiles) != maxListed || last.Path != "(7 more changed)" || last.Reason != reasonCut {
		t.Errorf("got %d changed files and %+v at the end of omitted", len(s.Document.ChangedFiles), last)
	}
	if len(s.Diff.Changed) != maxListed+7 {
		t.Errorf("the diff has %d changes, want all", len(s.Diff.Changed))
	}
}

// TestListsOfLongNamesAreCutAndSaySo: a record stays small whatever an agent calls what it makes.
func TestListsOfLongNamesAreCutAndSaySo(t *testing.T) {
	t.Parallel()
	p := prepare(t, attempt(t, protocol.RepoSource{Files: map[string]string{}}))
	long := strings.Repeat(strings.Repeat("&", 250)+"/", 3) // six bytes each, in JSON
	const files = 400
	for i := range files {
		write(t, filepath.Join(p.Dir(), long, fmt.Sprint(i)), "")
		must(t, syscall.Mkfifo(filepath.Join(p.Dir(), long, fmt.Sprint("fifo", i)), 0o600))
	}
	s, err := p.Snapshot(t.Context())
	must(t, err)
	doc, err := json.Marshal(s.Document)
	must(t, err)
	if len(doc) < maxListedBytes || len(doc) > 3*maxListedBytes {
		t.Errorf("the document has %d bytes, want two lists of at most %d each", len(doc), maxListedBytes)
	}
	changed, omitted := len(s.Document.ChangedFiles), len(s.Document.Omitted)-2
	want := []string{fmt.Sprintf("(%d more changed)", files-changed), fmt.Sprintf("(%d more omitted)", files-omitted)}
	for i, o := range s.Document.Omitted[max(0, omitted):] {
		if o.Path != want[i] || o.Reason != reasonCut {
			t.Errorf("after %d changed and %d omitted files comes %+v, want %s", changed, omitted, o, want[i])
		}
	}
	if changed == 0 || changed >= files || omitted <= 0 || omitted >= files || len(s.Diff.Changed) != files {
		t.Errorf("%d changed and %d omitted files are named of %d each, and %d are in the diff", changed, omitted, files, len(s.Diff.Changed))
	}
}

func TestReadHeadOfAHostileRepository(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("ab", 20)
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, id+"\n")
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, git string)
		want string
	}{
		{"no .git", func(t *testing.T, git string) { must(t, os.RemoveAll(git)) }, ""},
		{"a file", func(t *testing.T, git string) { must(t, os.RemoveAll(git)); write(t, git, "gitdir: /") }, ""},
		{"a link", func(t *testing.T, git string) { must(t, os.Rename(git, git+"2")); must(t, os.Symlink(git+"2", git)) }, ""},
		{"detached", func(t *testing.T, git string) { write(t, git+"/HEAD", id+"\n") }, id},
		{"a loose branch", func(t *testing.T, git string) {
			write(t, git+"/HEAD", "ref: refs/heads/a/b\n")
			write(t, git+"/refs/heads/a/b", id+"\n")
		}, id},
		{"a packed branch", func(t *testing.T, git string) {
			write(t, git+"/HEAD", "ref: refs/heads/p\n")
			write(t, git+"/packed-refs", "# pack-refs\n"+strings.Repeat("0", 40)+" refs/heads/pp\n"+id+" refs/heads/p\n")
		}, id},
		{"HEAD links out", func(t *testing.T, git string) { must(t, os.Symlink(outside, git+"/HEAD")) }, ""},
		{"a ref leads out", func(t *testing.T, git string) { write(t, git+"/HEAD", "ref: refs/../../../secret\n") }, ""},
		{"a ref is absolute", func(t *testing.T, git string) { write(t, git+"/HEAD", "ref: "+outside+"\n") }, ""},
		{"a loop", func(t *testing.T, git string) {
			write(t, git+"/HEAD", "ref: refs/x\n")
			write(t, git+"/refs/x", "ref: refs/x\n")
		}, ""},
		{"no id", func(t *testing.T, git string) { write(t, git+"/HEAD", "<script>\n") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := attemptIn(t, t.TempDir(), protocol.EnvSpec{})
			git := filepath.Join(a.Root, WorkDir, ".git")
			must(t, os.MkdirAll(git, 0o755))
			tt.do(t, git)
			if got := readHead(a.Files); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func BenchmarkRepoNoChange(b *testing.B)  { benchRepo(b, false) }
func BenchmarkRepoOneChange(b *testing.B) { benchRepo(b, true) }

// benchRepo is what an attempt on a small repository costs beside the agent:
// prepare, snapshot, cleanup.
func benchRepo(b *testing.B, change bool) {
	set := NewSet(Config{})
	root := b.TempDir()
	files := make(map[string]string)
	for i := range 5 {
		files[fmt.Sprintf("src/f%d.go", i)] = strings.Repeat("package main\n", 40)
	}
	n := 0
	for b.Loop() {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		must(b, os.Mkdir(dir, 0o755))
		top, err := os.OpenRoot(dir)
		must(b, err)
		p, err := set.Prepare(b.Context(), Attempt{Root: dir, Files: top, Spec: protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: files}}})
		must(b, err)
		if change {
			must(b, os.WriteFile(filepath.Join(p.Dir(), "ok.txt"), []byte("done\n"), 0o644))
		}
		if _, err := p.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
		must(b, p.Cleanup(b.Context()))
		must(b, top.Close())
	}
}
