//go:build unix

package diff

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/evidence/redact"
)

// TestF29_OneBinaryHunkBesideEverythingElse is the failure as it was seen: all
// kinds of changes at once have to apply together.
func TestF29_OneBinaryHunkBesideEverythingElse(t *testing.T) {
	t.Parallel()
	start := files{
		"main.go": text("package main\n\nfunc main() {}\n"), "gone.txt": text("gone\n"), "tool": text("#!/bin/sh\n"), "win.txt": text("a\r\nb\r\n"), "end": text("no newline"),
		"target": symlink("main.go"), "huge": text(strings.Repeat("x", 9000)),
	}
	w := newWorld(t, t.TempDir(), start, Config{Limits: Limits{FileBytes: 8000}})
	w.put("main.go", text("package main\n\nfunc main() { println(1) }\n"))
	w.put("app", executable("\x7fELF\x00"+strings.Repeat("\x00\xff\x10", 2000)))
	w.put("notes", text("untracked\n"))
	must(t, os.Remove(w.at("gone.txt")))
	w.put("tool", executable("#!/bin/sh\n"))
	w.put("target", symlink("../outside"))
	w.put("win.txt", text("a\r\nc\r\n"))
	w.put("end", text("still no newline"))
	w.put("huge", text(strings.Repeat("y", 9000)))
	s := w.snapshot()
	if len(s.Changed) != 8 || len(s.Omitted) != 1 || s.Omitted[0].Path != "huge" {
		t.Errorf("got changes %v and omitted %v, want 8 changes and huge omitted", s.Changed, s.Omitted)
	}
}

// TestF31_ForeignOwner runs a git that takes every repository for another user's.
func TestF31_ForeignOwner(t *testing.T) {
	t.Parallel()
	git := script(t, `GIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec "$REAL_GIT" "$@"`)
	w := newWorld(t, t.TempDir(), files{"a": text("a\n"), ".gitignore": text("*.o\n")}, Config{Git: git})
	w.put("a", text("b\n"))
	w.put("x.o", text("x"))
	if s := w.snapshot(); s.Size == 0 || len(s.Omitted) != 1 {
		t.Errorf("got a diff of %d bytes, omitted %v, want the change of a and x.o ignored", s.Size, s.Omitted)
	}
}

// script writes a program that stands in for git.
func script(t *testing.T, body string) string {
	t.Helper()
	real, err := exec.LookPath("git")
	must(t, err)
	path := filepath.Join(t.TempDir(), "git")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\nREAL_GIT="+real+"\n"+body+"\n"), 0o755))
	return path
}

// TestF31_GitFailureIsNeverAnEmptyDiff breaks git in every way that has once
// been taken for "no changes".
func TestF31_GitFailureIsNeverAnEmptyDiff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, body, stderr string }{
		{"fails and says so", `echo "fatal: detected dubious ownership" >&2; exit 128`, "dubious ownership"},
		{"fails without a word", `exit 1`, ""},
		{"succeeds without a word", `exit 0`, ""},
		{"prints half", `"$REAL_GIT" "$@" | head -c 100; exit 0`, ""},
		{"is killed", `kill -9 $$`, ""},
		{"prints, then fails", `"$REAL_GIT" "$@"; exit 3`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir(), files{"a": text("a\n"), "b": text("b\n")}, Config{Git: script(t, tt.body)})
			w.put("a", text("changed\n"))
			w.put("b", text("changed\n"))
			s, err := w.base.Snapshot(t.Context())
			var e *Error
			if s != nil || !errors.As(err, &e) || e.Stage != StageSnapshot {
				t.Fatalf("got %v, %v, want an *Error of the snapshot", s, err)
			}
			if !strings.Contains(e.Stderr, tt.stderr) {
				t.Errorf("git's words: got %q, want %q in them", e.Stderr, tt.stderr)
			}
			left, err := filepath.Glob(filepath.Join(w.top, "store", "*", "*"))
			if must(t, err); len(left) != 0 {
				t.Errorf("the failed snapshot left %v", left)
			}
		})
	}
	t.Run("is not there", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, t.TempDir(), files{"a": text("a\n")}, Config{Git: filepath.Join(t.TempDir(), "git")})
		w.put("a", text("b\n"))
		if s, err := w.base.Snapshot(t.Context()); s != nil || err == nil {
			t.Errorf("got %v, %v, want an error", s, err)
		}
	})
}

