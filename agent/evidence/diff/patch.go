package diff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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

// diff writes the diff of deltas, which are sorted by path, to file. It compares two
// trees that hold the changed paths and nothing else, which gives the same diff as the whole
// trees would.
func (c *comparison) diff(ctx context.Context, file string, deltas []delta) (size int64, err error) {
	packs := filepath.Join(c.b.cfg.Store, "objects", "pack")
	var trees *gitobj.Pack
	if c.pack != nil {
		// The first call puts the trees beside the new content.
		trees, c.pack = c.pack, nil
	} else if trees, err = gitobj.NewPack(packs); err != nil {
		return 0, err
	}
	var old, now []gitobj.Entry
	headers := 0
	for i := range deltas {
		d := &deltas[i]
		headers += d.headers()
		if d.old != nil {
			old = append(old, gitobj.Entry{Path: d.path, Mode: d.old.mode, ID: d.old.id})
		}
		if d.new != nil {
			now = append(now, gitobj.Entry{Path: d.path, Mode: d.new.mode, ID: d.new.id})
		}
	}
	emit := func(id gitobj.ID, content []byte) error { return trees.Add(gitobj.Tree, id, content) }
	oldTree, err := gitobj.BuildTree(old, emit)
	var newTree gitobj.ID
	if err == nil {
		newTree, err = gitobj.BuildTree(now, emit)
	}
	if err != nil {
		trees.Abort()
		return 0, err
	}
	base, err := trees.Close()
	if err != nil {
		return 0, err
	}
	c.packs = append(c.packs, base)

	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := &patchWriter{f: f, limit: c.b.cfg.Limits.DiffBytes, atLine: true}
	args := append(patchArgs[:len(patchArgs):len(patchArgs)], oldTree.String(), newTree.String())
	err = c.b.git.run(ctx, StageSnapshot, nil, out, nil, args)
	if out.err != nil {
		return 0, out.err // more telling than git's broken pipe
	}
	if err != nil {
		return 0, err
	}
	if out.headers != headers {
		return 0, fmt.Errorf("git wrote the diff of %d paths where %d changed", out.headers, headers)
	}
	return out.n, nil
}

// patchWriter writes a diff to a file up to a limit and counts its paths.
type patchWriter struct {
	f       *os.File
	n       int64
	limit   int64
	headers int
	err     error

	atLine bool   // the next byte starts a line
	start  []byte // of a line that may become header
}

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
	n, err := w.f.Write(b)
	w.n += int64(n)
	w.err = err
	return n, err
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
