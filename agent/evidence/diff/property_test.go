//go:build unix

package diff

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

func contextOf(t tester) context.Context {
	if c, ok := t.(interface{ Context() context.Context }); ok {
		return c.Context()
	}
	return context.Background()
}

// segments are names that have broken somebody's parser, with plain ones in
// between so that paths collide.
var segments = []string{
	"a", "b", "A", "a.b", "a-", "dir", "Dir", "-rf", "--", "a b", "a b/ b", " lead", "trail ", "new\nline", "tab\t", "cr\r", `quo"te`, `back\slash`,
	"\xff\xfe", "é", "e\u0301", "🦀", ":(glob)x", "*", "?", "[x]", "~", "#", "!x", "$(x)", "dev", "null", "a => b", "{a => b}", ".gitattributes", ".gitmodules", ".gitx", "git~2", "CON",
	strings.Repeat("n", 255), "node_modules",
}

func genPath() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(rapid.SampledFrom(segments), 1, 4).Draw(t, "segments")
		return strings.Join(parts, "/")
	})
}

func genContent() *rapid.Generator[string] {
	lines := rapid.Custom(func(t *rapid.T) string {
		line := rapid.SampledFrom([]string{"x", "y", "", "diff --git a/x b/x", "--- a/x", "+++ b/x", "@@ -1 +1 @@", "\\ No newline at end of file", " ", "\t", "GIT binary patch", "$Id$", "\xff", "é"})
		ends := rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n", "\r"})
		var b strings.Builder
		for range rapid.IntRange(0, 30).Draw(t, "lines") {
			b.WriteString(line.Draw(t, "line"))
			b.WriteString(ends.Draw(t, "end"))
		}
		if rapid.Bool().Draw(t, "no newline at the end") {
			b.WriteString("end")
		}
		return b.String()
	})
	binary := rapid.Custom(func(t *rapid.T) string {
		return "\x00" + string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes"))
	})
	big := rapid.Custom(func(t *rapid.T) string { // over propertyLimit
		return strings.Repeat(rapid.SampledFrom([]string{"line\n", "\x00\x01"}).Draw(t, "unit"), 3000)
	})
	attributes := rapid.SampledFrom([]string{"* text eol=crlf\n", "* -diff\n", "* binary\n", "* filter=evil diff=evil merge=evil\n", "* working-tree-encoding=UTF-16\n", "* ident\n"})
	ignore := rapid.SampledFrom([]string{"*\n", "dir/\n", "/a\n!b\n", "node_modules\n", "**/a\n"})
	return rapid.OneOf(lines, lines, binary, attributes, ignore, big)
}

const propertyLimit = 5000

func genNode() *rapid.Generator[node] {
	return rapid.Custom(func(t *rapid.T) node {
		switch rapid.IntRange(0, 5).Draw(t, "type") {
		case 0:
			return symlink(rapid.SampledFrom([]string{"a", "../../..", "/etc/passwd", "/", ".", "dangling\nnewline", "\xff", ".git/config", "dir"}).Draw(t, "target"))
		case 1:
			return executable(genContent().Draw(t, "content"))
		default:
			return text(genContent().Draw(t, "content"))
		}
	})
}

// allowed drops from a path what the file system or git cannot hold.
func allowed(p string, n node) bool {
	return portable(p, n.Mode == gitobj.ModeSymlink)
}

