// Package diff records what an agent changed: a Baseline of a directory, taken
// before the agent starts, and Snapshots, each a diff of a later state of the
// same directory that re-applies byte for byte with "git apply" (promise P10).
//
// At snapshot time the directory is hostile: the agent has had it, with its
// .git, its configuration, hooks, attributes and ignore rules. So git never
// looks at it. The package walks the directory itself, never through a symlink,
// compares it with its own record of the baseline, puts changed content byte for
// byte into a private object store outside of the directory, and lets git
// compare two trees inside that store, with an empty configuration. When nothing
// has changed no git process runs.
//
// What the diff cannot carry is named in Snapshot.Omitted, never left out
// silently; a failure of git is an *Error, never an empty diff (F29, F31).
//
// # Ignored files
//
// The baseline holds every file that the source of the workspace named (Config.Tracked)
// and every other file that the baseline's own .gitignore files do not ignore.
// Files that appear later are left out of the diff when those same rules ignore
// them, as anybody who reads a diff expects of node_modules or build output; they
// are listed in Omitted as one entry for each ignored directory. The rules are
// those of the baseline: an agent that edits .gitignore hides nothing. Files that
// were ignored at the baseline, such as dependencies that setup installed, are
// watched by their identity and time stamps, and a change to them is listed
// in Omitted too.
//
// # Secrets
//
// Secrets are taken out of a file's content before git sees it (Config.Redact),
// because a diff of binary files is compressed and nothing can be found in it
// afterwards. So the diff is one of the masked files, applies like any other, and Tree
// is the tree that it gives. Of a baseline file that holds a secret no line may
// stand in the diff: such a file is deleted by its hash and added again. A binary
// file that holds a secret would be of no use without it, and a name cannot be masked in
// a tree: these are in Omitted.
package diff

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/everdict/everdict/agent/evidence/redact"
)

// Limits bound what a baseline and its snapshots read and carry. A zero field
// takes its default, which stands beside it.
type Limits struct {
	// FileBytes is the largest file whose content a diff carries: 10 MiB. Files
	// that are larger after the change are in Omitted with size and hash.
	FileBytes int64
	// DiffBytes is the largest diff: 100 MiB. Where it would grow larger, the
	// largest changes are in Omitted instead.
	DiffBytes int64
	// HashBytes is how much of larger files, and of those beyond what a diff is made
	// of, one snapshot reads for their hashes: 4 GiB. A sparse file has any size; past
	// the limit Omitted has no hash.
	HashBytes int64
	// Entries is how many files, directories and other things the directory may
	// hold: 1,000,000. More are a *LimitError: memory grows with them.
	Entries int
	// PathBytes is how long their paths may be together: 256 MiB, which is 268
	// bytes each for a million. More are a *LimitError: memory grows with them, too.
	PathBytes int64
	// Depth is how deep directories may nest: 200, one open directory each.
	// What lies deeper is in Omitted.
	Depth int
}

func (l Limits) withDefaults() Limits {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.FileBytes, 10<<20)
	set(&l.DiffBytes, 100<<20)
	set(&l.HashBytes, 4<<30)
	set(&l.PathBytes, 256<<20)
	if l.Entries == 0 {
		l.Entries = 1_000_000
	}
	if l.Depth == 0 {
		l.Depth = 200
	}
	return l
}

// Config says what to record and where.
type Config struct {
	// Dir is the directory to record. It may not be a symlink.
	Dir string
	// Parent is the directory that Dir lies in, where whoever has Dir may have put
	// something else in Parent's place since it was opened; nil finds Dir by its path.
	Parent *os.Root
	// Store is a directory for the private object store and the diffs. It must
	// not exist; it is created when it is needed. It must not lie inside of Dir nor be
	// reachable from the sandbox.
	Store string
	// Tracked reports whether a slash-separated path belongs to the baseline
	// although an ignore rule matches it. Nil tracks nothing beyond the rules;
	// TrackAll makes every present file part of the baseline.
	Tracked func(path string) bool
	Limits  Limits
	// Redact masks secrets; nil masks nothing.
	Redact *redact.Redactor
	// Git is the git program; empty looks up "git" in PATH when it is first needed.
	Git string
}

// TrackAll is a Config.Tracked for a directory whose source named every file.
func TrackAll(string) bool { return true }

