package diff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// errTooLarge is a diff that exceeds Limits.DiffBytes.
var errTooLarge = errors.New("the diff is over the limit")

// patchArgs make git's output depend on nothing but the two trees. Renames are
// not looked for: a rename is easier to judge as what it is made of.
var patchArgs = []string{
	"diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color",
	"--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "-U3", "--diff-algorithm=myers", "--no-indent-heuristic",
	"--ignore-submodules=none", "--submodule=short",
}

// removal is the diff that deletes a file without its content: a binary patch
// whose result is empty, which git applies when the file has the hash that the
// patch names.
func removal(e *entry) string {
	a, b := quoteName("a/"+e.path), quoteName("b/"+e.path)
	return fmt.Sprintf("diff --git %s %s\ndeleted file mode %o\nindex %s..%s\nGIT binary patch\nliteral 0\nHcmV?d00001\n\n",
		a, b, uint32(e.mode), e.id, gitobj.ID{})
}

// diff makes the diff of removals and of deltas, which are sorted by path. It
// compares two trees that hold the changed paths and nothing else, which gives
// the same diff as the whole trees would. The writer is returned with an error too.
func (c *comparison) diff(ctx context.Context, file string, deltas []delta, removals []*entry) (*patchWriter, error) {
	out := &patchWriter{path: file, limit: c.b.cfg.Limits.DiffBytes}
	if err := c.b.git.ensure(); err != nil {
		return out, err
	}
	// They come first: a file that is added again comes after its deletion.
	for _, e := range removals {
		if _, err := io.WriteString(out, removal(e)); err != nil {
			return out, errors.Join(err, out.close())
		}
	}
	if len(deltas) == 0 {
		return out, out.close()
	}
	oldTree, newTree, headers, err := c.trees(deltas)
	if err != nil {
		return out, errors.Join(err, out.close())
	}
	args := append(patchArgs[:len(patchArgs):len(patchArgs)], oldTree.String(), newTree.String())
	err = errors.Join(c.b.git.run(ctx, StageSnapshot, nil, out, nil, args), out.close())
	if out.err != nil {
		return out, out.err // more telling than git's broken pipe
	}
	if headers += len(removals); err == nil && out.headers != headers {
		err = fmt.Errorf("git wrote the diff of %d paths where %d changed", out.headers, headers)
	}
	return out, err
}

// trees puts what git has to compare into the store, and returns how many
// headers the diff has to have.
func (c *comparison) trees(deltas []delta) (oldTree, newTree gitobj.ID, headers int, err error) {
	pack := c.pack // the first call puts the trees beside the new content
	if c.pack = nil; pack == nil {
		pack = gitobj.NewPack(c.b.git.spill)
	}
	defer func() {
		if err != nil {
			pack.Abort()
		}
	}()
	if base := c.b.pack; !base.InMemory() && !c.b.installed {
		if _, err := base.Move(c.b.git.packs()); err != nil {
			return oldTree, newTree, 0, err
		}
		c.b.installed = true
	}
	var old, now []gitobj.Entry
	for i := range deltas {
		d := &deltas[i]
		headers += d.headers()
		if d.old != nil {
			old = append(old, gitobj.Entry{Path: d.path, Mode: d.old.mode, ID: d.old.id})
			if c.b.pack.InMemory() {
				if err := pack.AddFrom(c.b.pack, d.old.id); err != nil {
					return oldTree, newTree, 0, err
				}
			}
		}
		if d.new != nil {
			now = append(now, gitobj.Entry{Path: d.path, Mode: d.new.mode, ID: d.new.id})
		}
	}
	emit := func(id gitobj.ID, content []byte) error { return pack.Add(gitobj.Tree, id, content) }
	if oldTree, err = gitobj.BuildTree(old, emit); err != nil {
		return oldTree, newTree, 0, err
	}
	if newTree, err = gitobj.BuildTree(now, emit); err != nil {
		return oldTree, newTree, 0, err
	}
	sealed, err := pack.Seal()
	if err != nil {
		return oldTree, newTree, 0, err
	}
	base, err := sealed.Move(c.b.git.packs())
	c.packs = append(c.packs, base)
	return oldTree, newTree, headers, err
}

