package grader

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/everdict/everdict/protocol"
)

// maxResultFile is the largest file that a grader reads back.
const maxResultFile = 1 << 20

// private is a directory of the attempt that a grader fills after the agent has
// ended. Every access goes through os.Root: an agent that left a link in the way
// must not make the runner write or read elsewhere.
type private struct {
	path string   // absolute, on the host
	rel  string   // below top
	top  *os.Root // of the attempt, not of this
	dir  *os.Root
}

// private wipes and makes the directory rel of the attempt, readable and
// searchable for whatever user the sandbox runs as.
func (in *Input) private(rel string) (*private, error) {
	if err := protocol.CheckFilePath(rel); err != nil {
		return nil, err
	}
	p := &private{path: filepath.Join(in.Root, filepath.FromSlash(rel)), rel: rel, top: in.Files}
	if err := p.make(); err != nil {
		return nil, fmt.Errorf("make %s: %w", rel, err)
	}
	return p, nil
}

// openDir opens a directory of the attempt that commands know as cwd, by no link that leads out of the attempt.
func (in *Input) openDir(cwd string) (*os.Root, error) {
	return in.Files.OpenRoot(filepath.FromSlash(cmp.Or(cwd, "work")))
}

func (p *private) make() error {
	// What the agent put in the way is removed, too, be it a link to where nothing may be written.
	for i, c := range p.rel {
		if c != '/' {
			continue
		}
		if info, err := p.top.Lstat(p.rel[:i]); err == nil && !info.IsDir() {
			if err := p.top.Remove(p.rel[:i]); err != nil {
				return err
			}
		}
	}
	if err := p.top.RemoveAll(p.rel); err != nil {
		return err
	}
	if err := p.top.MkdirAll(p.rel, 0o755); err != nil {
		return err
	}
	dir, err := p.top.OpenRoot(p.rel)
	p.dir = dir
	return err
}

// write puts a new file in place, with its directories.
func (p *private) write(name string, content []byte, mode fs.FileMode) error {
	if err := protocol.CheckFilePath(name); err != nil {
		return err
	}
	return writeNew(p.dir, name, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// read returns a regular file of at most maxResultFile bytes, and nil when there
// is none.
func (p *private) read(name string) ([]byte, error) {
	// Not blocking: it may be a pipe that nobody writes to.
	f, err := p.dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", name)
	case info.Size() > maxResultFile:
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d", name, info.Size(), maxResultFile)
	}
	return io.ReadAll(io.LimitReader(f, maxResultFile))
}

// world makes the directory writable for whatever user the sandbox runs as.
func (p *private) world() error { return p.top.Chmod(p.rel, 0o777) }

// remove takes the directory away again and closes it.
func (p *private) remove() {
	p.top.RemoveAll(p.rel)
	p.close()
}

func (p *private) close() { p.dir.Close() }

// writeNew replaces whatever is at name, a link included, by a new file.
func writeNew(root *os.Root, name string, mode fs.FileMode, fill func(io.Writer) error) error {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = fill(f)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
