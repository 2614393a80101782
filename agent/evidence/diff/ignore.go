package diff

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// rules are the .gitignore files of the baseline, copied into a directory of the
// store that holds nothing else. Git itself applies them there: its matching has
// more corners than a second implementation would get right, and the paths that it
// is asked about need not exist.
type rules struct {
	git *git
	dir string
	any bool
}

// maxRules is the largest .gitignore that counts.
const maxRules = 1 << 20

// collect copies the ignore rules of a tree. It returns the files of rules that
// cannot be read, which therefore do not count.
func (r *rules) collect(read *reader, entries []entry) (unread map[string]bool, err error) {
	unread = make(map[string]bool)
	for i := range entries {
		e := entries[i]
		if e.path != ".gitignore" && !strings.HasSuffix(e.path, "/.gitignore") || e.mode == gitobj.ModeSymlink || e.size > maxRules {
			continue // git does not follow a .gitignore that is a symlink either
		}
		content, large, err := read.read(&e)
		if err != nil {
			if ctxErr := read.ctx.Err(); ctxErr != nil {
				return nil, ctxErr
			}
			unread[e.path] = true
			continue
		}
		if large || len(content) == 0 {
			continue
		}
		if err := r.git.ensure(); err != nil {
			return nil, err
		}
		file := filepath.Join(r.dir, filepath.FromSlash(e.path))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, err
		}
		r.any = true
	}
	return unread, nil
}

// match returns which of paths are ignored.
func (r *rules) match(ctx context.Context, stage Stage, paths []string) (map[string]bool, error) {
	if !r.any || len(paths) == 0 {
		return nil, nil
	}
	var in, out bytes.Buffer
	for _, p := range paths {
		in.WriteString(here) // a leading colon would be pathspec magic
		in.WriteString(p)
		in.WriteByte(0)
	}
	env := []string{"GIT_WORK_TREE=" + r.dir}
	args := []string{"check-ignore", "--no-index", "--stdin", "-z"}
	if err := r.git.run(ctx, stage, &in, &out, env, args, 1); err != nil {
		return nil, err
	}
	return parseIgnored(out.String()), nil
}

const here = "./"

// parseIgnored reads the NUL-terminated paths that check-ignore prints.
func parseIgnored(out string) map[string]bool {
	ignored := make(map[string]bool)
	for p := range strings.SplitSeq(out, "\x00") {
		if p, ok := strings.CutPrefix(p, here); ok {
			ignored[p] = true
		}
	}
	return ignored
}

// collapse makes one omission of each topmost directory below which every file
// is ignored. present are the directories that hold a file that is not.
func collapse(files []Omission, present map[string]bool) []Omission {
	var out []Omission
	at := make(map[string]int)
	for _, f := range files {
		top := ""
		for i := range len(f.Path) {
			if f.Path[i] == '/' && !present[f.Path[:i]] {
				top = f.Path[:i+1]
				break
			}
		}
		if top == "" {
			out = append(out, f)
			continue
		}
		k, ok := at[top]
		if !ok {
			k = len(out)
			at[top] = k
			out = append(out, Omission{Path: top, Reason: Ignored, Kind: f.Kind})
		}
		if out[k].Kind != f.Kind {
			out[k].Kind = Modified
		}
		out[k].Files++
		out[k].Bytes += f.Bytes
	}
	return out
}

// holders adds the directories above path to set.
func holders(set map[string]bool, path string) {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '/' {
			if set[path[:i]] {
				return
			}
			set[path[:i]] = true
		}
	}
}
