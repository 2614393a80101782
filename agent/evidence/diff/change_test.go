//go:build unix

package diff

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestP10_Changes does one thing at a time to the same tree.
func TestP10_Changes(t *testing.T) {
	t.Parallel()
	start := files{
		"README": text("hello\n"), "run.sh": executable("#!/bin/sh\n"), "bin": text("\x00\x01\x02"), "crlf.txt": text("a\r\nb\r\n"), "noeol": text("end"),
		"link": symlink("README"), "dir/sub/deep": text("deep\n"), "dir/other": text("other\n"), "Case": text("upper\n"), "empty": text(""),
		".gitattributes": text("*.txt text eol=lf\n* filter=evil\n"),
	}
	write := func(p string, n node) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.put(p, n) }
	}
	remove := func(p string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { must(t, os.RemoveAll(w.at(p))) }
	}
	for _, tt := range []struct {
		name string
		do   func(*testing.T, *world)
		want []Change
	}{
		{"nothing", func(*testing.T, *world) {}, nil},
		{"text", write("README", text("hello\nworld\n")), []Change{{"README", Modified}}},
		{"untracked", write("new/file", text("new\n")), []Change{{"new/file", Added}}},
		{"untracked and empty", write("void", text("")), []Change{{"void", Added}}},
		{"deleted", remove("README"), []Change{{"README", Deleted}}},
		{"deleted and empty", remove("empty"), []Change{{"empty", Deleted}}},
		{"directory deleted", remove("dir"), []Change{{"dir/other", Deleted}, {"dir/sub/deep", Deleted}}},
		{"binary", write("bin", text("\x00\x01\x03")), []Change{{"bin", Modified}}},
		{"binary becomes text", write("bin", text("text\n")), []Change{{"bin", Modified}}},
		{"made executable", write("README", executable("hello\n")), []Change{{"README", Modified}}},
		{"no longer executable", write("run.sh", text("#!/bin/sh\n")), []Change{{"run.sh", Modified}}},
		{"other permission bits", func(t *testing.T, w *world) { must(t, os.Chmod(w.at("README"), 0o600)) }, nil},
		{"symlink elsewhere", write("link", symlink("/etc/shadow")), []Change{{"link", Modified}}},
		{"symlink becomes its file", write("link", text("hello\n")), []Change{{"link", Modified}}},
		{"file becomes a symlink", write("README", symlink("run.sh")), []Change{{"README", Modified}}},
		{"file becomes a directory", write("README/x", text("x\n")), []Change{{"README", Deleted}, {"README/x", Added}}},
		{"directory becomes a file", write("dir", text("x\n")), []Change{{"dir", Added}, {"dir/other", Deleted}, {"dir/sub/deep", Deleted}}},
		{"directory becomes a symlink out", write("dir", symlink("/etc")), []Change{{"dir", Added}, {"dir/other", Deleted}, {"dir/sub/deep", Deleted}}},
		{"CRLF", write("crlf.txt", text("a\r\nc\r\n")), []Change{{"crlf.txt", Modified}}},
		{"CRLF becomes LF", write("crlf.txt", text("a\nb\n")), []Change{{"crlf.txt", Modified}}},
		{"no final newline", write("noeol", text("end2")), []Change{{"noeol", Modified}}},
		{"final newline", write("noeol", text("end\n")), []Change{{"noeol", Modified}}},
		{"newline in the name", write("a\nb", text("x\n")), []Change{{"a\nb", Added}}},
		{"name that is not UTF-8", write("\xff\xfe", text("x\n")), []Change{{"\xff\xfe", Added}}},
		{"leading dash", write("-rf", text("x\n")), []Change{{"-rf", Added}}},
		{"spaces at the end of a directory", write("d /x /f ", text("\x00")), []Change{{"d /x /f ", Added}}},
		{"names that differ by case", write("case", text("lower\n")), []Change{{"case", Added}}},
		{"same bytes, new file", func(t *testing.T, w *world) { must(t, os.Remove(w.at("README"))); w.put("README", text("hello\n")) }, nil},
		{"empty directory", func(t *testing.T, w *world) { must(t, os.Mkdir(w.at("void"), 0o755)) }, nil},
		{"same size, old dates", func(t *testing.T, w *world) {
			info, err := os.Stat(w.at("README"))
			must(t, err)
			w.put("README", text("HELLO\n"))
			must(t, os.Chtimes(w.at("README"), info.ModTime(), info.ModTime()))
		}, []Change{{"README", Modified}}},
		{"whole directory gone", func(t *testing.T, w *world) { must(t, os.RemoveAll(w.work)) }, []Change{
			{".gitattributes", Deleted}, {"Case", Deleted}, {"README", Deleted}, {"bin", Deleted}, {"crlf.txt", Deleted}, {"dir/other", Deleted},
			{"dir/sub/deep", Deleted}, {"empty", Deleted}, {"link", Deleted}, {"noeol", Deleted}, {"run.sh", Deleted},
		}},
		{"committed by the agent", func(t *testing.T, w *world) {
			w.put("README", text("mine\n"))
			w.git(w.work, "", "commit", "-q", "-a", "-m", "mine")
		}, []Change{{"README", Modified}}},
		{"history rewritten", func(t *testing.T, w *world) {
			w.put("README", text("mine\n"))
			w.git(w.work, "", "commit", "-q", "-a", "--amend", "-m", "always was")
			w.git(w.work, "", "update-ref", "-d", "refs/heads/main")
			w.git(w.work, "", "gc", "-q", "--prune=now")
		}, []Change{{"README", Modified}}},
		{"deleted .git", func(t *testing.T, w *world) { must(t, os.RemoveAll(w.at(".git"))); w.put("x", text("x")) }, []Change{{"x", Added}}},
		{".git is a link to another repository", func(t *testing.T, w *world) {
			must(t, os.RemoveAll(w.at(".git")))
			must(t, os.Symlink(w.base.cfg.Store, w.at(".git")))
			w.put("x", text("x"))
		}, []Change{{"x", Added}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir(), start, Config{})
			tt.do(t, w)
			s := w.snapshot()
			if d := cmp.Diff(tt.want, s.Changed); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			if len(s.Omitted) != 0 {
				t.Errorf("omitted: got %v, want nothing", s.Omitted)
			}
		})
	}
}

