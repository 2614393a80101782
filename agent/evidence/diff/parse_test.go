//go:build unix

package diff

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzPatchWriter cuts git's output anywhere: what is stored and counted may not
// depend on where.
func FuzzPatchWriter(f *testing.F) {
	f.Add("diff --git a/x b/x\n+++ b/x\n+diff --git a/y b/y\n", 3, 5)
	f.Add("diff --git a/a /b b/a /b\nold mode 100644\nnew mode 100755\ndiff --git \"a/\\n\" \"b/\\n\"\n", 1, 11)
	f.Add("diff --gi", 4, 4)
	f.Add("\n\ndiff --git \n", 1, 2)
	f.Add(strings.Repeat("x", smallPatch)+"\ndiff --git a/x b/x\n", 7, 9)
	f.Fuzz(func(t *testing.T, patch string, first, step int) {
		whole := &patchWriter{path: filepath.Join(t.TempDir(), "whole"), limit: 1 << 30}
		if _, err := whole.Write([]byte(patch)); err != nil {
			t.Fatal(err)
		}
		cut := &patchWriter{path: filepath.Join(t.TempDir(), "cut"), limit: 1 << 30}
		for rest, n := patch, first; rest != ""; n = step {
			n = min(max(n, 1), len(rest))
			if _, err := cut.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		a, b := stored(t, whole), stored(t, cut)
		if a != b || whole.headers != cut.headers || whole.n != cut.n || whole.n != int64(len(a)) {
			t.Errorf("in one piece: %d headers, %d bytes (%q)\nin pieces: %d headers, %d bytes (%q)", whole.headers, whole.n, a, cut.headers, cut.n, b)
		}
		headers := strings.Count("\n"+patch, "\n"+header)
		if i := strings.LastIndex("\n"+patch, "\n"+header); i >= 0 && !strings.Contains(patch[i:], "\n") {
			headers-- // a header without an end is none
		}
		if whole.headers != headers {
			t.Errorf("headers in %q: got %d, want %d", patch, whole.headers, headers)
		}
		if !strings.Contains(patch, header) && a != patch {
			t.Errorf("a patch without headers was changed: got %q, want %q", a, patch)
		}
	})
}

func stored(t *testing.T, w *patchWriter) string {
	t.Helper()
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if w.f == nil {
		return string(w.mem)
	}
	b, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestQuoteHeader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"a/x b/x", "a/x b/x"},
		{"a/x y b/x y", `"a/x y" "b/x y"`},
		{"a/d /f b/d /f", `"a/d /f" "b/d /f"`},
		{"a/a b/ b b/a b/ b", `"a/a b/ b" "b/a b/ b"`},
		{`"a/\n" "b/\n"`, `"a/\n" "b/\n"`},
		{"", ""},
	} {
		if got := string(quoteHeader([]byte(header + tt.in + "\n"))); got != header+tt.want+"\n" {
			t.Errorf("header %q: got %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzParseIgnored(f *testing.F) {
	f.Add("./a\x00./b\nc\x00")
	f.Add("./\x00.\x00\x00/./")
	f.Fuzz(func(t *testing.T, out string) {
		for p := range parseIgnored(out) {
			if !strings.Contains("\x00"+out+"\x00", "\x00./"+p+"\x00") {
				t.Errorf("%q: got path %q, which is not in it", out, p)
			}
		}
	})
}

// TestPortableAsGitDoes lets git itself say which names it refuses.
func TestPortableAsGitDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", "--template=", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	names := []string{
		".git", ".GIT", ".git ", ".git.", ".git. . ", "git~1", "GIT~1", "git~1 .", "git~2", ".git:x", ".git::$INDEX_ALLOCATION", ".git\\x", ".gitx", "git", ".gi", "x.git",
		".g\u200cit", "\u200e.git", ".gi\ufeffT", ".gitmodules", ".GITMODULES", "gitmod~1", "gi7eba~1", ".gitmodules ", ".gitmodules/x", "x/.git", "x/.gitmodules", ".g\u200ditmodules", "ok",
	}
	for _, name := range names {
		for _, symlink := range []bool{false, true} {
			mode := "100644"
			if symlink {
				mode = "120000"
			}
			cmd := exec.Command("git", "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true", "update-index", "--add", "--cacheinfo", fmt.Sprintf("%s,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391,%s", mode, name))
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err == nil != portable(name, symlink) {
				t.Errorf("%q (symlink %v): git says %v (%s), portable says %v", name, symlink, err, out, portable(name, symlink))
			}
			exec.Command("git", "-C", dir, "rm", "-q", "--cached", "-r", "-f", ".").Run()
		}
	}
}

func TestQuoteIsReadBackByGit(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain", "é", "a b", "tab\t", "nl\n", `q"`, `b\`, "\xff", "\x7f", "\x01"} {
		dir := t.TempDir()
		patch := fmt.Sprintf("diff --git %s %s\nnew file mode 100644\nindex 0000000..e69de29\n", quoteName("a/"+name), quoteName("b/"+name))
		cmd := exec.Command("git", "apply", "-")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %v: %s", name, err, out)
			continue
		}
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != 1 || list[0].Name() != name {
			t.Errorf("%q quoted as %s: git makes %v, %v", name, quoteName("a/"+name), list, err)
		}
	}
	if got := Quote("é ü"); got != "é ü" {
		t.Errorf("plain text for people: got %s", got)
	}
	if got := []string{Quote("a\nb"), Quote("\xff")}; !slices.Equal(got, []string{`"a\nb"`, `"\377"`}) {
		t.Errorf("what is not text: got %s", got)
	}
}
