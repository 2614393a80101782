package diff

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// maxPath is the longest path in a tree: git refuses to write paths of 4,096
// bytes and more, counted with the directory in front.
const maxPath = 4000

// entry is a regular file or symlink of a tree.
type entry struct {
	path string
	mode gitobj.Mode
	size int64
	stat identity
	id   gitobj.ID // zero: not hashed
	// stable: nobody can have changed the file without changing stat.
	stable bool
	// ignored: the file is watched by stat alone.
	ignored bool
	// secret: the content holds a secret. It is set for entries of a baseline.
	secret bool
}

// identity is what a change of a file cannot leave as it was, unless the file
// was changed within one tick of the file system's clock (see settle): a process
// can set mtime as it likes, but not ctime.
type identity struct {
	dev, ino     uint64
	uid, gid     uint32
	mtime, ctime int64 // nanoseconds
	valid        bool  // false where the platform tells no ctime
}

// tree is what a walk found, sorted by path.
type tree struct {
	entries []entry
	omitted []Omission
	// hidden are paths about which nothing is known; those of directories end
	// in a slash.
	hidden map[string]bool
	seen   int   // things that were listed
	bytes  int64 // their paths
}

// walker goes through a directory without following a symlink: every directory
// is opened relative to its parent and compared with what the parent listed.
type walker struct {
	ctx    context.Context
	limits Limits
	tree
}

// walk lists the directory. It reads no file.
func walk(ctx context.Context, root *os.Root, limits Limits) (*tree, error) {
	w := &walker{ctx: ctx, limits: limits}
	if err := w.dir(root, "", 0); err != nil {
		return nil, err
	}
	slices.SortFunc(w.entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return &w.tree, nil
}

func (w *walker) dir(dir *os.Root, prefix string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	names, err := w.names(dir, prefix)
	if limit := (*LimitError)(nil); errors.As(err, &limit) {
		return err
	}
	if err != nil {
		if depth == 0 {
			return err
		}
		w.unreadable(prefix, err)
		return nil
	}
	for _, name := range names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if depth == 0 && name == ".git" {
			continue // the workspace's own repository
		}
		info, err := dir.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			w.unreadable(prefix+name, err)
		default:
			if err := w.entry(dir, prefix+name, name, info, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// names lists a directory, in pieces, so that an endless one ends at the limit.
func (w *walker) names(dir *os.Root, prefix string) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []string
	for {
		names, err := f.Readdirnames(4096)
		all = append(all, names...)
		if w.seen += len(names); w.seen > w.limits.Entries {
			return nil, &LimitError{Limit: LimitEntries, Configured: int64(w.limits.Entries), Measured: int64(w.seen)}
		}
		for _, name := range names {
			w.bytes += int64(len(prefix) + len(name))
		}
		if w.bytes > w.limits.PathBytes {
			return nil, &LimitError{Limit: LimitPathBytes, Configured: w.limits.PathBytes, Measured: w.bytes}
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (w *walker) entry(parent *os.Root, path, name string, info fs.FileInfo, depth int) error {
	shown := path
	if info.IsDir() {
		shown += "/"
	}
	switch mode := info.Mode(); {
	case !portable(path, mode&fs.ModeSymlink != 0):
		reason := Unportable
		if strings.EqualFold(name, ".git") {
			reason = NestedGit
		}
		w.omit(Omission{Path: shown, Reason: reason})
	case len(path) > maxPath || info.IsDir() && depth+1 >= w.limits.Depth:
		w.omit(Omission{Path: shown, Reason: TooDeep})
		w.hide(shown)
	case info.IsDir():
		return w.enter(parent, path, name, info, depth)
	case mode.IsRegular():
		e := entry{path: path, mode: gitobj.ModeFile, size: info.Size(), stat: identify(info)}
		if mode&0o100 != 0 {
			e.mode = gitobj.ModeExecutable
		}
		w.entries = append(w.entries, e)
	case mode&fs.ModeSymlink != 0:
		w.entries = append(w.entries, entry{path: path, mode: gitobj.ModeSymlink, size: info.Size(), stat: identify(info)})
	default:
		w.omit(Omission{Path: path, Reason: Special, Detail: specialName(mode)})
	}
	return nil
}

func (w *walker) enter(parent *os.Root, path, name string, info fs.FileInfo, depth int) error {
	sub, err := parent.OpenRoot(name)
	if err != nil {
		w.unreadable(path+"/", err)
		return nil
	}
	defer sub.Close()
	// A symlink put in the place of the directory after Lstat cannot lead out of
	// the parent, but it could lead elsewhere inside of it.
	if now, err := sub.Stat("."); err != nil || !os.SameFile(info, now) {
		w.omit(Omission{Path: path + "/", Reason: Unreadable, Detail: "replaced while reading"})
		w.hide(path + "/")
		return nil
	}
	return w.dir(sub, path+"/", depth+1)
}

func (w *walker) omit(o Omission) { w.omitted = append(w.omitted, o) }

func (w *walker) unreadable(path string, err error) {
	w.omit(Omission{Path: path, Reason: Unreadable, Detail: cause(err)})
	w.hide(path)
}

// hide records that nothing is known about path, nor about what lies below it.
func (t *tree) hide(path string) {
	if t.hidden == nil {
		t.hidden = make(map[string]bool)
	}
	t.hidden[path] = true
}

// hides reports whether nothing is known about path. It looks up what lies above the
// path: an agent chooses how much is hidden.
func (t *tree) hides(path string) bool {
	if len(t.hidden) == 0 {
		return false
	}
	for i := range len(path) {
		if path[i] == '/' && (t.hidden[path[:i]] || t.hidden[path[:i+1]]) {
			return true
		}
	}
	return t.hidden[path]
}

func specialName(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// cause strips the path from an error, which the omission has already.
func cause(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// Margins of settle.
const (
	fineTick   = 20_000_000    // two ticks of Linux's coarsest clock (CONFIG_HZ=100)
	coarseTick = 3_000_000_000 // FAT counts two seconds, HFS+ and old NFS one
)

// settle marks the entries whose identity alone proves that they are unchanged
// later. A file that was changed, hashed and changed again within one tick of the
// file system's clock has the same ctime twice; so the newest files are not
// trusted. The newest ctime in the tree stands for "now" of that clock: it is
// never ahead of it, and it is the clock of the file system, not of this machine.
func settle(entries []entry) {
	newest, fine := int64(0), false
	for i := range entries {
		newest = max(newest, entries[i].stat.ctime)
		fine = fine || entries[i].stat.ctime%1_000_000_000 != 0
	}
	limit := newest - coarseTick
	if fine {
		limit = newest - fineTick
	}
	for i := range entries {
		s := entries[i].stat
		entries[i].stable = s.valid && s.ctime < limit
	}
}
