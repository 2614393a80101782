package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxOpen is how many directories are open at once while a tree is removed; what
// is nested deeper is first moved up.
const maxOpen = 100

// RemoveTree removes path and everything below it: read-only directories,
// trees nested deeper than a process may open files, links that lead elsewhere, which are
// removed and never followed. A path that does not exist is removed already.
// The error names what is left; then the directory must not be used again.
func RemoveTree(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// os.RemoveAll does not follow links either. It stops at directories
	// that their owner may not write, and at very deep ones.
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	parent, err := os.OpenRoot(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("environment: remove the workspace: %w", err)
	}
	defer parent.Close()
	return removeIn(ctx, parent, filepath.Base(path))
}

// removeIn is RemoveTree of a name in a directory.
func removeIn(ctx context.Context, parent *os.Root, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := parent.RemoveAll(name); err == nil {
		return nil
	}
	info, err := parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("environment: remove the workspace: %w", err)
	}
	if info.IsDir() {
		err = removeDir(ctx, parent, name, info)
	}
	if err = errors.Join(err, parent.Remove(name)); err != nil {
		return fmt.Errorf("environment: remove the workspace: %w", err)
	}
	return nil
}

func removeDir(ctx context.Context, parent *os.Root, name string, info fs.FileInfo) error {
	top, err := enter(parent, name, info)
	if err != nil {
		return err
	}
	defer top.Close()
	r := &remover{ctx: ctx, top: top}
	for {
		// What was moved up appears at the top after the top was listed.
		before := r.moved
		if err := r.clear(top, ".", 0); r.moved == before {
			return err
		}
	}
}

// enter opens a directory, after making it one that its owner can empty.
func enter(parent *os.Root, name string, info fs.FileInfo) (*os.Root, error) {
	if info.Mode()&0o700 != 0o700 {
		if err := parent.Chmod(name, 0o700); err != nil {
			return nil, err
		}
	}
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if now, err := dir.Stat("."); err != nil || !os.SameFile(info, now) {
		dir.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("replaced while removing")}
	}
	return dir, nil
}

type remover struct {
	ctx   context.Context
	top   *os.Root
	moved int
}

// clear empties a directory. It goes on past what it cannot remove, and reports
// the first error.
func (r *remover) clear(dir *os.Root, rel string, depth int) (first error) {
	note := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = fmt.Errorf("in %s: %w", rel, err)
		}
	}
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	var names []string
	for {
		some, err := f.Readdirnames(4096)
		names = append(names, some...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.Close()
			return err
		}
	}
	f.Close()
	for _, name := range names {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		info, err := dir.Lstat(name)
		if err != nil {
			note(err)
			continue
		}
		if info.IsDir() {
			if depth+1 >= maxOpen {
				note(r.lift(dir, name, rel, info))
				continue
			}
			sub, err := enter(dir, name, info)
			if err != nil {
				note(err)
				continue
			}
			err = r.clear(sub, filepath.Join(rel, name), depth+1)
			sub.Close()
			if err != nil {
				if first == nil {
					first = err
				}
				continue
			}
		}
		note(dir.Remove(name))
	}
	return first
}

// lift moves a directory to the top of the tree.
func (r *remover) lift(dir *os.Root, name, rel string, info fs.FileInfo) error {
	if info.Mode()&0o700 != 0o700 { // renaming a directory writes its ".."
		if err := dir.Chmod(name, 0o700); err != nil {
			return err
		}
	}
	for {
		r.moved++
		to := fmt.Sprintf("lifted-%d", r.moved)
		if _, err := r.top.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return r.top.Rename(filepath.Join(rel, name), to)
		}
	}
}
