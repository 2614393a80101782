package diff

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHides(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "a.", "-"}), 1, 4), func(parts []string) string { return strings.Join(parts, "/") })
		var found tree
		var hidden []string
		for range rapid.IntRange(0, 5).Draw(t, "number") {
			h := path.Draw(t, "hidden") + rapid.SampledFrom([]string{"", "/"}).Draw(t, "slash")
			hidden = append(hidden, h)
			found.hide(h)
		}
		p := path.Draw(t, "path")
		want := false
		for _, h := range hidden {
			// A directory that cannot be looked into says nothing about a file of its name.
			want = want || p == h || strings.HasPrefix(p, strings.TrimSuffix(h, "/")+"/")
		}
		if got := found.hides(p); got != want {
			t.Fatalf("%q hide %q: got %v, want %v", hidden, p, got, want)
		}
	})
}

// A comparison of all with all would run into the test binary's own time limit.
func TestP6_ManyHiddenDirectories(t *testing.T) {
	t.Parallel()
	const n = 200_000
	gone := func(i int) string { return fmt.Sprintf("src/f%07d", i) }
	c := &comparison{b: &Baseline{}, now: &tree{}}
	for i := range n {
		c.b.entries = append(c.b.entries, entry{path: gone(i)})
		c.now.hide(fmt.Sprintf("deep/%07d/", i))
	}
	c.now.hide(gone(7))
	if err := c.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(c.Omitted); got != n-1 {
		t.Errorf("%d of %d files are gone, one is hidden: %d are missed, want %d", n, n, got, n-1)
	}
}

func TestP6_ComparingHeedsItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &comparison{b: &Baseline{entries: []entry{{path: "gone"}}}, now: &tree{}}
	if err := c.compare(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("compare after a cancel: %v, want %v", err, context.Canceled)
	}
}