// TestP10_OmittedIsNamed has what a diff cannot carry.
func TestP10_OmittedIsNamed(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("line\n", 1000)
	start := files{"keep": text("keep\n"), "big": text(big), "was": text("was\n"), "also-big": text(big + big), "at/place": text("x\n")}
	limits := Limits{FileBytes: 4000, Depth: 5, HashBytes: 1 << 20}
	for _, tt := range []struct {
		name    string
		do      func(*testing.T, *world)
		changed []Change
		omitted []Omission
	}{
		{"new file over the limit", func(_ *testing.T, w *world) { w.put("large", text(big)) }, nil,
			[]Omission{{Path: "large", Reason: OverLimit, Kind: Added, Bytes: 5000, SHA256: sha(big)}}},
		{"changed file over the limit", func(_ *testing.T, w *world) { w.put("big", text(big+"x")) }, nil,
			[]Omission{{Path: "big", Reason: OverLimit, Kind: Modified, Bytes: 5001, SHA256: sha(big + "x")}}},
		{"grown over the limit", func(_ *testing.T, w *world) { w.put("was", text(big)) }, nil,
			[]Omission{{Path: "was", Reason: OverLimit, Kind: Modified, Bytes: 5000, SHA256: sha(big)}}},
		{"made executable over the limit", func(t *testing.T, w *world) { must(t, os.Chmod(w.at("big"), 0o755)) }, nil,
			[]Omission{{Path: "big", Reason: OverLimit, Kind: Modified, Bytes: 5000, SHA256: sha(big)}}},
		{"shrunk below the limit", func(_ *testing.T, w *world) { w.put("big", text("small\n")) }, []Change{{"big", Modified}}, nil},
		{"deleted from over the limit", func(t *testing.T, w *world) { must(t, os.Remove(w.at("big"))) }, []Change{{"big", Deleted}}, nil},
		{"directory in the place of a file over the limit", func(t *testing.T, w *world) { w.put("big/x", text("x\n")) },
			[]Change{{"big", Deleted}, {"big/x", Added}}, nil},
		{"sparse file of 1 TiB", func(t *testing.T, w *world) {
			f, err := os.Create(w.at("sparse"))
			must(t, err)
			must(t, f.Truncate(1<<40))
			must(t, f.Close())
		}, nil, []Omission{{Path: "sparse", Reason: OverLimit, Kind: Added, Bytes: 1 << 40, Detail: errBudget.Error()}}},
		{"named pipe", func(t *testing.T, w *world) { must(t, syscall.Mkfifo(w.at("pipe"), 0o644)) }, nil,
			[]Omission{{Path: "pipe", Reason: Special, Detail: "named pipe"}}},
		{"pipe in the place of a file", func(t *testing.T, w *world) {
			must(t, os.Remove(w.at("was")))
			must(t, syscall.Mkfifo(w.at("was"), 0o644))
		}, []Change{{"was", Deleted}}, []Omission{{Path: "was", Reason: Special, Detail: "named pipe"}}},
		{"socket", func(t *testing.T, w *world) {
			// The path of a socket is short; a relative one would need another working directory.
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(shortDir(t), "s"), Net: "unix"})
			must(t, err)
			l.SetUnlinkOnClose(false)
			must(t, os.Rename(l.Addr().String(), w.at("sock")))
			must(t, l.Close())
		}, nil, []Omission{{Path: "sock", Reason: Special, Detail: "socket"}}},
		{"nested repository", func(t *testing.T, w *world) {
			w.git(w.top, "", "init", "-q", w.at("nested"))
			w.put("nested/file", text("nested\n"))
			w.git(w.at("nested"), "", "add", "-A")
			w.git(w.at("nested"), "", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x")
		}, []Change{{"nested/file", Added}}, []Omission{{Path: "nested/.git/", Reason: NestedGit}}},
		{"submodule", func(t *testing.T, w *world) {
			w.git(w.top, "", "init", "-q", filepath.Join(w.top, "other"))
			w.git(filepath.Join(w.top, "other"), "", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x")
			w.git(w.work, "", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", filepath.Join(w.top, "other"), "sub")
			w.put("sub/file", text("x\n"))
		}, []Change{{".gitmodules", Added}, {"sub/file", Added}}, []Omission{{Path: "sub/.git", Reason: NestedGit}}},
		{"names that git refuses", func(_ *testing.T, w *world) {
			w.put("git~1", text("x"))
			w.put(".GIT/config", text("x"))
			w.put("d/.git ", text("x"))
			w.put("d/.gitmodules", symlink("x"))
		}, nil, []Omission{
			{Path: ".GIT/", Reason: NestedGit}, {Path: "d/.git ", Reason: Unportable}, {Path: "d/.gitmodules", Reason: Unportable}, {Path: "git~1", Reason: Unportable},
		}},
		{"too deep", func(_ *testing.T, w *world) { w.put("1/2/3/4/5/6/7", text("x")) }, nil, []Omission{{Path: "1/2/3/4/5/", Reason: TooDeep}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir(), start, Config{Limits: limits})
			tt.do(t, w)
			s := w.snapshotOf(tt.name != "too deep")
			if d := cmp.Diff(tt.changed, s.Changed); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.omitted, s.Omitted, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("omitted (-want +got):\n%s", d)
			}
		})
	}
}

func sha(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "s")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// snapshotOf takes a snapshot and, if its tree can be read by plain means, checks it.
func (w *world) snapshotOf(check bool) *Snapshot {
	w.t.Helper()
	if check {
		return w.snapshot()
	}
	s, err := w.base.Snapshot(contextOf(w.t))
	must(w.t, err)
	return s
}
