package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/everdict/everdict/agent/evidence/diff"
	"github.com/everdict/everdict/protocol"
)

// copySource copies a directory of the runner's machine into the empty
// workspace: bytes, permission bits, modification times and symlinks as they
// are. Nothing is shared with the original, so nothing that the agent does reaches it, and no
// ".git" comes along at any depth, so that no answer is in a history (F47).
// Pipes, sockets and devices are left out. A source that is, holds or lies in
// something that is hidden from jobs is refused.
func copySource(ctx context.Context, work, path string, hide hidden, progress io.Writer) error {
	bad := func(err error, format string, args ...any) error {
		return configError(protocol.CodeBadRequest, protocol.ReasonSetup, err, format, args...)
	}
	info, err := os.Stat(path)
	if err != nil {
		return bad(err, "the source's path cannot be used on this runner's machine: %v", err)
	}
	if !info.IsDir() {
		return bad(nil, "the source's path %s is not a directory on this runner's machine", path)
	}
	if inside, err := within(work, path); err != nil {
		return hostError("resolve the source's path", err)
	} else if inside {
		return bad(nil, "the source's path %s holds the workspaces of this runner", path)
	}
	from, err := os.OpenRoot(path)
	if err != nil {
		return bad(err, "the source's path cannot be read: %v", err)
	}
	defer from.Close()
	if err := hide.refuse(from); err != nil {
		return bad(err, "%v", err)
	}
	to, err := os.OpenRoot(work)
	if err != nil {
		return hostError("open the workspace", err)
	}
	defer to.Close()
	c := &copier{ctx: ctx, hide: hide, source: path, progress: progress, buf: make([]byte, 128<<10)}
	if err := c.dir(from, to, ""); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused := (*hiddenError)(nil); errors.As(err, &refused) {
			return bad(err, "%v", refused)
		}
		if errors.Is(err, fs.ErrPermission) {
			return bad(err, "the source's path cannot be copied: %v", err)
		}
		return hostError("copy the source", err)
	}
	return nil
}

// within reports whether dir lies in tree or is it.
func within(dir, tree string) (bool, error) {
	a, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	b, err := filepath.EvalSymlinks(tree)
	if err != nil {
		return false, err
	}
	rel, err := filepath.Rel(b, a)
	return err == nil && filepath.IsLocal(rel), nil
}

type copier struct {
	ctx      context.Context
	hide     hidden
	source   string
	progress io.Writer
	buf      []byte
}

func (c *copier) dir(from, to *os.Root, prefix string) error {
	f, err := from.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		info, err := from.Lstat(name)
		if err != nil {
			return at(prefix, name, err)
		}
		mode := info.Mode()
		switch {
		case diff.IsGitDir(name):
			if prefix != "" {
				fmt.Fprintf(c.progress, "left out the nested repository's %s\n", diff.Quote(prefix+name))
			}
		case mode.IsDir():
			err = c.sub(from, to, prefix, name, mode)
		case mode.IsRegular():
			err = at(prefix, name, c.file(from, to, name, info))
		case mode&fs.ModeSymlink != 0:
			var target string
			if target, err = from.Readlink(name); err == nil {
				err = to.Symlink(target, name)
			}
			err = at(prefix, name, err)
		default:
			fmt.Fprintf(c.progress, "left out %s: not a file, directory or symlink\n", diff.Quote(prefix+name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) sub(from, to *os.Root, prefix, name string, mode fs.FileMode) error {
	if strings.Count(prefix, "/") >= maxOpen {
		return fmt.Errorf("%s is nested more than %d directories deep", diff.Quote(prefix+name), maxOpen)
	}
	if err := to.Mkdir(name, 0o700); err != nil {
		return at(prefix, name, err)
	}
	subFrom, err := from.OpenRoot(name)
	if err != nil {
		return at(prefix, name, err)
	}
	defer subFrom.Close()
	if info, err := subFrom.Stat("."); err != nil || c.hide.is(info) {
		return cmp.Or(err, error(&hiddenError{c.source}))
	}
	subTo, err := to.OpenRoot(name)
	if err != nil {
		return at(prefix, name, err)
	}
	defer subTo.Close()
	if err := c.dir(subFrom, subTo, prefix+name+"/"); err != nil {
		return err
	}
	// Only now, because a read-only directory cannot be filled.
	return at(prefix, name, to.Chmod(name, mode.Perm()))
}

func (c *copier) file(from, to *os.Root, name string, info fs.FileInfo) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || c.hide.is(info) {
		return cmp.Or(err, error(&hiddenError{c.source}))
	}
	out, err := to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// The plain interfaces keep the copy from becoming a reflink: a later write
	// to a shared extent can fail for lack of space, in the agent's face.
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, contextReader{c.ctx, in}, c.buf)
	if err == nil {
		err = out.Chmod(info.Mode().Perm())
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return to.Chtimes(name, info.ModTime(), info.ModTime())
}

// at gives an error of a root, which knows the last name only, its whole path.
func at(prefix, name string, err error) error {
	if err == nil {
		return nil
	}
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return &fs.PathError{Op: p.Op, Path: prefix + name, Err: p.Err}
	}
	return fmt.Errorf("%s: %w", diff.Quote(prefix+name), err)
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}
