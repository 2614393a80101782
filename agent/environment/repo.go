package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/everdict/everdict/agent/evidence/diff"
	"github.com/everdict/everdict/agent/evidence/redact"
	"github.com/everdict/everdict/protocol"
)

// Repo is the environment of a directory with files and git around them.
type Repo struct{ cfg Config }

var _ Environment = (*Repo)(nil)

// NewRepo returns the environment of kind repo.
func NewRepo(c Config) *Repo {
	if c.Git == "" {
		c.Git = "git"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Repo{cfg: c}
}

// Kind returns "repo".
func (r *Repo) Kind() string { return protocol.EnvRepo }

// Prepare writes the source's files to the workspace, runs the setup there and
// records the baseline.
func (r *Repo) Prepare(ctx context.Context, a Attempt) (Prepared, error) {
	p := &preparedRepo{
		dir:     filepath.Join(a.Root, WorkDir),
		files:   a.Files,
		private: a.Private,
		redact:  a.Redact,
		logger:  r.cfg.Logger,
	}
	if p.private == "" {
		p.private = filepath.Join(a.Root, "private")
	}
	if a.Progress == nil {
		a.Progress = io.Discard
	}
	if err := r.check(a); err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, a, p); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		// The attempt may be over because its context is; what is left has to go all the same.
		if left := p.Cleanup(context.WithoutCancel(ctx)); left != nil {
			if e := (*Error)(nil); errors.As(err, &e) {
				e.Leftover = left
			} else {
				err = errors.Join(err, left)
			}
		}
		return nil, err
	}
	return p, nil
}

// check refuses before anything is written.
func (r *Repo) check(a Attempt) error {
	bad := func(err error, format string, args ...any) error {
		return configError(protocol.CodeBadRequest, protocol.ReasonSetup, err, format, args...)
	}
	s := a.Spec.Source
	switch {
	case s == nil:
		return bad(nil, "the repo environment has no source")
	case s.Files != nil:
		if err := ValidateFiles(s.Files); err != nil {
			return bad(err, "the source's files are refused: %v", err)
		}
	case s.Git != "":
		if err := checkGitSource(s.Git, s.Ref); err != nil {
			return bad(err, "the source is refused: %v", err)
		}
	case s.Path != "":
		if !filepath.IsAbs(s.Path) {
			return bad(nil, "the source's path %q is not absolute", protocol.Clip(s.Path, 200))
		}
	default:
		return bad(nil, "the repo environment's source is empty: it needs files, git or path")
	}
	if len(a.Spec.Setup) > 0 && a.Exec == nil {
		return bad(nil, "this runner cannot run the environment's setup")
	}
	if _, err := exec.LookPath(r.cfg.Git); err != nil {
		return noGit(errors.Join(diff.ErrNoGit, err))
	}
	return nil
}

func (r *Repo) prepare(ctx context.Context, a Attempt, p *preparedRepo) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := a.Files.Mkdir(WorkDir, 0o777); err != nil {
		return hostError("make the workspace", err)
	}
	p.work = true
	// The private directory is made when something has to lie in it.
	if _, err := os.Lstat(p.private); !errors.Is(err, fs.ErrNotExist) {
		return hostError("make the private directory", errors.Join(fs.ErrExist, err))
	}
	p.store = true

	tracked := diff.TrackAll
	s := a.Spec.Source
	var err error
	switch {
	case s.Files != nil:
		if err := writeFiles(p.dir, s.Files); err != nil {
			return hostError("write the source's files", err)
		}
	case s.Git != "":
		err = r.fetch(ctx, a, p)
	default:
		// The source's own list of files is not known: its ignore rules decide.
		tracked = nil
		err = copySource(ctx, p.dir, s.Path, find(r.cfg.Hidden), a.Progress)
	}
	if err != nil {
		return err
	}
	if len(a.Spec.Setup) > 0 {
		if tracked != nil {
			if tracked, err = present(p.dir); err != nil {
				return hostError("list the workspace", err)
			}
		}
		if err := r.setup(ctx, a, p, tracked); err != nil {
			return err
		}
	}
	p.baseline, err = r.record(ctx, p, "baseline", tracked)
	return err
}

// record takes a baseline of the workspace and makes it the workspace's only commit.
func (r *Repo) record(ctx context.Context, p *preparedRepo, store string, tracked func(string) bool) (*diff.Baseline, error) {
	b, err := diff.Take(ctx, diff.Config{
		Dir: p.dir, Parent: p.files, Store: filepath.Join(p.private, store), Tracked: tracked, Limits: r.cfg.Limits, Git: r.cfg.Git, Redact: p.redact,
	})
	if err != nil {
		return nil, baselineError(ctx, err)
	}
	if err := b.WriteRepository(ctx); err != nil {
		return nil, baselineError(ctx, err)
	}
	return b, nil
}