// TestF31_GitNeverLooksAtTheWorkspace gives git every chance to run what the
// agent left there, and in the environment.
func TestF31_GitNeverLooksAtTheWorkspace(t *testing.T) {
	top := t.TempDir()
	trap := filepath.Join(top, "trap")
	spring := filepath.Join(top, "spring")
	must(t, os.WriteFile(spring, []byte("#!/bin/sh\necho \"$0 $@\" >> "+trap+"\n"), 0o755))
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"} {
		t.Setenv(name, filepath.Join(top, "work", ".git"))
	}
	for _, name := range []string{"GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_CONFIG_GLOBAL", "GIT_SSH", "GIT_EXEC_PATH", "PAGER"} {
		t.Setenv(name, spring)
	}
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "diff.external")
	t.Setenv("GIT_CONFIG_VALUE_0", spring)
	t.Setenv("HOME", filepath.Join(top, "work"))

	work := filepath.Join(top, "work")
	must(t, os.Mkdir(work, 0o755))
	must(t, os.WriteFile(filepath.Join(work, "a"), []byte("a\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(work, ".gitignore"), []byte("*.o\n"), 0o644))
	base, err := Take(t.Context(), Config{Dir: work, Store: filepath.Join(top, "store")})
	must(t, err)
	must(t, base.WriteRepository(t.Context()))
	w := &world{t: t, work: work}
	w.put(".git/config", text(fmt.Sprintf("[core]\n\tfsmonitor = %[1]s\n\thooksPath = %[2]s\n\tpager = %[1]s\n\tattributesFile = %[2]s/attrs\n[diff]\n\texternal = %[1]s\n[diff \"evil\"]\n\ttextconv = %[1]s\n\tcommand = %[1]s\n[filter \"evil\"]\n\tclean = %[1]s\n\tsmudge = %[1]s\n\tprocess = %[1]s\n", spring, work)))
	w.put(".gitconfig", text("[diff]\n\texternal = "+spring+"\n"))
	w.put(".config/git/config", text("[diff]\n\texternal = "+spring+"\n"))
	w.put(".gitattributes", text("* diff=evil filter=evil -diff\n"))
	w.put(".gitignore", text("*\n"))
	w.put("a", text("b\n"))
	w.put("config", text("[diff]\n\texternal = "+spring+"\n"))
	for _, hook := range []string{"post-index-change", "reference-transaction", "fsmonitor-watchman"} {
		w.put(".git/hooks/"+hook, executable("#!/bin/sh\necho hook >> "+trap+"\n"))
		w.put(hook, executable("#!/bin/sh\necho hook >> "+trap+"\n"))
	}
	s, err := base.Snapshot(t.Context())
	must(t, err)
	if b, err := os.ReadFile(trap); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("git ran what the agent had prepared: %s", b)
	}
	r, err := s.Open()
	must(t, err)
	defer r.Close()
	var patch bytes.Buffer
	_, err = patch.ReadFrom(r)
	must(t, err)
	if len(s.Changed) != 9 || !bytes.Contains(patch.Bytes(), []byte("-a\n+b\n")) {
		t.Errorf("got changes %v, want all of the agent's files and the text of a's change:\n%s", s.Changed, patch.Bytes())
	}
}

// TestIgnoreRulesAreThoseOfTheBaseline: an agent that edits .gitignore hides
// nothing, and changes to what was ignored are named.
func TestIgnoreRulesAreThoseOfTheBaseline(t *testing.T) {
	t.Parallel()
	start := files{
		".gitignore": text("node_modules/\n*.log\n!keep.log\n"), "sub/.gitignore": text("/out\n"), "a": text("a\n"), "forced.log": text("tracked\n"),
		"node_modules/dep/index.js": text("1\n"), "node_modules/dep/x.js": text("2\n"), "node_modules/other/y.js": text("3\n"),
	}
	w := newWorld(t, t.TempDir(), start, Config{Tracked: func(p string) bool { return p == "forced.log" }})
	if out := w.git(w.work, "", "status", "--porcelain"); out != "" {
		t.Errorf("git status in the fresh workspace: got %q, want nothing", out)
	}
	if got := w.git(w.work, "", "ls-files"); got != ".gitignore\na\nforced.log\nsub/.gitignore" {
		t.Errorf("files in the baseline commit: got %q", got)
	}
	if s := w.snapshotOf(false); len(s.Changed)+len(s.Omitted) != 0 {
		t.Errorf("without a change: got %v, %v", s.Changed, s.Omitted)
	}
	w.put(".gitignore", text("*\n"))
	w.put("hidden", text("by the agent's rule\n"))
	w.put("x.log", text("log\n"))
	w.put("keep.log", text("kept\n"))
	w.put("forced.log", text("changed\n"))
	w.put("sub/out/o1", text("o"))
	w.put("sub/out/o2", text("oo"))
	w.put("sub/in", text("in\n"))
	w.put("node_modules/dep/index.js", text("tampered\n"))
	must(t, os.Remove(w.at("node_modules/other/y.js")))
	s := w.snapshotOf(false)
	wantChanged := []Change{{".gitignore", Modified}, {"forced.log", Modified}, {"hidden", Added}, {"keep.log", Added}, {"sub/in", Added}}
	if d := cmp.Diff(wantChanged, s.Changed); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	wantOmitted := []Omission{
		{Path: "node_modules/", Reason: Ignored, Kind: Modified, Files: 2, Bytes: 11},
		{Path: "sub/out/", Reason: Ignored, Kind: Added, Files: 2, Bytes: 3},
		{Path: "x.log", Reason: Ignored, Kind: Added, Bytes: 4},
	}
	if d := cmp.Diff(wantOmitted, s.Omitted); d != "" {
		t.Errorf("omitted (-want +got):\n%s", d)
	}
}

// TestIgnoredFilesGiveWayToAFile: a file takes the place of a directory that held
// ignored files, which were never in the baseline's tree: the diff adds the file.
func TestIgnoredFilesGiveWayToAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), files{".gitignore": text("*.o\n"), "dir/a.o": text("o\n"), "dir/b.o": text("o\n")}, Config{})
	w.put("dir", text("x\n"))
	s := w.snapshot()
	if d := cmp.Diff([]Change{{"dir", Added}}, s.Changed); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Omission{{Path: "dir/", Reason: Ignored, Kind: Deleted, Files: 2, Bytes: 4}}, s.Omitted); d != "" {
		t.Errorf("omitted (-want +got):\n%s", d)
	}
}

