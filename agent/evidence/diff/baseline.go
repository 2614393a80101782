package diff

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// The identity and date of the baseline commit are the same for every run, so
// that equal files give equal commits. The date is 2000-01-01 00:00 UTC.
const (
	CommitName  = "Everdict"
	CommitEmail = "baseline@everdict.invalid"
	commitUnix  = 946684800
)

// Baseline is the recorded state of a directory. Its methods may be called from
// any goroutine; snapshots are taken one after the other.
type Baseline struct {
	cfg     Config
	git     git
	rules   rules
	entries []entry // sorted by path
	tree    gitobj.ID
	commit  gitobj.ID
	pack    *gitobj.Sealed
	omitted []Omission

	mu        sync.Mutex
	serial    int  // of the last diff
	installed bool // the store holds pack
}

// Take records the directory. Nothing may change it meanwhile. After an error
// nothing is left of Config.Store; the error is a *Error, or ctx's when that has ended.
func Take(ctx context.Context, cfg Config) (b *Baseline, err error) {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Store, err = filepath.Abs(cfg.Store); err != nil {
		return nil, fail(ctx, StageBaseline, err)
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fail(ctx, StageBaseline, err)
	}
	if rel, err := filepath.Rel(cfg.Dir, cfg.Store); err == nil && filepath.IsLocal(rel) {
		return nil, fail(ctx, StageBaseline, fmt.Errorf("the store %s lies in the directory %s", cfg.Store, cfg.Dir))
	}
	if _, err := os.Lstat(cfg.Store); !errors.Is(err, fs.ErrNotExist) {
		return nil, fail(ctx, StageBaseline, errors.Join(fmt.Errorf("the store %s exists already", cfg.Store), err))
	}
	b = &Baseline{cfg: cfg, git: git{program: cfg.Git, store: cfg.Store}}
	b.rules = rules{git: &b.git, dir: filepath.Join(cfg.Store, "rules")}
	if err := b.take(ctx); err != nil {
		return nil, errors.Join(fail(ctx, StageBaseline, err), os.RemoveAll(cfg.Store))
	}
	return b, nil
}

func (b *Baseline) take(ctx context.Context) error {
	root, err := b.cfg.open()
	if err != nil {
		return err
	}
	defer root.Close()
	found, err := walk(ctx, root, b.cfg.Limits)
	if err != nil {
		return err
	}
	b.entries, b.omitted = found.entries, found.omitted
	settle(b.entries)
	read := newReader(ctx, root, b.cfg.Limits)
	defer read.close()
	if err := b.ignore(ctx, read); err != nil {
		return err
	}
	pack := gitobj.NewPack(b.git.spill)
	if err := b.fill(read, pack); err != nil {
		pack.Abort()
		return err
	}
	b.pack, err = pack.Seal()
	return err
}

// ignore marks the files that are not part of the baseline.
func (b *Baseline) ignore(ctx context.Context, read *reader) error {
	var open []string
	for _, e := range b.entries {
		if b.cfg.Tracked == nil || !b.cfg.Tracked(e.path) {
			open = append(open, e.path)
		}
	}
	unread, err := b.rules.collect(read, b.entries)
	if err != nil {
		return err
	}
	ignored, err := b.rules.match(ctx, StageBaseline, open)
	if err != nil {
		return err
	}
	for i := range b.entries {
		// Rules that could not be read are never ignored themselves: fill lists them.
		b.entries[i].ignored = ignored[b.entries[i].path] && !unread[b.entries[i].path]
	}
	return nil
}

// fill hashes the files and puts the baseline's objects into the pack.
func (b *Baseline) fill(read *reader, pack *gitobj.Pack) error {
	var list []gitobj.Entry
	kept := b.entries[:0]
	for _, e := range b.entries {
		if !e.ignored {
			content, large, err := read.read(&e)
			if large {
				_, err = read.hash(&e)
				if errors.Is(err, errBudget) {
					err = nil // stays without a hash, known by its identity alone
				}
			}
			if err != nil {
				if ctxErr := read.ctx.Err(); ctxErr != nil {
					return ctxErr
				}
				// A file that the runner cannot read is not part of the baseline;
				// should the agent make it readable, the diff adds it.
				b.omitted = append(b.omitted, Omission{Path: e.path, Reason: Unreadable, Detail: cause(err)})
				continue
			}
			if !large {
				e.secret = b.cfg.Redact.Contains(content)
				if err := pack.Add(gitobj.Blob, e.id, content); err != nil {
					return err
				}
			}
			if !e.id.IsZero() {
				list = append(list, gitobj.Entry{Path: e.path, Mode: e.mode, ID: e.id})
			}
		}
		kept = append(kept, e)
	}
	b.entries = kept
	var err error
	if b.tree, err = gitobj.BuildTree(list, func(id gitobj.ID, content []byte) error {
		return pack.Add(gitobj.Tree, id, content)
	}); err != nil {
		return err
	}
	commit := gitobj.CommitContent(b.tree, CommitName, CommitEmail, commitUnix, "baseline")
	b.commit = gitobj.Name(gitobj.Commit, commit)
	return pack.Add(gitobj.Commit, b.commit, commit)
}

// Tree returns the id of the baseline's tree.
func (b *Baseline) Tree() string { return b.tree.String() }

// Commit returns the id of the baseline as a commit without parents. It depends
// on the files alone.
func (b *Baseline) Commit() string { return b.commit.String() }

// Omitted returns what is in the directory but not in the baseline, apart from
// ignored files.
func (b *Baseline) Omitted() []Omission { return append([]Omission(nil), b.omitted...) }

// Close removes the store, with the diffs of all snapshots.
func (b *Baseline) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return os.RemoveAll(b.cfg.Store)
}

// fail makes an *Error of err, unless it is one or the context has ended.
func fail(ctx context.Context, stage Stage, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	return &Error{Stage: stage, Err: err}
}
