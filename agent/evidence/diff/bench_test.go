//go:build unix

package diff

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// populate writes n files of about size bytes, 50 to a directory.
func populate(tb testing.TB, dir string, n, size int) {
	tb.Helper()
	line := "the quick brown fox jumps over the lazy dog %d %d\n"
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("d%d", i/50), fmt.Sprintf("f%d.txt", i))
		if i%50 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				tb.Fatal(err)
			}
		}
		var content []byte
		for k := 0; len(content) < size; k++ {
			content = fmt.Appendf(content, line, i, k)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

func benchTake(b *testing.B, files, size int) {
	dir := b.TempDir()
	work := filepath.Join(dir, "work")
	populate(b, work, files, size)
	for b.Loop() {
		base, err := Take(b.Context(), Config{Dir: work, Store: filepath.Join(dir, "store"), Tracked: TrackAll})
		if err != nil {
			b.Fatal(err)
		}
		if err := base.WriteRepository(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := base.Close(); err != nil {
			b.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(work, ".git")); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkTake5Files(b *testing.B)     { benchTake(b, 5, 500) }
func BenchmarkTake10000Files(b *testing.B) { benchTake(b, 10_000, 4000) }

func benchSnapshot(b *testing.B, files, size, changed int) {
	dir := b.TempDir()
	work := filepath.Join(dir, "work")
	populate(b, work, files, size)
	base, err := Take(b.Context(), Config{Dir: work, Store: filepath.Join(dir, "store"), Tracked: TrackAll})
	if err != nil {
		b.Fatal(err)
	}
	for i := range changed {
		if err := os.WriteFile(filepath.Join(work, fmt.Sprintf("new%d", i)), []byte("new\n"), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		s, err := base.Snapshot(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if len(s.Changed) != changed {
			b.Fatalf("got %d changes, want %d", len(s.Changed), changed)
		}
		if err := s.Discard(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshot5FilesNoChange(b *testing.B)      { benchSnapshot(b, 5, 500, 0) }
func BenchmarkSnapshot5FilesOneChange(b *testing.B)     { benchSnapshot(b, 5, 500, 1) }
func BenchmarkSnapshot10000FilesNoChange(b *testing.B)  { benchSnapshot(b, 10_000, 4000, 0) }
func BenchmarkSnapshot10000FilesOneChange(b *testing.B) { benchSnapshot(b, 10_000, 4000, 1) }