// TestDiffOverTheLimit: the heavy changes give way to the light ones.
func TestDiffOverTheLimit(t *testing.T) {
	t.Parallel()
	start := files{"old": text(strings.Repeat("old\n", 5000))}
	w := newWorld(t, t.TempDir(), start, Config{Limits: Limits{DiffBytes: 10_000}})
	w.put("heavy", text(strings.Repeat("line\n", 4000)))
	w.put("light", text("light\n"))
	must(t, os.Remove(w.at("old")))
	w.put("old/in its place", text("x\n"))
	s := w.snapshot()
	want := []Change{{"light", Added}, {"old", Deleted}, {"old/in its place", Added}}
	if d := cmp.Diff(want, s.Changed); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if len(s.Omitted) != 1 || s.Omitted[0].Path != "heavy" || s.Omitted[0].Reason != OverLimit || s.Size > 10_000 {
		t.Errorf("got omitted %v and %d bytes, want heavy omitted", s.Omitted, s.Size)
	}
	w = newWorld(t, t.TempDir(), start, Config{Limits: Limits{DiffBytes: 10}})
	must(t, os.Remove(w.at("old")))
	if s := w.snapshot(); s.Size != 0 || len(s.Changed) != 0 || len(s.Omitted) != 1 {
		t.Errorf("a limit that nothing fits in: got %d bytes, %v, %v, want everything omitted", s.Size, s.Changed, s.Omitted)
	}
}

