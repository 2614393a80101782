package diff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// errTooLarge is a diff that exceeds Limits.DiffBytes.
var errTooLarge = errors.New("the diff is over the limit")

// patchArgs make git's output depend on nothing but the two trees. Renames are
// not looked for: a rename is easier to judge as what it is made of.
var patchArgs = []string{
	"diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color",
	"--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "-U3", "--diff-algorithm=myers", "--no-indent-heuristic",
	"--ignore-submodules=none", "--submodule=short",
}

// diff makes the diff of deltas, which are sorted by path. It compares two trees
// that hold the changed paths and nothing else, which gives the same diff as
// the whole trees would. The writer is returned with an error too.
func (c *comparison) diff(ctx context.Context, file string, deltas []delta) (*patchWriter, error) {
	out := &patchWriter{path: file, limit: c.b.cfg.Limits.DiffBytes, atLine: true}
	if err := c.b.git.ensure(); err != nil {
		return out, err
	}
	oldTree, newTree, headers, err := c.trees(deltas)
	if err != nil {
		return out, err
	}
	args := append(patchArgs[:len(patchArgs):len(patchArgs)], oldTree.String(), newTree.String())
	err = errors.Join(c.b.git.run(ctx, StageSnapshot, nil, out, nil, args), out.close())
	if out.err != nil {
		return out, out.err // more telling than git's broken pipe
	}
	if err == nil && out.headers != headers {
		err = fmt.Errorf("git wrote the diff of %d paths where %d changed", out.headers, headers)
	}
	return out, err
}

// trees puts what git has to compare into the store, and returns how many
// headers the diff has to have.
func (c *comparison) trees(deltas []delta) (oldTree, newTree gitobj.ID, headers int, err error) {
	pack := c.pack // the first call puts the trees beside the new content
	if c.pack = nil; pack == nil {
		pack = gitobj.NewPack(c.b.git.spill)
	}
	defer func() {
		if err != nil {
			pack.Abort()
		}
	}()
	if base := c.b.pack; !base.InMemory() && !c.b.installed {
		if _, err := base.Move(c.b.git.packs()); err != nil {
			return oldTree, newTree, 0, err
		}
		c.b.installed = true
	}
	var old, now []gitobj.Entry
	for i := range deltas {
		d := &deltas[i]
		headers += d.headers()
		if d.old != nil {
			old = append(old, gitobj.Entry{Path: d.path, Mode: d.old.mode, ID: d.old.id})
			if c.b.pack.InMemory() {
				if err := pack.AddFrom(c.b.pack, d.old.id); err != nil {
					return oldTree, newTree, 0, err
				}
			}
		}
		if d.new != nil {
			now = append(now, gitobj.Entry{Path: d.path, Mode: d.new.mode, ID: d.new.id})
		}
	}
	emit := func(id gitobj.ID, content []byte) error { return pack.Add(gitobj.Tree, id, content) }
	if oldTree, err = gitobj.BuildTree(old, emit); err != nil {
		return oldTree, newTree, 0, err
	}
	if newTree, err = gitobj.BuildTree(now, emit); err != nil {
		return oldTree, newTree, 0, err
	}
	sealed, err := pack.Seal()
	if err != nil {
		return oldTree, newTree, 0, err
	}
	base, err := sealed.Move(c.b.git.packs())
	c.packs = append(c.packs, base)
	return oldTree, newTree, headers, err
}

// patchWriter keeps a diff up to a limit, in memory while it is small, and
// counts its paths.
type patchWriter struct {
	path    string // of the file for a diff that is not small
	mem     []byte
	f       *os.File
	n       int64
	limit   int64
	headers int
	err     error

	atLine bool   // the next byte starts a line
	start  []byte // of a line that may become header
}

// smallPatch is the largest diff that stays in memory.
const smallPatch = 64 << 10

// header begins the diff of a path. No other line of a diff begins with it: those
// of content begin with a space, a sign or a backslash, those of binary content
// hold no space.
const header = "diff --git "

func (w *patchWriter) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.n+int64(len(b)) > w.limit {
		w.err = errTooLarge
		return 0, w.err
	}
	w.count(b)
	if w.f == nil && len(w.mem)+len(b) <= smallPatch {
		w.mem = append(w.mem, b...)
		w.n += int64(len(b))
		return len(b), nil
	}
	if w.f == nil {
		if w.f, w.err = os.OpenFile(w.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); w.err != nil {
			return 0, w.err
		}
		if _, w.err = w.f.Write(w.mem); w.err != nil {
			return 0, w.err
		}
		w.mem = nil
	}
	n, err := w.f.Write(b)
	w.n += int64(n)
	w.err = err
	return n, err
}

func (w *patchWriter) close() error {
	if w.f == nil {
		return nil
	}
	return w.f.Close()
}

// name returns the path of the file, or "" when the diff is in memory.
func (w *patchWriter) name() string {
	if w.f == nil {
		return ""
	}
	return w.path
}

func (w *patchWriter) remove() error {
	if w.f == nil {
		return nil
	}
	return removeIfThere(w.path)
}

func (w *patchWriter) count(b []byte) {
	for len(b) > 0 {
		if w.atLine {
			n := min(len(header)-len(w.start), len(b))
			w.start = append(w.start, b[:n]...)
			if !bytes.HasPrefix([]byte(header), w.start) || len(w.start) == len(header) {
				if string(w.start) == header {
					w.headers++
				}
				// What was taken may hold the end of the line.
				if i := bytes.LastIndexByte(w.start, '\n'); i >= 0 {
					back := len(w.start) - i - 1
					n -= back
					w.start = w.start[:0]
				} else {
					w.atLine, w.start = false, w.start[:0]
				}
			}
			b = b[n:]
			continue
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return
		}
		w.atLine, b = true, b[i+1:]
	}
}