// header begins the diff of a path. No other line of a diff begins with it:
// those of content begin with a space, a sign or a backslash, those of binary
// content hold no space.
const header = "diff --git "

// quoteHeader quotes the names in a header line that holds spaces. Git writes
// "diff --git a/x /y b/x /y" and cannot read it again, when the diff has no
// other line with the name: binary content, a mode alone, an empty file.
func quoteHeader(line []byte) []byte {
	names := line[len(header) : len(line)-1]
	half := len(names) / 2 // the same name twice, with one space in between
	if len(names)%2 == 0 || names[0] == '"' || names[half] != ' ' || bytes.IndexByte(names[:half], ' ') < 0 {
		return line
	}
	return fmt.Appendf(nil, "%s%s %s\n", header, cQuote(string(names[:half])), cQuote(string(names[half+1:])))
}

// patchWriter keeps a diff up to a limit, in memory while it is small, counts
// its paths and mends their headers.
type patchWriter struct {
	path    string // of the file for a diff that is not small
	mem     []byte
	f       *os.File
	n       int64
	limit   int64
	headers int
	err     error

	state lineState
	line  []byte // what is held back of a line
}

type lineState int

const (
	lineStart  lineState = iota // line is a beginning of header, or empty
	lineHeader                  // line begins with header
	lineRest                    // the rest of another line
)

// smallPatch is the largest diff that stays in memory.
const smallPatch = 64 << 10

func (w *patchWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0 && w.err == nil; {
		n := 0
		switch w.state {
		case lineStart:
			n = w.begin(rest)
		case lineHeader:
			n = w.header(rest)
		default:
			n = w.pass(rest)
		}
		rest = rest[n:]
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(b), nil
}

// begin takes bytes until it is certain whether the line is a header.
func (w *patchWriter) begin(b []byte) int {
	n := min(len(header)-len(w.line), len(b))
	if i := bytes.IndexByte(b[:n], '\n'); i >= 0 {
		n = i + 1
	}
	w.line = append(w.line, b[:n]...)
	switch {
	case string(w.line) == header:
		w.state = lineHeader
	case !strings.HasPrefix(header, string(w.line)):
		if w.line[len(w.line)-1] != '\n' {
			w.state = lineRest
		}
		w.keep(w.line)
		w.line = w.line[:0]
	}
	return n
}

// header takes bytes until the end of a header.
func (w *patchWriter) header(b []byte) int {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		w.line = append(w.line, b...)
		return len(b)
	}
	w.line = append(w.line, b[:i+1]...)
	w.headers++
	w.keep(quoteHeader(w.line))
	w.line, w.state = w.line[:0], lineStart
	return i + 1
}

// pass takes bytes up to a line that may be a header.
func (w *patchWriter) pass(b []byte) int {
	n := len(b)
	if i := bytes.Index(b, []byte{'\n', header[0]}); i >= 0 {
		n = i + 1
	}
	if b[n-1] == '\n' {
		w.state = lineStart
	}
	w.keep(b[:n])
	return n
}

// keep stores bytes of the diff.
func (w *patchWriter) keep(b []byte) {
	switch {
	case w.err != nil:
		return
	case w.n+int64(len(b)) > w.limit:
		w.err = errTooLarge
		return
	case w.f == nil && len(w.mem)+len(b) <= smallPatch:
		w.mem = append(w.mem, b...)
	case w.f == nil:
		if w.f, w.err = os.OpenFile(w.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); w.err != nil {
			return
		}
		_, err := w.f.Write(w.mem)
		w.mem = nil
		if w.err = err; err != nil {
			return
		}
		fallthrough
	default:
		_, w.err = w.f.Write(b)
	}
	w.n += int64(len(b))
}

// close ends the diff. What is held back then is a line without an end.
func (w *patchWriter) close() error {
	w.keep(w.line)
	w.line = nil
	if w.f == nil {
		return w.err
	}
	return errors.Join(w.err, w.f.Close())
}

// name returns the path of the file, or "" when the diff is in memory.
func (w *patchWriter) name() string {
	if w.f == nil {
		return ""
	}
	return w.path
}

func (w *patchWriter) remove() error {
	if w.f == nil {
		return nil
	}
	return removeIfThere(w.path)
}
