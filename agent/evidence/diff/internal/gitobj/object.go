// Package gitobj writes git's object formats (blobs, trees, commits, packs and
// the index) without running git: a baseline is recorded for every attempt, and
// each git process costs more than the whole recording of a small tree. It only
// writes; nothing here reads what an agent may have changed.
package gitobj

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// ID is the name of an object: the SHA-1 of its header and content. The zero ID
// names no object.
type ID [sha1.Size]byte

// String returns the ID as 40 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id names no object.
func (id ID) IsZero() bool { return id == ID{} }

// Type is the kind of an object, as packs number it.
type Type byte

// The kinds of objects that a baseline consists of.
const (
	Commit Type = 1
	Tree   Type = 2
	Blob   Type = 3
)

func (t Type) String() string {
	switch t {
	case Commit:
		return "commit"
	case Tree:
		return "tree"
	case Blob:
		return "blob"
	}
	return fmt.Sprintf("type-%d", byte(t))
}

// NewHash returns a hash that has consumed the header of an object of size
// bytes; the content is written to it next.
func NewHash(t Type, size int64) hash.Hash {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", t, size)
	return h
}

// Sum returns the ID that a hash made by NewHash has arrived at.
func Sum(h hash.Hash) (id ID) {
	h.Sum(id[:0])
	return id
}

// Name returns the ID of content as an object of type t.
func Name(t Type, content []byte) ID {
	h := NewHash(t, int64(len(content)))
	h.Write(content)
	return Sum(h)
}

// Mode is the mode of a path in a tree; git knows these four and no other
// permission bits.
type Mode uint32

// Modes of tree entries.
const (
	ModeDir        Mode = 0o040000
	ModeFile       Mode = 0o100644
	ModeExecutable Mode = 0o100755
	ModeSymlink    Mode = 0o120000
)

// Entry is a file or symlink of a tree, by its slash-separated path.
type Entry struct {
	Path string
	Mode Mode
	ID   ID
}

// BuildTree encodes the tree that consists of entries and of the directories
// that they imply, hands every tree object to emit, children first, and returns
// the ID of the root. The entries are sorted by the bytes of their paths, which
// is the order that git wants, because a directory sorts as if it ended in a
// slash. An empty list is git's empty tree.
func BuildTree(entries []Entry, emit func(id ID, content []byte) error) (ID, error) {
	return buildTree(entries, 0, emit)
}

// buildTree builds the directory that all entries share; prefix is the length
// of its path with the slash.
func buildTree(entries []Entry, prefix int, emit func(ID, []byte) error) (ID, error) {
	var b bytes.Buffer
	for i := 0; i < len(entries); {
		e := entries[i]
		name, _, nested := strings.Cut(e.Path[prefix:], "/")
		mode, id, n := e.Mode, e.ID, 1
		if nested {
			dir := e.Path[:prefix+len(name)+1]
			n = len(entries) - i
			for k := i; k < len(entries); k++ {
				if !strings.HasPrefix(entries[k].Path, dir) {
					n = k - i
					break
				}
			}
			var err error
			if id, err = buildTree(entries[i:i+n], len(dir), emit); err != nil {
				return ID{}, err
			}
			mode = ModeDir
		}
		fmt.Fprintf(&b, "%o %s\x00", uint32(mode), name)
		b.Write(id[:])
		i += n
	}
	id := Name(Tree, b.Bytes())
	if emit != nil {
		if err := emit(id, b.Bytes()); err != nil {
			return ID{}, err
		}
	}
	return id, nil
}

// CommitContent encodes a commit of tree without parents. The identity and the
// date (seconds since 1970, UTC) are fixed by the caller, so that equal trees
// have equal commits.
func CommitContent(tree ID, name, email string, unix int64, message string) []byte {
	who := fmt.Sprintf("%s <%s> %d +0000", name, email, unix)
	return fmt.Appendf(nil, "tree %s\nauthor %s\ncommitter %s\n\n%s\n", tree, who, who, message)
}