// TestLargeBaselineSpillsToFiles has a pack, a diff and a file that do not stay in memory.
func TestLargeBaselineSpillsToFiles(t *testing.T) {
	t.Parallel()
	start := files{"huge": text(strings.Repeat("huge\n", 100_000))}
	for i := range 40 {
		start[fmt.Sprintf("d%d/f", i)] = text(strings.Repeat(fmt.Sprintf("line %d\n", i), 2000))
	}
	w := newWorld(t, t.TempDir(), start, Config{Limits: Limits{FileBytes: 400_000}})
	if out := w.git(w.work, "", "fsck", "--full", "--strict", "--unreachable", "--no-progress"); out != "" {
		t.Errorf("fsck of the workspace: got %q, want nothing", out)
	}
	if out := w.git(w.work, "", "status", "--porcelain"); out != "" {
		t.Errorf("git status in the fresh workspace: got %q, want nothing", out)
	}
	if got := w.git(w.work, "", "cat-file", "-s", "HEAD:huge"); got != "500000" {
		t.Errorf("the file over the limit in the agent's commit: got %s bytes, want 500000", got)
	}
	for round := range 3 {
		for i := range 40 {
			w.put(fmt.Sprintf("d%d/f", i), text(strings.Repeat(fmt.Sprintf("LINE %d\n", i+round), 2000)))
		}
		if s := w.snapshot(); s.Size < smallPatch {
			t.Errorf("got a diff of %d bytes, want one that does not stay in memory", s.Size)
		}
	}
}

// TestObjectsAreNotShared: the agent can destroy its objects without reaching
// the baseline's (no hard links).
func TestObjectsAreNotShared(t *testing.T) {
	t.Parallel()
	start := files{"a": text("a\n")}
	for i := range 40 {
		start[fmt.Sprint(i)] = text(strings.Repeat(fmt.Sprint(i), 9000))
	}
	w := newWorld(t, t.TempDir(), start, Config{})
	packs, err := filepath.Glob(w.at(".git/objects/pack/*"))
	must(t, err)
	if len(packs) != 2 {
		t.Fatalf("got %v, want a pack and its index", packs)
	}
	for _, p := range packs {
		info, err := os.Stat(p)
		must(t, err)
		if n := info.Sys().(*syscall.Stat_t).Nlink; n != 1 {
			t.Errorf("%s has %d links, want 1", p, n)
		}
		must(t, os.Chmod(p, 0o644))
		must(t, os.WriteFile(p, []byte("garbage"), 0o644))
	}
	w.put("a", text("b\n"))
	w.snapshot()
}

// TestP8_SnapshotReadsNoMoreThanItMay: past what is stored files are only hashed, and past that limit not even opened,
// whatever else leaves them out of the diff.
func TestP8_SnapshotReadsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	const key = "key-4f1c9a77d2e05b83"
	for name, file := range map[string]func(i int) (string, string){
		"plain": func(i int) (string, string) { return fmt.Sprintf("f%03d", i), strings.Repeat("x", 3000) },
		"a secret in binary": func(i int) (string, string) {
			return fmt.Sprintf("f%03d", i), strings.Repeat("\x00", 3000-len(key)) + key
		},
		"a secret in a name": func(i int) (string, string) { return fmt.Sprintf("%s-%03d", key, i), strings.Repeat("x", 3000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir(), files{"a": text("a")}, Config{
				Limits: Limits{DiffBytes: 1000, HashBytes: 16_000}, Redact: redact.New([]redact.Secret{{Name: "THE_KEY", Value: key}})})
			for i := range 100 {
				path, content := file(i)
				w.put(path, text(content))
			}
			s, err := w.base.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			unread := 0
			for _, o := range s.Omitted {
				if o.Detail == errBudget.Error() {
					unread++
				}
			}
			// 2 files of 3,000 bytes are stored of 8 times 1,000, and 5 are hashed of 16,000.
			if unread != 100-2-5 {
				t.Errorf("%d of 100 files were not read, want %d", unread, 100-2-5)
			}
		})
	}
}

