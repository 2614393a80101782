package environment

import (
	"io/fs"
	"os"
	"path/filepath"
)

// above reports whether a directory, or one of those that it lies in, is wanted.
func above(dir *os.File, wanted func(fs.FileInfo) bool) (bool, error) {
	path, err := filepath.EvalSymlinks(dir.Name())
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return false, err
	}
	for {
		info, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		if wanted(info) {
			return true, nil
		}
		if filepath.Dir(path) == path {
			return false, nil
		}
		path = filepath.Dir(path)
	}
}
