package diff

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// delta is a path whose content, mode or type differs from the baseline; old or
// new is nil when the path is added or deleted.
type delta struct {
	path     string
	old, new *entry
}

func (d *delta) kind() Kind {
	switch {
	case d.old == nil:
		return Added
	case d.new == nil:
		return Deleted
	}
	return Modified
}

// weight is how much content the diff of d is made of.
func (d *delta) weight() (n int64) {
	if d.old != nil {
		n += d.old.size
	}
	if d.new != nil {
		n += d.new.size
	}
	return n
}

// headers is how many "diff --git" lines git writes for d: a change of type is
// a deletion and an addition.
func (d *delta) headers() int {
	if d.old != nil && d.new != nil && (d.old.mode == gitobj.ModeSymlink) != (d.new.mode == gitobj.ModeSymlink) {
		return 2
	}
	return 1
}

// comparison is a snapshot in the making.
type comparison struct {
	b      *Baseline
	read   *reader
	now    *tree
	pack   *gitobj.Pack // of new content; nil until there is some
	packs  []string     // complete packs of this snapshot, paths without extension
	deltas []delta
	// removals are files of the baseline whose content may not be shown, and
	// that are gone or hold something else now.
	removals []*entry
	ignored  []Omission
	stored   int64 // bytes of new content that were read for the store
	Snapshot
}

// Snapshot compares the directory with the baseline. A directory that is gone
// is an empty one. Every error is a *Error of StageSnapshot, or ctx's error
// when that has ended.
func (b *Baseline) Snapshot(ctx context.Context) (*Snapshot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &comparison{b: b, Snapshot: Snapshot{BaselineTree: b.Tree(), Tree: b.Tree()}}
	if err := c.run(ctx); err != nil {
		return nil, fail(ctx, StageSnapshot, err)
	}
	s := c.Snapshot
	return &s, nil
}

func (c *comparison) run(ctx context.Context) error {
	root, err := c.b.cfg.open()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.now = &tree{}
	case err != nil:
		return err
	default:
		defer root.Close()
		if c.now, err = walk(ctx, root, c.b.cfg.Limits); err != nil {
			return err
		}
	}
	c.Omitted = c.now.omitted
	c.read = newReader(ctx, root, c.b.cfg.Limits)
	defer c.read.close()
	err = c.compare(ctx)
	if err == nil && len(c.deltas)+len(c.removals) > 0 {
		err = c.write(ctx)
	}
	if err := errors.Join(err, c.drop()); err != nil {
		return err
	}
	for i := range c.Omitted {
		c.Omitted[i].Path = c.b.cfg.Redact.String(c.Omitted[i].Path)
	}
	slices.SortStableFunc(c.Omitted, func(a, b Omission) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// drop removes the snapshot's own objects: the store holds the baseline alone,
// however many snapshots are taken.
func (c *comparison) drop() (err error) {
	if c.pack != nil {
		c.pack.Abort()
	}
	for _, base := range c.packs {
		err = errors.Join(err, removeIfThere(base+".idx"), removeIfThere(base+".pack"))
	}
	return err
}

// compare merges the two sorted lists.
func (c *comparison) compare(ctx context.Context) error {
	fresh, err := c.fresh(ctx)
	if err != nil {
		return err
	}
	old, now := c.b.entries, c.now.entries
	for len(old) > 0 || len(now) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = strings.Compare(old[0].path, now[0].path)
		}
		var before, after *entry
		if order <= 0 {
			before, old = &old[0], old[1:]
		}
		if order >= 0 {
			after, now = &now[0], now[1:]
		}
		if err := c.path(ctx, before, after, fresh); err != nil {
			return err
		}
	}
	present := make(map[string]bool)
	if len(c.ignored) > 0 {
		for _, list := range [][]entry{c.b.entries, c.now.entries} {
			for i := range list {
				if !list[i].ignored {
					holders(present, list[i].path)
				}
			}
		}
	}
	c.Omitted = append(c.Omitted, collapse(c.ignored, present)...)
	return nil
}

// fresh marks the new files that the baseline's rules ignore.
func (c *comparison) fresh(ctx context.Context) (ignored map[string]bool, err error) {
	if !c.b.rules.any {
		return nil, nil
	}
	var paths []string
	old := c.b.entries
	for i := range c.now.entries {
		path := c.now.entries[i].path
		for len(old) > 0 && old[0].path < path {
			old = old[1:]
		}
		if len(old) == 0 || old[0].path != path {
			paths = append(paths, path)
		}
	}
	return c.b.rules.match(ctx, StageSnapshot, paths)
}