// setup runs the setup commands. They see a repository, because builds ask git
// for a version; afterwards it gives way to a new one, with the files that setup
// made in its commit and nothing of what setup did to the first one.
func (r *Repo) setup(ctx context.Context, a Attempt, p *preparedRepo, tracked func(string) bool) error {
	first, err := r.record(ctx, p, "before-setup", tracked)
	if err != nil {
		return err
	}
	for i, line := range a.Spec.Setup {
		out := &outputTail{}
		code, err := a.Exec(ctx, line, p.dir, io.MultiWriter(a.Progress, out))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && code == 0 {
			continue
		}
		e := configError(protocol.CodeHarnessInstallFailed, protocol.ReasonSetup, err,
			"setup command %d of %d (%s) ended with exit code %d", i+1, len(a.Spec.Setup), protocol.Clip(line, 200), code)
		e.Failure.LogTail = out.String()
		if late := (*LateError)(nil); errors.As(err, &late) {
			e.Failure.Message = fmt.Sprintf("setup command %d of %d (%s): %v", i+1, len(a.Spec.Setup), protocol.Clip(line, 200), late)
			late.on(&e.Failure)
		} else if err != nil {
			e.Failure.Class, e.Failure.Code = protocol.ClassInfra, protocol.CodeComputeExecFailed
			e.Failure.Message = fmt.Sprintf("setup command %d of %d (%s) could not be run: %v", i+1, len(a.Spec.Setup), protocol.Clip(line, 200), err)
			e.Failure.Retryable = true
		} else {
			e.Failure.ExitCode = &code
		}
		return e
	}
	if err := first.Close(); err != nil {
		return hostError("remove the repository that setup saw", err)
	}
	work, err := p.files.OpenRoot(WorkDir)
	if err == nil {
		err = removeIn(ctx, work, ".git")
		work.Close()
	}
	if err != nil {
		return hostError("remove the repository that setup saw", err)
	}
	return nil
}

// present lists the files of a directory that nobody has changed yet.
func present(dir string) (func(string) bool, error) {
	files := make(map[string]struct{})
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[path] = struct{}{}
		}
		return err
	})
	return func(path string) bool { _, ok := files[path]; return ok }, err
}

// outputTail keeps the end of what a command printed.
type outputTail struct{ b []byte }

// maxTail is how much of setup's output a failure carries, in bytes.
const maxTail = 4000

func (t *outputTail) Write(b []byte) (int, error) {
	if t.b = append(t.b, b...); len(t.b) > 4*maxTail {
		t.b = append(t.b[:0], t.b[len(t.b)-maxTail:]...)
	}
	return len(b), nil
}

func (t *outputTail) String() string {
	b := t.b[max(0, len(t.b)-maxTail):]
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}

// preparedRepo is a workspace with its baseline.
type preparedRepo struct {
	dir, private string
	files        *os.Root // the directory of dir
	work, store  bool     // what there is to remove: dir, private
	baseline     *diff.Baseline
	logger       *slog.Logger
	redact       *redact.Redactor
}

func (p *preparedRepo) Dir() string      { return p.dir }
func (p *preparedRepo) Baseline() string { return p.baseline.Commit() }

// maxListed is how many paths each list of a snapshot's document names, and
// maxListedBytes how long they are together, as JSON: an agent can change a million
// files, of long names, and a record has to stay small. The diff has them all.
const (
	maxListed      = 5000
	maxListedBytes = 1 << 20
)

// listed is how many of n paths a list names.
func listed(n int, path func(int) string) int {
	left := maxListedBytes
	for i := range min(n, maxListed) {
		doc, err := json.Marshal(path(i))
		if left -= len(doc); err != nil || left < 0 {
			return i
		}
	}
	return min(n, maxListed)
}

// reasonCut is the reason of the entry that ends a list which was cut.
const reasonCut = "list_cut"

func (p *preparedRepo) Snapshot(ctx context.Context) (*Snapshot, error) {
	d, err := p.baseline.Snapshot(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, snapshotError(err)
	}
	doc := protocol.Snapshot{
		Kind: protocol.EnvRepo, DiffBytes: d.Size, HeadSHA: readHead(p.files), Baseline: p.Baseline(), Redacted: d.Redacted,
	}
	changed := listed(len(d.Changed), func(i int) string { return diff.Quote(d.Changed[i].Path) })
	omitted := listed(len(d.Omitted), func(i int) string { return diff.Quote(d.Omitted[i].Path) })
	doc.ChangedFiles = make([]string, 0, changed)
	for _, c := range d.Changed[:changed] {
		doc.ChangedFiles = append(doc.ChangedFiles, diff.Quote(c.Path))
	}
	for _, o := range d.Omitted[:omitted] {
		doc.Omitted = append(doc.Omitted, protocol.OmittedFile{
			Path: diff.Quote(o.Path), Reason: string(o.Reason), Bytes: o.Bytes, SHA256: o.SHA256,
		})
	}
	for _, list := range []struct {
		name string
		more int
	}{{"changed", len(d.Changed) - changed}, {"omitted", len(d.Omitted) - omitted}} {
		if list.more > 0 {
			doc.Omitted = append(doc.Omitted, protocol.OmittedFile{Path: fmt.Sprintf("(%d more %s)", list.more, list.name), Reason: reasonCut})
		}
	}
	return &Snapshot{Document: doc, Diff: d}, nil
}

func (p *preparedRepo) Cleanup(ctx context.Context) error {
	var errs []error
	remove := func(there *bool, with func() error) {
		if *there {
			err := with()
			*there = err != nil
			errs = append(errs, err)
		}
	}
	remove(&p.work, func() error { return removeIn(ctx, p.files, WorkDir) })
	remove(&p.store, func() error { return RemoveTree(ctx, p.private) })
	return errors.Join(errs...)
}
