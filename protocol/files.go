package protocol

import (
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
)

// CheckFilePath refuses a path that could leave the workspace or touch a
// repository's own metadata: absolute, empty, with "." or ".." segments, a
// backslash, a NUL byte, or a ".git" segment in any case (file systems that
// fold case would take ".GIT" for it).
func CheckFilePath(p string) error {
	bad := func(why string) error { return fmt.Errorf("file path %q %s", Clip(p, 80), why) }
	switch {
	case p == "":
		return bad("is empty")
	case len(p) > 4096:
		return bad("is longer than 4096 bytes")
	case strings.ContainsRune(p, 0):
		return bad("contains a NUL byte")
	case strings.HasPrefix(p, "/"):
		return bad("is absolute: give it relative to the repository")
	case strings.ContainsRune(p, '\\'):
		return bad("contains a backslash: separate with /")
	case len(p) > 1 && p[1] == ':':
		return bad("starts with a drive letter")
	}
	for segment := range strings.SplitSeq(p, "/") {
		switch {
		case segment == "":
			return bad("has an empty segment")
		case segment == "." || segment == "..":
			return bad("leaves the repository or names it twice")
		case strings.EqualFold(segment, ".git"):
			return bad("touches the repository's own .git")
		case len(segment) > 255:
			return bad("has a name longer than 255 bytes")
		}
	}
	return nil
}

// fileAbove is the file in whose place p would need a directory.
func fileAbove(files map[string]string, p string) (string, bool) {
	for i := range len(p) {
		if p[i] == '/' {
			if _, ok := files[p[:i]]; ok {
				return p[:i], true
			}
		}
	}
	return "", false
}

func mapKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

func indexed(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