// Snapshot is a state of the directory as a difference to its baseline.
type Snapshot struct {
	// BaselineTree and Tree are the ids of the two whole trees. Where Omitted
	// names no content, applying the diff to BaselineTree gives Tree.
	BaselineTree, Tree string
	// Changed are the paths in the diff, sorted by their bytes.
	Changed []Change
	// Omitted is what the diff does not carry, sorted by path.
	Omitted []Omission
	// Size is the length of the diff in bytes.
	Size int64
	// Redacted is true when a change is masked in the diff, or in Omitted,
	// because of a secret.
	Redacted bool

	patch []byte // the diff while it is small, else
	file  string // where it is
}

// Open returns the diff, for "git apply". It can be read until the Baseline is
// closed. "git apply --cached" and "--index" restore the bytes whatever attributes the
// tree has; plain "git apply" converts line endings where .gitattributes ask for it.
// The deletion of a file over the limit comes without its content: such a diff
// cannot be reversed ("git apply -R").
func (s *Snapshot) Open() (io.ReadCloser, error) {
	if s.file == "" {
		return io.NopCloser(bytes.NewReader(s.patch)), nil
	}
	return os.Open(s.file)
}

// Discard removes the diff, for snapshots that are taken while the agent runs.
func (s *Snapshot) Discard() error {
	if s.file == "" {
		return nil
	}
	return removeIfThere(s.file)
}

// Kind is how a path changed.
type Kind string

// Kinds of changes.
const (
	Added    Kind = "added"
	Modified Kind = "modified" // content, mode or type
	Deleted  Kind = "deleted"
)

// Change is a path in the diff.
type Change struct {
	// Path is slash-separated and holds the bytes of the file system, which may
	// not be UTF-8; Quote makes text of it.
	Path string
	Kind Kind
}

// Reason is why something is not in the diff.
type Reason string

// Reasons.
const (
	// OverLimit is a file that is larger than Limits.FileBytes after the change,
	// or whose change would have made the diff larger than Limits.DiffBytes.
	OverLimit Reason = "over_limit"
	// Special is a named pipe, socket or device. Where a file stood at its path
	// the diff deletes that file.
	Special Reason = "special"
	// Unreadable is a file or directory that the runner may not read. What the
	// baseline had at or below its path is not in the diff.
	Unreadable Reason = "unreadable"
	// NestedGit is a ".git" below the top directory. The files around it are in
	// the diff, as plain files.
	NestedGit Reason = "nested_git"
	// Unportable is a name that git refuses to write because some file system
	// takes it for ".git" ("git~1"), or a symlink called .gitmodules.
	Unportable Reason = "unportable_name"
	// TooDeep is a directory nested deeper than Limits.Depth, or a path longer
	// than 4,000 bytes, which git cannot write.
	TooDeep Reason = "too_deep"
	// Ignored are files that the baseline's ignore rules match.
	Ignored Reason = "ignored"
	// Secret is a change of a path whose name holds a secret, which Path shows
	// masked, or of a binary file whose content does. Detail says which.
	Secret Reason = "secret"
)

// Omission is something that the diff does not carry.
type Omission struct {
	// Path is as in Change; a directory that is omitted as a whole ends in "/".
	Path   string
	Reason Reason
	// Detail says more, for people: "named pipe", "permission denied". It may be empty.
	Detail string
	// Kind is how a file of reason OverLimit, Ignored or Secret changed; empty for
	// the rest.
	Kind Kind
	// Files is the number of files below a directory; 0 for a single thing.
	Files int
	// Bytes is the size of the file, or of the files below the directory, after
	// the change; of a deleted file its size at the baseline.
	Bytes int64
	// SHA256 is the hash of the content after the change in hexadecimal; empty
	// when it was not read.
	SHA256 string
}

// Stage is what failed.
type Stage string

// Stages of an Error.
const (
	StageBaseline Stage = "baseline"
	StageSnapshot Stage = "snapshot"
)

// Error is a baseline or snapshot that could not be taken. There is never a
// result beside it.
type Error struct {
	Stage Stage
	// Stderr is the end of what git printed, if git failed.
	Stderr string
	Err    error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Stderr != "" {
		return fmt.Sprintf("diff: take the %s: %v: %s", e.Stage, e.Err, e.Stderr)
	}
	return fmt.Sprintf("diff: take the %s: %v", e.Stage, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Values of LimitError.Limit.
const (
	LimitEntries   = "entries"
	LimitPathBytes = "pathBytes"
)

// LimitError is a directory that exceeds a limit for which there is no partial
// answer.
type LimitError struct {
	Limit                string // LimitEntries or LimitPathBytes
	Configured, Measured int64
}

// Error implements error.
func (e *LimitError) Error() string {
	what := e.Limit
	if what == LimitPathBytes {
		what = "bytes of paths"
	}
	return fmt.Sprintf("more than %d %s in the directory (limit %d)", e.Measured-1, what, e.Configured)
}
