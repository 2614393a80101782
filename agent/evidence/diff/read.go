package diff

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// errReplaced is a path that is no longer what the walk saw.
var errReplaced = errors.New("replaced while reading")

// errBudget is a file that was not read because Limits.HashBytes is used up.
var errBudget = errors.New("not read: the limit on hashing is reached")

// reader reads files that a walk listed. Paths should come sorted: it keeps the
// last directory open.
type reader struct {
	ctx    context.Context
	root   *os.Root
	limits Limits
	budget int64 // what is left of Limits.HashBytes

	dir string
	sub *os.Root
	buf bytes.Buffer
}

func newReader(ctx context.Context, root *os.Root, limits Limits) *reader {
	return &reader{ctx: ctx, root: root, limits: limits, budget: limits.HashBytes}
}

func (r *reader) close() {
	if r.sub != nil {
		r.sub.Close()
	}
}

// at returns the directory of path and the name in it.
func (r *reader) at(path string) (*os.Root, string, error) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return r.root, path, nil
	}
	if dir := path[:i]; r.sub == nil || r.dir != dir {
		r.close()
		sub, err := r.root.OpenRoot(filepath.FromSlash(dir))
		if err != nil {
			r.sub = nil
			return nil, "", err
		}
		r.sub, r.dir = sub, dir
	}
	return r.sub, path[i+1:], nil
}

// read returns the content of e, valid until the next call, and sets e.id and
// e.size to what was read. large is true when the content exceeds Limits.FileBytes:
// then there is none.
func (r *reader) read(e *entry) (content []byte, large bool, err error) {
	if err := r.ctx.Err(); err != nil {
		return nil, false, err
	}
	dir, name, err := r.at(e.path)
	if err != nil {
		return nil, false, err
	}
	r.buf.Reset()
	if e.mode == gitobj.ModeSymlink {
		target, err := dir.Readlink(name)
		if err != nil {
			return nil, false, err
		}
		r.buf.WriteString(filepath.ToSlash(target))
	} else {
		if e.size > r.limits.FileBytes {
			return nil, true, nil
		}
		f, err := r.open(dir, name, e)
		if err != nil {
			return nil, false, err
		}
		defer f.Close()
		r.buf.Grow(int(e.size) + bytes.MinRead)
		// A file can have grown since the walk, and grow on while it is read.
		n, err := r.buf.ReadFrom(io.LimitReader(f, r.limits.FileBytes+1))
		if err != nil {
			return nil, false, err
		}
		if n > r.limits.FileBytes {
			return nil, true, nil
		}
	}
	e.size = int64(r.buf.Len())
	e.id = gitobj.Name(gitobj.Blob, r.buf.Bytes())
	return r.buf.Bytes(), false, nil
}

// open opens a regular file and makes sure that it is the one that was listed:
// never what a symlink points to, never a pipe that blocks.
func (r *reader) open(dir *os.Root, name string, e *entry) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errReplaced
	}
	if err == nil {
		if now := identify(info); now.valid && (now.dev != e.stat.dev || now.ino != e.stat.ino) {
			err = errReplaced
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// hash hashes a file of any size without holding it: e.id and e.size are set,
// and the SHA-256 of the content is returned.
func (r *reader) hash(e *entry) (sha string, err error) {
	dir, name, err := r.at(e.path)
	if err != nil {
		return "", err
	}
	f, err := r.open(dir, name, e)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	e.size = info.Size()
	if e.size > r.budget {
		return "", errBudget
	}
	r.budget -= e.size
	id, sum := gitobj.NewHash(gitobj.Blob, e.size), sha256.New()
	n, err := io.Copy(io.MultiWriter(id, sum), &contextReader{r.ctx, io.LimitReader(f, e.size+1)})
	if err != nil {
		return "", err
	}
	if n != e.size {
		return "", fmt.Errorf("%w: %d bytes where %d were announced", gitobj.ErrSize, n, e.size)
	}
	e.id = gitobj.Sum(id)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// open opens the directory, where an agent may have put something else. A missing
// one is an fs.ErrNotExist.
func (c *Config) open() (root *os.Root, err error) {
	parent, name := c.Parent, filepath.Base(c.Dir)
	if parent == nil {
		if parent, err = os.OpenRoot(filepath.Dir(c.Dir)); err != nil {
			return nil, err
		}
		defer parent.Close()
	}
	info, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: c.Dir, Err: syscall.ENOTDIR}
	}
	if root, err = parent.OpenRoot(name); err != nil {
		return nil, err
	}
	if now, err := root.Stat("."); err != nil || !os.SameFile(info, now) {
		root.Close()
		return nil, &fs.PathError{Op: "open", Path: c.Dir, Err: errReplaced}
	}
	return root, nil
}