// path compares one path.
func (c *comparison) path(ctx context.Context, before, after *entry, ignored map[string]bool) error {
	switch {
	case after == nil && c.now.hides(before.path):
		// Nothing is known, and Omitted says so: for Tree it counts as unchanged.
		return nil
	case before != nil && before.ignored:
		if after != nil {
			after.ignored = true
		}
		if after == nil || after.stat != before.stat || after.mode != before.mode || after.size != before.size {
			d := delta{path: before.path, old: before, new: after}
			c.ignore(d)
		}
		return nil
	case before == nil && ignored[after.path]:
		after.ignored = true
		c.ignore(delta{path: after.path, new: after})
		return nil
	case after == nil:
		c.remove(before)
		return nil
	case before != nil && before.stable && after.stat == before.stat && after.mode == before.mode && after.size == before.size:
		after.id = before.id
		return nil
	}
	return c.content(ctx, before, after)
}

func (c *comparison) ignore(d delta) {
	o := Omission{Path: d.path, Reason: Ignored, Kind: d.kind()}
	if d.new != nil {
		o.Bytes = d.new.size
	} else {
		o.Bytes = d.old.size
	}
	c.ignored = append(c.ignored, o)
}

// content reads a file and keeps what is new.
func (c *comparison) content(ctx context.Context, before, after *entry) error {
	// Past what is stored files are read for their hashes alone, within that limit:
	// an agent can leave a million of the largest.
	most, why := storedPerDiff*c.b.cfg.Limits.DiffBytes, ""
	var content []byte
	var err error
	large := after.mode != gitobj.ModeSymlink && c.stored+after.size > most
	if large {
		why = whyWhole
	} else {
		content, large, err = c.read.read(after)
	}
	sha := ""
	if large {
		sha, err = c.read.hash(after)
		if errors.Is(err, errBudget) || errors.Is(err, gitobj.ErrSize) {
			c.over(delta{path: after.path, old: before, new: after}, "", err.Error())
			return nil
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) { // gone since the walk
			c.now.hide(after.path)
		}
		c.Omitted = append(c.Omitted, Omission{Path: after.path, Reason: Unreadable, Detail: cause(err), Bytes: after.size})
		if before != nil {
			after.id, after.mode = before.id, before.mode
		}
		return nil
	}
	if before != nil && before.id == after.id && before.mode == after.mode {
		return nil
	}
	d := delta{path: after.path, old: before, new: after}
	if !large {
		c.stored += after.size
	}
	if c.secretName(d) {
		return nil
	}
	if large {
		c.over(d, sha, why)
		return nil
	}
	if c.stored > most { // it grew since the walk
		c.over(d, "", whyWhole)
		return nil
	}
	content, ok := c.masked(d, content)
	if !ok {
		return nil
	}
	if before != nil && c.unshown(before) {
		c.removals = append(c.removals, before)
		d.old = nil // the diff deletes the file and adds it again
	}
	if c.pack == nil {
		c.pack = gitobj.NewPack(c.b.git.spill)
	}
	if err := c.pack.Add(gitobj.Blob, after.id, content); err != nil {
		return err
	}
	c.deltas = append(c.deltas, d)
	return nil
}

// remove records a deletion, for which nothing has to be read.
func (c *comparison) remove(old *entry) {
	switch {
	case old.id.IsZero(): // it is not in the baseline's tree
		c.over(delta{path: old.path, old: old}, "", errBudget.Error())
	case c.secretName(delta{path: old.path, old: old}):
	case c.unshown(old):
		c.removals = append(c.removals, old)
	default:
		c.deltas = append(c.deltas, delta{path: old.path, old: old})
	}
}

// unshown reports whether the diff may not show the content of a baseline file:
// the store lacks it, or it holds a secret.
func (c *comparison) unshown(e *entry) bool {
	return e.secret || e.mode != gitobj.ModeSymlink && e.size > c.b.cfg.Limits.FileBytes
}

func (c *comparison) over(d delta, sha, detail string) {
	o := Omission{Path: d.path, Reason: OverLimit, Kind: d.kind(), SHA256: sha, Detail: detail}
	if d.new != nil {
		o.Bytes = d.new.size
	} else {
		o.Bytes = d.old.size
	}
	c.Omitted = append(c.Omitted, o)
}

// wholeTree returns the id of the tree that the directory is now.
func (c *comparison) wholeTree() string {
	var list []gitobj.Entry
	put := func(e *entry) {
		if !e.ignored && !e.id.IsZero() {
			list = append(list, gitobj.Entry{Path: e.path, Mode: e.mode, ID: e.id})
		}
	}
	for i := range c.now.entries {
		put(&c.now.entries[i])
	}
	if len(c.now.hidden) > 0 {
		for i := range c.b.entries {
			e := &c.b.entries[i]
			if _, there := slices.BinarySearchFunc(c.now.entries, e.path, func(x entry, p string) int { return strings.Compare(x.path, p) }); !there && c.now.hides(e.path) {
				put(e)
			}
		}
		slices.SortFunc(list, func(a, b gitobj.Entry) int { return strings.Compare(a.Path, b.Path) })
	}
	id, err := gitobj.BuildTree(list, nil)
	if err != nil {
		panic(err) // nothing but emit can fail
	}
	return id.String()
}

func removeIfThere(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
