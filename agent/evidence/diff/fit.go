package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// storedPerDiff is how many times Limits.DiffBytes of changed content a snapshot
// stores for git to compare. Large files with small changes make a small diff, so
// it is more than once; an agent that fills its disk does not fill the store as well.
const storedPerDiff = 8

// whyWhole is the detail of a change that is left out because of all the others.
const whyWhole = "the whole diff is over the limit"

// write makes the diff of all deltas, or of the lighter ones when the whole is
// over the limit. Deletions are in it in any case, because what was added may
// lie in their place.
func (c *comparison) write(ctx context.Context) error {
	c.Tree = c.wholeTree()
	c.b.serial++
	file := filepath.Join(c.b.cfg.Store, fmt.Sprintf("diff-%d", c.b.serial))
	chosen, removals := c.deltas, c.removals
	for round, budget := 0, c.b.cfg.Limits.DiffBytes; ; round, budget = round+1, budget/2 {
		out, err := c.diff(ctx, file, chosen, removals)
		if err == nil {
			c.Size, c.patch, c.file = out.n, out.mem, out.name()
			break
		}
		if err := out.remove(); err != nil {
			return err
		}
		switch {
		case !errors.Is(err, errTooLarge):
			return err
		case round > 0 && len(chosen) == 0:
			removals = nil // nothing else is left to leave out; an empty diff fits
		default:
			chosen, removals = c.lightest(budget)
		}
	}
	c.list(chosen, removals)
	return nil
}

// list tells what is in the diff and what is not.
func (c *comparison) list(chosen []delta, removals []*entry) {
	in := make(map[string]Kind, len(chosen)+len(removals))
	for _, e := range removals {
		in[e.path] = Deleted
	}
	for i := range chosen {
		d := &chosen[i]
		if kind := d.kind(); kind == Added && in[d.path] == Deleted {
			in[d.path] = Modified
		} else {
			in[d.path] = kind
		}
	}
	for path, kind := range in {
		c.Changed = append(c.Changed, Change{Path: path, Kind: kind})
	}
	slices.SortFunc(c.Changed, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	for _, d := range c.deltas {
		if _, ok := in[d.path]; !ok || in[d.path] == Deleted && d.new != nil {
			c.over(d, "", whyWhole)
		}
	}
	for _, e := range c.removals {
		if _, ok := in[e.path]; !ok {
			c.over(delta{path: e.path, old: e}, "", whyWhole)
		}
	}
}

// lightest returns the deltas that make a diff of about budget bytes when the
// lightest are taken first, in their order, and all deletions. Every line of
// text costs a byte more in a diff, and a name stands in it up to six times.
func (c *comparison) lightest(budget int64) (chosen []delta, removals []*entry) {
	removals = slices.Clone(c.removals)
	var rest []delta
	for _, d := range c.deltas {
		if d.new == nil {
			removals = append(removals, d.old)
		} else {
			rest = append(rest, d)
		}
	}
	for _, e := range removals {
		budget -= int64(len(removal(e)))
	}
	slices.SortStableFunc(rest, func(a, b delta) int { return cmp.Compare(a.weight(), b.weight()) })
	n := 0
	for ; n < len(rest); n++ {
		if budget -= 2*rest[n].weight() + 6*int64(len(rest[n].path)) + 300; budget < 0 {
			break
		}
	}
	chosen = rest[:n]
	slices.SortFunc(chosen, func(a, b delta) int { return strings.Compare(a.path, b.path) })
	return chosen, removals
}
