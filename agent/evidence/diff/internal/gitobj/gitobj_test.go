package gitobj

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repository makes a bare repository that git itself made.
func repository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r.git")
	git(t, "", "init", "--quiet", "--bare", "--template=", dir)
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return gitIn(t, dir, "", args...)
}

func gitIn(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func random(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestPackIsReadByGit writes objects on both sides of every threshold and lets
// git check the pack, its index and every object.
func TestPackIsReadByGit(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	p := NewPack(spillTo(dir))
	contents := [][]byte{
		nil, []byte("x"), random(1, 15), random(2, 16), bytes.Repeat([]byte("ab"), 1023), random(3, storedBelow-1), random(4, storedBelow),
		bytes.Repeat([]byte("line\n"), 100_000), random(5, buffered+1), random(6, 3),
	}
	var entries []Entry
	for i, c := range contents {
		id := Name(Blob, c)
		for range 2 { // the second is skipped
			if err := p.Add(Blob, id, c); err != nil {
				t.Fatal(err)
			}
		}
		entries = append(entries, Entry{Path: fmt.Sprintf("d%d/f", i), Mode: ModeFile, ID: id})
	}
	large := random(7, 1<<20)
	for range 2 {
		id, err := p.AddStream(int64(len(large)), bytes.NewReader(large))
		if err != nil || id != Name(Blob, large) {
			t.Fatalf("stream 1 MiB: got %s, %v, want %s", id, err, Name(Blob, large))
		}
	}
	entries = append(entries, Entry{Path: "large", Mode: ModeExecutable, ID: Name(Blob, large)})
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	tree, err := BuildTree(entries, func(id ID, content []byte) error { return p.Add(Tree, id, content) })
	if err != nil {
		t.Fatal(err)
	}
	commit := CommitContent(tree, "N", "n@x.invalid", 946684800, "m")
	if err := p.Add(Commit, Name(Commit, commit), commit); err != nil {
		t.Fatal(err)
	}
	sealed, err := p.Seal()
	if err != nil {
		t.Fatal(err)
	}
	base, err := sealed.Move(filepath.Join(dir, "objects", "pack"))
	if err != nil {
		t.Fatal(err)
	}
	git(t, dir, "update-ref", "refs/heads/x", Name(Commit, commit).String())
	git(t, dir, "verify-pack", base+".idx")
	if out := git(t, dir, "fsck", "--strict", "--full", "--unreachable", "--no-progress"); out != "" && !strings.Contains(out, "HEAD points to an unborn branch") {
		t.Errorf("fsck of the pack: got %q, want nothing", out)
	}
	for i, c := range contents {
		if got := git(t, dir, "cat-file", "-s", Name(Blob, c).String()); got != fmt.Sprint(len(c)) {
			t.Errorf("size of object %d: git says %s, want %d", i, got, len(c))
		}
	}
}

func TestBuildTreeAsGitDoes(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	blob := Name(Blob, []byte("x"))
	paths := []string{"a", "a-", "a.b", "a/x", "a0", "ab/c/d", "ab/c.d", "b\nc/\xff", "z/z/z/z", "z/z/z.", "-n"}
	var list []Entry
	var in strings.Builder
	for _, p := range paths {
		if p == "a" {
			continue // a file and a directory at once
		}
		list = append(list, Entry{Path: p, Mode: ModeFile, ID: blob})
		fmt.Fprintf(&in, "%o %s\t%s\x00", uint32(ModeFile), blob, p)
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	gitIn(t, dir, "x", "hash-object", "-w", "--stdin")
	gitIn(t, dir, in.String(), "update-index", "-z", "--index-info")
	want := git(t, dir, "write-tree")
	got, err := BuildTree(list, nil)
	if err != nil || got.String() != want {
		t.Errorf("tree of %q: got %s, %v, git says %s", paths, got, err, want)
	}
	empty, err := BuildTree(nil, nil)
	if err != nil || empty.String() != "4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Errorf("empty tree: got %s, %v", empty, err)
	}
}

func TestEncodeIndexIsReadByGit(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	var list []IndexEntry
	var want []string
	for n := range 40 { // every length of padding, and a name beyond the flags' 12 bits
		path := strings.Repeat("n", n+1)
		if n == 39 {
			path = strings.Repeat("n/", 2100) + "n"
		}
		list = append(list, IndexEntry{Entry: Entry{Path: path, Mode: ModeFile, ID: Name(Blob, nil)}, Stat: Stat{Size: uint32(n)}})
	}
	slices.SortFunc(list, func(a, b IndexEntry) int { return strings.Compare(a.Path, b.Path) })
	for _, e := range list {
		want = append(want, e.Path)
	}
	if err := os.WriteFile(filepath.Join(dir, "index"), EncodeIndex(list), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := git(t, dir, "ls-files"); got != strings.Join(want, "\n") {
		t.Errorf("git reads other paths from the index: got %d bytes, want %d", len(got), len(strings.Join(want, "\n")))
	}
}

func TestStreamOfAnotherSizeFailsThePack(t *testing.T) {
	t.Parallel()
	for _, announced := range []int64{3, 5} {
		dir := t.TempDir()
		p := NewPack(spillTo(dir))
		if _, err := p.AddStream(announced, strings.NewReader("four")); !errors.Is(err, ErrSize) {
			t.Errorf("4 bytes announced as %d: got %v, want ErrSize", announced, err)
		}
		if s, err := p.Seal(); !errors.Is(err, ErrSize) || s != nil {
			t.Errorf("sealing a pack with a hole: got %v, %v, want ErrSize", s, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("a failed pack left %v", left)
		}
	}
}

// TestSmallPackStaysInMemory copies an object from one small pack to another and
// lets git read it there.
func TestSmallPackStaysInMemory(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	unwanted := func() (*os.File, error) { return nil, errors.New("a small pack made a file") }
	first, second := NewPack(unwanted), NewPack(unwanted)
	var ids []ID
	for i := range 20 {
		content := random(uint64(i), 100*i)
		ids = append(ids, Name(Blob, content))
		if err := first.Add(Blob, ids[i], content); err != nil {
			t.Fatal(err)
		}
	}
	from, err := first.Seal()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids[10:] {
		if err := second.AddFrom(from, id); err != nil {
			t.Fatal(err)
		}
	}
	to, err := second.Seal()
	if err != nil {
		t.Fatal(err)
	}
	packs, err := os.OpenRoot(filepath.Join(dir, "objects", "pack"))
	if err != nil {
		t.Fatal(err)
	}
	defer packs.Close()
	name, err := to.Install(packs)
	if err != nil {
		t.Fatal(err)
	}
	git(t, dir, "verify-pack", filepath.Join(packs.Name(), name+".idx"))
	for i, id := range ids {
		if to.Has(id) != (i >= 10) {
			t.Errorf("object %d of 20 in the second pack: got %v", i, to.Has(id))
		}
	}
	if err := NewPack(unwanted).AddFrom(to, ids[0]); err == nil {
		t.Error("copying an object that is not in the pack: got no error")
	}
}

func spillTo(dir string) func() (*os.File, error) {
	return func() (*os.File, error) { return os.CreateTemp(dir, "tmp_pack_") }
}
