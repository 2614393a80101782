package environment

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/everdict/everdict/protocol"
)

// hidden are the files and directories that no source may carry into a workspace. The runner itself can read them, so
// that no sandbox keeps a job from what is copied for it. They are known by what they are: a path has many spellings.
type hidden []hiddenFile

type hiddenFile struct {
	path string
	info fs.FileInfo
}

// hiddenError is a source that is refused for what it would carry.
type hiddenError struct{ path string }

func (e *hiddenError) Error() string {
	return fmt.Sprintf("the source's path %s is, holds or lies in a directory that is hidden from jobs (the runner's state, or what everdict up keeps): "+
		"give a directory beside it", protocol.Clip(e.path, 300))
}

// find sees what is there of the paths now.
func find(paths func() []string) hidden {
	if paths == nil {
		return nil
	}
	var h hidden
	for _, p := range paths() {
		if info, err := os.Stat(p); err == nil { // what cannot be seen cannot be copied either
			h = append(h, hiddenFile{p, info})
		}
	}
	return h
}

// is reports whether an open file or directory is one of them.
func (h hidden) is(info fs.FileInfo) bool {
	for _, one := range h {
		if os.SameFile(one.info, info) {
			return true
		}
	}
	return false
}

// refuse fails for a directory that is one of them, lies in one, or holds one. Where something is mounted twice only the
// walk through the source finds what it holds; this is early.
func (h hidden) refuse(source *os.Root) error {
	if len(h) == 0 {
		return nil
	}
	dir, err := source.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	self, err := dir.Stat()
	if err != nil {
		return err
	}
	found, err := above(dir, h.is)
	for _, one := range h {
		if found || err != nil {
			break
		}
		found = one.below(self)
	}
	if err == nil && found {
		err = &hiddenError{source.Name()}
	}
	return err
}

// below reports whether it lies in a directory.
func (f hiddenFile) below(dir fs.FileInfo) bool {
	path := f.path
	if !f.info.IsDir() {
		path = filepath.Dir(path)
	}
	at, err := os.Open(path)
	if err != nil {
		return false // nor can it be copied
	}
	defer at.Close()
	found, err := above(at, func(up fs.FileInfo) bool { return os.SameFile(up, dir) })
	return err == nil && found
}
