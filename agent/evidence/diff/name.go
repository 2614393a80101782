package diff

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Quote returns a path as text: unchanged when it is UTF-8 without control
// characters, quotes and backslashes, else in the C-style quotes that git uses.
func Quote(path string) string {
	if utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '"' || r == '\\' }) {
		return path
	}
	return cQuote(path)
}

// quoteName is Quote as "git apply" wants it in a header: see quoteHeader.
func quoteName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= 0x20 || r >= 0x7f || r == '"' || r == '\\' }) {
		return cQuote(name)
	}
	return name
}

func cQuote(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		switch {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// IsGitDir reports whether a file or directory of this name is, on any file
// system, a repository's own ".git": ".GIT" where case folds, ".git." and
// "git~1" on NTFS, ".g<zero width joiner>it" on HFS+. Git writes none of them.
func IsGitDir(name string) bool {
	lower := strings.ToLower(name)
	if head, ok := strings.CutPrefix(lower, ".git"); ok && ntfsEnd(head) {
		return true
	}
	if head, ok := strings.CutPrefix(lower, "git~1"); ok && ntfsEnd(head) {
		return true
	}
	return hfsFold(name) == ".git"
}

// ntfsEnd reports whether NTFS drops rest from the end of a name: spaces and
// dots, up to the end, a backslash or the colon of a stream's name.
func ntfsEnd(rest string) bool {
	rest = strings.TrimLeft(rest, " .")
	return rest == "" || rest[0] == '\\' || rest[0] == ':'
}

// hfsFold folds ASCII case and drops the code points that HFS+ ignores in names.
func hfsFold(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

// isModules reports whether a symlink of this name is refused by git as one
// that could stand for .gitmodules. It is wider than git's own rule in the
// abbreviated names of NTFS (gitmod~1, gi7eba~1).
func isModules(name string) bool {
	lower := strings.ToLower(name)
	if rest, ok := strings.CutPrefix(lower, ".gitmodules"); ok && ntfsEnd(rest) {
		return true
	}
	return strings.HasPrefix(lower, "gitmod~") || strings.HasPrefix(lower, "gi7e") && strings.Contains(lower, "~") ||
		hfsFold(name) == ".gitmodules"
}

// portable reports whether git can carry path, none of whose directories is a
// ".git". Git refuses symlinks below a directory called .gitmodules too.
func portable(path string, symlink bool) bool {
	if IsGitDir(path[strings.LastIndexByte(path, '/')+1:]) {
		return false
	}
	if symlink {
		for name := range strings.SplitSeq(path, "/") {
			if isModules(name) {
				return false
			}
		}
	}
	return true
}