func TestLimitsOfTheDirectory(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]Limits{
		LimitEntries:   {Entries: 10, PathBytes: 10_000},
		LimitPathBytes: {Entries: 10_000, PathBytes: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir(), files{"a": text("a")}, Config{Limits: limits})
			must(t, os.Mkdir(w.at("d"), 0o755))
			for i := range 20 {
				w.put(fmt.Sprint("d/", i), text(""))
			}
			_, err := w.base.Snapshot(t.Context())
			var limit *LimitError
			if !errors.As(err, &limit) || limit.Limit != name || limit.Configured != 10 || limit.Measured <= 10 {
				t.Errorf("20 files: got %v, want a *LimitError for more than 10 %s", err, name)
			}
		})
	}
}

func TestF25_PathsAreCountedWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), files{}, Config{Limits: Limits{PathBytes: 12}})
	w.put("d/1", text(""))
	w.put("d/2", text(""))
	if _, err := w.base.Snapshot(t.Context()); err != nil {
		t.Errorf(".git, d, d/1 and d/2 are 11 bytes of paths, 12 are allowed: %v", err)
	}
	w.put("d/3", text(""))
	if _, err := w.base.Snapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 13 bytes of paths in the directory (limit 12)") {
		t.Errorf("14 bytes of paths where 12 are allowed: %v", err)
	}
}

func TestWorkspaceReplacedByALink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), files{"a": text("a")}, Config{})
	must(t, os.RemoveAll(w.work))
	must(t, os.Symlink("/etc", w.work))
	s, err := w.base.Snapshot(t.Context())
	var e *Error
	if s != nil || !errors.As(err, &e) {
		t.Errorf("got %v, %v, want an *Error: the link may not be followed", s, err)
	}
}

func TestStoreInsideTheDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, store := range []string{dir, filepath.Join(dir, "store"), filepath.Join(dir, "a", "..", "b")} {
		if _, err := Take(t.Context(), Config{Dir: dir, Store: store}); err == nil {
			t.Errorf("store %s in %s: got no error", store, dir)
		}
	}
}

// TestStableFilesAreNotRead: what proves a file unchanged is its identity, once
// the file system's clock has moved on.
func TestStableFilesAreNotRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 123, time.UTC).UnixNano()
	list := []entry{
		{path: "old", stat: identity{ctime: now - 1_000_000_000, valid: true}},
		{path: "fresh", stat: identity{ctime: now - 5_000_000, valid: true}},
		{path: "newest", stat: identity{ctime: now, valid: true}},
		{path: "unknown", stat: identity{ctime: 0}},
	}
	settle(list)
	for i, want := range []bool{true, false, false, false} {
		if list[i].stable != want {
			t.Errorf("%s: got stable %v, want %v", list[i].path, list[i].stable, want)
		}
	}
	second := int64(1_000_000_000)
	coarse := []entry{{stat: identity{ctime: 100 * second, valid: true}}, {stat: identity{ctime: 98 * second, valid: true}}, {stat: identity{ctime: 90 * second, valid: true}}}
	settle(coarse)
	if coarse[0].stable || coarse[1].stable || !coarse[2].stable {
		t.Errorf("a clock that counts seconds: got %v %v %v, want only the oldest stable", coarse[0].stable, coarse[1].stable, coarse[2].stable)
	}
}
