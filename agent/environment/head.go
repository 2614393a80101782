package environment

import (
	"encoding/hex"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Bounds on what is read of a repository that an agent has had.
const (
	maxRef        = 4 << 10
	maxPackedRefs = 4 << 20
	maxHops       = 5 // symbolic refs that point at symbolic refs, as git allows
)

// readHead returns the commit that the HEAD of the workspace in files names: a claim of the
// agent, for the record. It is "" when there is none, or when the agent has made
// .git something that is no repository of plain files. No git looks at it, and
// no symlink leads out of it.
func readHead(files *os.Root) string {
	root, err := files.OpenRoot(WorkDir)
	if err != nil {
		return ""
	}
	defer root.Close()
	if info, err := root.Lstat(".git"); err != nil || !info.IsDir() {
		return ""
	}
	gitDir, err := root.OpenRoot(".git")
	if err != nil {
		return ""
	}
	defer gitDir.Close()
	ref := "HEAD"
	for range maxHops {
		content, err := readBounded(gitDir, ref, maxRef)
		if err != nil {
			packed, err := readBounded(gitDir, "packed-refs", maxPackedRefs)
			if err != nil {
				return ""
			}
			return packedRef(packed, ref)
		}
		content = strings.TrimRight(content, "\n")
		next, symbolic := strings.CutPrefix(content, "ref:")
		if !symbolic {
			return objectID(content)
		}
		ref = strings.TrimLeft(next, " \t")
		if !strings.HasPrefix(ref, "refs/") || path.Clean(ref) != ref {
			return ""
		}
	}
	return ""
}

// packedRef finds a ref in the content of packed-refs.
func packedRef(packed, ref string) string {
	for line := range strings.SplitSeq(packed, "\n") {
		if id, name, ok := strings.Cut(line, " "); ok && name == ref {
			return objectID(id)
		}
	}
	return ""
}

// objectID returns s if it is the name of an object, else "".
func objectID(s string) string {
	if _, err := hex.DecodeString(s); err != nil || len(s) != 40 && len(s) != 64 {
		return ""
	}
	return strings.ToLower(s)
}

func readBounded(root *os.Root, name string, limit int64) (string, error) {
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", os.ErrInvalid
	}
	b, err := io.ReadAll(io.LimitReader(f, limit))
	return string(b), err
}
