package environment

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/everdict/everdict/agent/evidence/diff"
	"github.com/everdict/everdict/protocol"
)

// ValidateFiles reports why a source of files cannot be written as it stands:
// a path that protocol.CheckFilePath refuses, a name that some file system takes
// for ".git", or a path that is a file and a directory at once. Nothing is
// written before all of them have passed. It looks at no disk.
func ValidateFiles(files map[string]string) error {
	paths := make([]string, 0, len(files))
	for p := range files {
		paths = append(paths, p)
	}
	slices.Sort(paths) // the same mistake is always reported by the same words
	for _, p := range paths {
		if err := protocol.CheckFilePath(p); err != nil {
			return err
		}
		for segment := range strings.SplitSeq(p, "/") {
			if diff.IsGitDir(segment) {
				return fmt.Errorf("file path %q has a name that some file systems take for .git", protocol.Clip(p, 80))
			}
		}
		for i := range len(p) {
			if p[i] != '/' {
				continue
			}
			if _, ok := files[p[:i]]; ok {
				return fmt.Errorf("file path %q lies below %q, which is a file", protocol.Clip(p, 80), protocol.Clip(p[:i], 80))
			}
		}
	}
	return nil
}

// writeFiles writes a validated source into an empty directory. The directory
// is opened as a root on top of the validation: no path leads out of it.
func writeFiles(dir string, files map[string]string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	made := map[string]bool{".": true}
	for p, content := range files {
		name := filepath.FromSlash(p)
		if parent := filepath.Dir(name); !made[parent] {
			if err := root.MkdirAll(parent, 0o777); err != nil {
				return err
			}
			made[parent] = true
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		_, err = io.WriteString(f, content)
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
	}
	return nil
}
