package home

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
)

type doc struct {
	Name  string
	Count int
}

func TestDocument(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "doc.json")
	got := doc{Name: "default", Count: 7}
	if err := Read(path, 2, &got, nil); err != nil || got.Name != "default" {
		t.Fatalf("without a file: %+v, %v", got, err)
	}
	if err := Write(path, 1, map[string]any{"Name": "old"}); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, 2, &got, nil); err != nil || got != (doc{"old", 7}) {
		t.Errorf("of an earlier version: %+v, %v; want what it does not say left as it was", got, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want 0600", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%d files, %v; want no temporary one left", len(left), err)
	}
}

func TestBrokenDocument(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"cut":           `{"version":1,"content":{"Na`,
		"empty":         "",
		"another shape": `{"version":1,"content":[1]}`,
		"of later":      `{"version":9,"content":{}}`,
		"of none":       `{"content":{}}`,
		"refused":       `{"version":1,"content":{"Name":"bad"}}`,
		"too long":      strings.Repeat(" ", maxDocument+1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "doc.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			got := doc{Name: "default"}
			err := Read(path, 1, &got, func(d *doc) error {
				if d.Name == "bad" {
					return errors.New("bad")
				}
				return nil
			})
			var b *BrokenError
			if !errors.As(err, &b) || got.Name != "default" {
				t.Fatalf("got %+v, %v; want a BrokenError and the default", got, err)
			}
			if kept, err := os.ReadFile(b.Aside); err != nil || string(kept) != content {
				t.Errorf("moved aside: %v", err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

func TestSocketPathIsShort(t *testing.T) {
	t.Parallel()
	deep := Below("/" + strings.Repeat("deep/", 40))
	if p := deep.Socket(); len(p) > maxSocketPath {
		t.Errorf("%s has %d bytes", p, len(p))
	}
	if a, b := deep.Socket(), Below("/"+strings.Repeat("deeq/", 40)).Socket(); a == b {
		t.Error("two homes have one socket")
	}
}

// Jobs ask on a socket below the work directory of a connection, whose path the kernel bounds.
func TestWorkDirectoryHasRoomForASocket(t *testing.T) {
	t.Parallel()
	const id = "con_01m8n6rdr1wds6s3jz3hgnsvd3"
	for name, c := range map[string]struct {
		root string
		max  int
	}{
		"linux": {"/home/somebody-with-a-long-name/.cache/everdict-desktop", 107},
		"macOS": {"/Users/somebody/Library/Caches/everdict-desktop", 103},
	} {
		_, work := Below(c.root).Runner(id)
		if socket := work + "/ask/" + protocol.NewID(""); len(socket) > c.max {
			t.Errorf("%s: %s has %d bytes, want at most %d", name, socket, len(socket), c.max)
		}
	}
	d := Below("/x")
	_, one := d.Runner(id)
	_, other := d.Runner("con_01m8n6rdr1wds6s3jz3hgnsvd4")
	if one == other {
		t.Errorf("two connections work in %s", one)
	}
}

// A write that was killed leaves its half, which the next start removes. What is whole stays.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := filepath.Join(dir, "con_1.key")
	if err := WriteFile(whole, []byte("key")); err != nil {
		t.Fatal(err)
	}
	half, err := os.CreateTemp(dir, ".con_1.key.*")
	if err != nil {
		t.Fatal(err)
	}
	half.Close()
	Sweep(dir, filepath.Join(dir, "missing"))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "con_1.key" {
		t.Errorf("left are %v, %v; want con_1.key alone", entries, err)
	}
}
