//go:build unix

package diff

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// Rules that cannot be read are said, and are no reason to take an end of the
// context for a tree without rules.
func TestRulesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	start := files{".gitignore": text("*.o\n.gitignore\n"), "a/.gitignore": text("*.x\n"), "b/.gitignore": text("*.y\n"), "b/y.y": text("y"), "a/x.x": text("x")}
	w := newWorld(t, t.TempDir(), start, Config{})
	root, err := os.OpenRoot(w.work)
	must(t, err)
	defer root.Close()
	found, err := walk(t.Context(), root, w.base.cfg.Limits)
	must(t, err)
	for i := range found.entries {
		if found.entries[i].path == "a/.gitignore" {
			found.entries[i].stat.ino++ // as if it had been replaced while it is read, or the runner might not read it
		}
	}
	base := func() *Baseline {
		b := &Baseline{cfg: w.base.cfg, git: git{store: filepath.Join(t.TempDir(), "store")}, entries: slices.Clone(found.entries)}
		b.rules = rules{git: &b.git, dir: filepath.Join(b.git.store, "rules")}
		return b
	}

	b := base()
	read := newReader(t.Context(), root, b.cfg.Limits)
	defer read.close()
	must(t, b.ignore(t.Context(), read))
	pack := gitobj.NewPack(b.git.spill)
	defer pack.Abort()
	must(t, b.fill(read, pack))
	if d := cmp.Diff([]Omission{{Path: "a/.gitignore", Reason: Unreadable, Detail: errReplaced.Error()}}, b.Omitted()); d != "" {
		t.Errorf("omitted of the baseline (-want +got):\n%s", d)
	}
	for _, e := range b.entries {
		if want := e.path != "a/x.x"; e.ignored != want {
			t.Errorf("%s: ignored %v, want %v", e.path, e.ignored, want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b = base()
	if _, err := b.rules.collect(newReader(ctx, root, b.cfg.Limits), b.entries); !errors.Is(err, context.Canceled) {
		t.Errorf("collect after a cancel: %v, want %v", err, context.Canceled)
	}
}
