package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// record is the list of what was put in place, kept in a file of its own.
type record struct {
	path string

	Files []placed `json:"files"`
	// Dirs were made for them, parents first.
	Dirs []string `json:"dirs,omitempty"`
	// Edits are changes of files that others write to as well.
	Edits []edited `json:"edits,omitempty"`
}

// placed is a file that we wrote.
type placed struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// edited is a file that we changed.
type edited struct {
	Path string `json:"path"`
	// Before is what was in it; nil if it was not there.
	Before *string `json:"before"`
	// SHA256 is that of what we made of it.
	SHA256 string `json:"sha256"`
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func readRecord(path string) (*record, error) {
	r := &record{path: path}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of what is installed, %s: %w", path, err)
	}
	return r, nil
}

// save writes the record, or removes it if nothing is installed.
func (r *record) save() error {
	if len(r.Files) == 0 && len(r.Edits) == 0 {
		if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.removeDirs()
		return nil
	}
	if err := r.makeDir(filepath.Dir(r.path)); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return write(r.path, append(b, '\n'), 0o600)
}

// makeDir makes a directory and remembers each that was not there.
func (r *record) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := r.makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !slices.Contains(r.Dirs, dir) {
		r.Dirs = append(r.Dirs, dir)
	}
	return nil
}

// removeDirs removes those directories of ours that are empty, and forgets the others.
func (r *record) removeDirs() {
	for _, dir := range slices.Backward(r.Dirs) {
		_ = os.Remove(dir) // fails where there is something in it
	}
	r.Dirs = nil
}

// write replaces a file in one step.
func write(path string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".everdict-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (r *record) find(path string) int {
	return slices.IndexFunc(r.Files, func(p placed) bool { return p.Path == path })
}

// place puts a file in place, if what is there is ours or nothing.
func (r *record) place(rep *Report, path string, content []byte) error {
	at := r.find(path)
	old, err := readRegular(path)
	switch {
	case errors.Is(err, errNotRegular):
		rep.Kept = append(rep.Kept, Kept{path, "it is no file of ours"})
		return nil
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case bytes.Equal(old, content):
		rep.Unchanged = append(rep.Unchanged, path)
		if at < 0 {
			r.Files = append(r.Files, placed{path, digest(content)})
		}
		return nil
	case at < 0:
		rep.Kept = append(rep.Kept, Kept{path, "it was there before; remove it and install again"})
		return nil
	case digest(old) != r.Files[at].SHA256:
		rep.Kept = append(rep.Kept, Kept{path, "it was changed since; remove it and install again"})
		return nil
	}
	if err := r.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := write(path, content, 0o644); err != nil {
		return err
	}
	rep.Written = append(rep.Written, path)
	if at >= 0 {
		r.Files[at].SHA256 = digest(content)
	} else {
		r.Files = append(r.Files, placed{path, digest(content)})
	}
	return nil
}

var errNotRegular = errors.New("not a regular file")

// readRegular reads a file, and follows no link.
func readRegular(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	return os.ReadFile(path)
}

// take removes a file that was put in place, unless it was changed since.
func (r *record) take(rep *Report, path string) error {
	at := r.find(path)
	if at < 0 {
		return nil
	}
	old, err := readRegular(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errNotRegular) || err == nil && digest(old) != r.Files[at].SHA256:
		rep.Kept = append(rep.Kept, Kept{path, "it was changed since it was installed"})
	case err != nil:
		return err
	default:
		if err := os.Remove(path); err != nil {
			return err
		}
		rep.Removed = append(rep.Removed, path)
	}
	r.Files = slices.Delete(r.Files, at, at+1)
	return nil
}

// edit changes a file that others write to as well.
func (r *record) edit(rep *Report, path string, change func(string) string) error {
	var before *string
	old, err := os.ReadFile(path)
	switch {
	case err == nil:
		s := string(old)
		before = &s
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	next := change(string(old))
	if before != nil && next == *before {
		rep.Unchanged = append(rep.Unchanged, path)
		return nil
	}
	if err := r.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := overwrite(path, []byte(next)); err != nil {
		return err
	}
	rep.Written = append(rep.Written, path)
	r.Edits = slices.DeleteFunc(r.Edits, func(e edited) bool { return e.Path == path })
	r.Edits = append(r.Edits, edited{path, before, digest([]byte(next))})
	return nil
}

// overwrite replaces a file that may be a link into somebody's collection of settings, and
// keeps its mode.
func overwrite(path string, content []byte) error {
	mode := os.FileMode(0o644)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode().Perm()
		}
	}
	return write(path, content, mode)
}

// undo takes a change back: all of it if nobody has written to the file since, else by
// undoing that one thing.
func (r *record) undo(rep *Report, path string, change func(string) string) error {
	at := slices.IndexFunc(r.Edits, func(e edited) bool { return e.Path == path })
	if at < 0 {
		return nil
	}
	e := r.Edits[at]
	r.Edits = slices.Delete(r.Edits, at, at+1)
	now, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	next := change(string(now))
	switch {
	case digest(now) != e.SHA256:
		if next == string(now) {
			return nil
		}
	case e.Before == nil:
		if err := os.Remove(path); err != nil {
			return err
		}
		rep.Removed = append(rep.Removed, path)
		return nil
	default:
		next = *e.Before
	}
	if err := overwrite(path, []byte(next)); err != nil {
		return err
	}
	rep.Written = append(rep.Written, path)
	return nil
}