// change is one thing that an agent does to the workspace.
func change(t *rapid.T, w *world) {
	now := sortedPaths(readTree(w.t, w.work))
	some := func() string {
		if len(now) > 0 && rapid.IntRange(0, 2).Draw(t, "existing") > 0 {
			return rapid.SampledFrom(now).Draw(t, "path")
		}
		return genPath().Draw(t, "path")
	}
	switch rapid.IntRange(0, 13).Draw(t, "change") {
	case 0, 1, 2, 3:
		p, n := some(), genNode().Draw(t, "node")
		if allowed(p, n) {
			w.put(p, n)
		}
	case 4: // append, keeping the rest
		p := some()
		if info, err := os.Lstat(w.at(p)); err == nil && info.Mode().IsRegular() {
			f, err := os.OpenFile(w.at(p), os.O_APPEND|os.O_WRONLY, 0)
			must(w.t, err)
			_, err = f.WriteString(genContent().Draw(t, "more"))
			must(w.t, errorsOf(err, f.Close()))
		}
	case 5:
		if err := os.RemoveAll(w.at(some())); err != nil && !errors.Is(err, syscall.ENOTDIR) {
			t.Fatalf("%v", err)
		}
	case 6:
		p := some()
		if info, err := os.Lstat(w.at(p)); err == nil && info.Mode().IsRegular() {
			must(w.t, os.Chmod(w.at(p), rapid.SampledFrom([]fs.FileMode{0o644, 0o755, 0o600, 0o444, 0o711}).Draw(t, "mode")))
		}
	case 7: // a rename, of a directory too
		from, to := some(), genPath().Draw(t, "to")
		if strings.HasPrefix(to, from+"/") || strings.HasPrefix(from, to+"/") || from == to {
			return
		}
		info, err := os.Lstat(w.at(from))
		if err != nil || !allowed(to, node{Mode: gitobj.ModeSymlink}) {
			return
		}
		if _, err := os.Lstat(w.at(to)); err == nil || !errors.Is(err, fs.ErrNotExist) || !info.Mode().IsRegular() {
			return
		}
		if os.MkdirAll(filepath.Dir(w.at(to)), 0o755) == nil {
			must(w.t, os.Rename(w.at(from), w.at(to)))
		}
	case 8: // a nested repository, hostile or real
		p := genPath().Draw(t, "nested")
		w.put(p+"/inner", text("inner\n"))
		w.put(p+"/.git/config", text("[core]\n\tfsmonitor = \"touch /tmp/pwned\"\n\tworktree = /\n"))
		w.put(p+"/.git/HEAD", text("ref: refs/heads/x\n"))
	case 9:
		p := genPath().Draw(t, "pipe")
		if os.MkdirAll(filepath.Dir(w.at(p)), 0o755) == nil {
			if err := syscall.Mkfifo(w.at(p), 0o644); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatalf("mkfifo %q: %v", p, err)
			}
		}
	case 10: // the agent commits
		if _, err := os.Stat(w.at(".git")); err == nil {
			w.tryGit(w.work, "", "add", "-A")
			w.tryGit(w.work, "", "commit", "-q", "--allow-empty", "-m", "mine")
		}
	case 11: // and rewrites history, or what of git there is
		switch rapid.IntRange(0, 3).Draw(t, "git") {
		case 0:
			must(w.t, os.RemoveAll(w.at(".git")))
		case 1:
			w.put(".git/config", text("[core]\n\tbare = true\n\tfsmonitor = /bin/false\n[diff]\n\texternal = /bin/false\n"))
		case 2:
			w.put(".git", text("gitdir: /nowhere\n"))
		case 3:
			w.put(".git/info/attributes", text("* -diff filter=x\n"))
		}
	case 12:
		f, err := os.OpenFile(w.at("sparse"), os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			must(w.t, errorsOf(f.Truncate(1<<20), f.Close()))
		}
	case 13: // the same bytes again, with an old date
		p := some()
		if info, err := os.Lstat(w.at(p)); err == nil && info.Mode().IsRegular() {
			b, err := os.ReadFile(w.at(p))
			must(w.t, err)
			must(w.t, os.WriteFile(w.at(p), b, 0o644))
			must(w.t, os.Chtimes(w.at(p), info.ModTime(), info.ModTime()))
		}
	}
}

// TestP10_DiffAppliedToBaselineIsTheTree generates trees and what an agent does
// to them.
func TestP10_DiffAppliedToBaselineIsTheTree(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		top, err := os.MkdirTemp(root, "w")
		must(t, err)
		defer os.RemoveAll(top)
		start := make(files)
		for range rapid.IntRange(0, 8).Draw(t, "files") {
			p, n := genPath().Draw(t, "path"), genNode().Draw(t, "node")
			if allowed(p, n) {
				start[p] = n
			}
		}
		if rapid.Bool().Draw(t, "with ignore rules") {
			start[".gitignore"] = text("node_modules/\n*.b\n/dir/A\n")
		}
		cfg := Config{Limits: Limits{FileBytes: propertyLimit, DiffBytes: rapid.SampledFrom([]int64{0, 3000}).Draw(t, "limit of the diff")}}
		if rapid.Bool().Draw(t, "all tracked") {
			cfg.Tracked = TrackAll
		}
		w := newWorld(t, top, start, cfg)
		for range rapid.IntRange(1, 2).Draw(t, "snapshots") {
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				change(t, w)
			}
			w.snapshot()
		}
		must(t, w.base.Close())
		if _, err := os.Lstat(filepath.Join(top, "store")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the store is still there after Close: %v", err)
		}
	})
}
