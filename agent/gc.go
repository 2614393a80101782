package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/agent/sandbox"
)

// Directories of a runner, below its state and its work directory.
const (
	outboxDir  = "outbox"
	privateDir = "private"
	workDir    = "work"
	askDir     = "ask"
	workLock   = ".lock"
)

// WorkDirInUseError is a work directory in which another runner works. Each would remove the other's workspaces.
type WorkDirInUseError struct{ Dir string }

// Error implements error.
func (e *WorkDirInUseError) Error() string {
	return fmt.Sprintf("agent: the work directory %s is in use by another runner: give this one another", e.Dir)
}

// lockWorkDir holds a work directory that exists.
func lockWorkDir(dir string) (release func() error, err error) {
	lock := flock.New(filepath.Join(dir, workLock))
	ok, err := lock.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("agent: lock the work directory: %w", err)
	case !ok:
		return nil, &WorkDirInUseError{dir}
	}
	return lock.Unlock, nil
}

// GarbageConfig says where Collect looks. All fields but DryRun are required.
type GarbageConfig struct {
	// StateDir and WorkDir are those of the runner whose leavings are looked for.
	StateDir, WorkDir string
	// Drivers are asked to end what dead runners left, whatever their directories were.
	Drivers []sandbox.Driver
	// DryRun only looks.
	DryRun bool
}

// Kinds of Garbage besides those of sandbox.Swept.
const (
	GarbageSandbox   = "sandbox"   // of a dry run, which does not tell its parts apart
	GarbageWorkspace = "workspace" // the directory of an attempt
	GarbagePrivate   = "private"   // what a runner kept of an attempt where no job sees it
	GarbageSocket    = "socket"    // through which a job asked a person
)

// Garbage is something that a dead runner left.
type Garbage struct {
	Kind string `json:"kind"`
	// Driver is the sandbox's technology, of sandboxes only.
	Driver  string `json:"driver,omitempty"`
	Attempt string `json:"attempt,omitempty"`
	Path    string `json:"path,omitempty"`
	// Bytes is the size of the files, of directories only.
	Bytes int64 `json:"bytes,omitempty"`
	// Processes were alive in a sandbox that was ended.
	Processes int `json:"processes,omitempty"`
	// Error says why it is still there.
	Error string `json:"error,omitempty"`
}

// GarbageReport is what Collect found, and removed unless DryRun.
type GarbageReport struct {
	DryRun bool `json:"dryRun"`
	// InUse says, when it is not empty, that a runner works with the directories, so that what is in them was left alone.
	InUse string    `json:"inUse,omitempty"`
	Items []Garbage `json:"items"`
}

// Collect removes what runners left that did not live to do it themselves: sandboxes that nobody holds, and in StateDir
// and WorkDir the workspaces and private directories of attempts. It never touches what a living runner works with: the
// lock of the outbox tells, which Collect holds itself meanwhile, so that no runner starts in between. Results that wait
// in the outbox for a coordinator are no garbage.
//
// The error joins what could not be removed; the report has it item by item.
func Collect(ctx context.Context, cfg GarbageConfig) (report GarbageReport, err error) {
	report = GarbageReport{DryRun: cfg.DryRun, Items: []Garbage{}}
	release, err := outbox.Lock(filepath.Join(cfg.StateDir, outboxDir))
	if errors.Is(err, outbox.ErrInUse) {
		report.InUse = "a runner works with " + cfg.StateDir
	} else if err != nil {
		return report, err
	} else {
		defer func() { err = errors.Join(err, release()) }()
	}
	var errs []error
	for _, d := range cfg.Drivers {
		items, err := sweep(ctx, d, kept(cfg, report.InUse != ""), cfg.DryRun)
		report.Items = append(report.Items, items...)
		errs = append(errs, err)
	}
	if report.InUse == "" {
		errs = append(errs, collectFiles(ctx, cfg, &report))
	}
	return report, errors.Join(errs...)
}

// collectFiles removes what lies in the directories, which no runner of StateDir uses.
func collectFiles(ctx context.Context, cfg GarbageConfig, report *GarbageReport) (err error) {
	places := []struct{ kind, dir string }{{GarbagePrivate, filepath.Join(cfg.StateDir, privateDir)}}
	// After the sweep: a job that a dead runner left could hold the lock.
	release, err := lockWorkDir(cfg.WorkDir)
	var inUse *WorkDirInUseError
	switch {
	case errors.As(err, &inUse):
		report.InUse = "a runner works with " + cfg.WorkDir
	case errors.Is(err, fs.ErrNotExist): // nothing was ever put there
	case err != nil:
		return err
	default:
		defer func() { err = errors.Join(err, release()) }()
		places = append(places, struct{ kind, dir string }{GarbageWorkspace, filepath.Join(cfg.WorkDir, workDir)},
			struct{ kind, dir string }{GarbageSocket, filepath.Join(cfg.WorkDir, askDir)})
	}
	var errs []error
	for _, p := range places {
		items, err := empty(ctx, p.kind, p.dir, cfg.DryRun)
		report.Items = append(report.Items, items...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// kept tells the attempts of a living runner: they are in its outbox before they have a sandbox.
func kept(cfg GarbageConfig, inUse bool) func(attempt string) bool {
	return func(attempt string) bool {
		if !inUse || !sandbox.ValidAttempt(attempt) {
			return false
		}
		_, err := os.Lstat(filepath.Join(cfg.StateDir, outboxDir, attempt))
		return err == nil
	}
}

// sweep has a driver end what nobody holds, or only name it.
func sweep(ctx context.Context, d sandbox.Driver, keep func(string) bool, dryRun bool) ([]Garbage, error) {
	var items []Garbage
	if dryRun {
		var attempts []string
		_, err := d.Sweep(ctx, func(attempt string) bool {
			if !keep(attempt) && !slices.Contains(attempts, attempt) {
				attempts = append(attempts, attempt)
			}
			return true
		})
		slices.Sort(attempts)
		for _, a := range attempts {
			items = append(items, Garbage{Kind: GarbageSandbox, Driver: d.Name(), Attempt: a})
		}
		return items, wrap(d, err)
	}
	swept, err := d.Sweep(ctx, keep)
	for _, s := range swept {
		items = append(items, Garbage{Kind: s.Kind, Driver: d.Name(), Attempt: s.Attempt, Processes: s.Processes})
	}
	return items, wrap(d, err)
}

func wrap(d sandbox.Driver, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sweep %s: %w", d.Name(), err)
}

// empty removes what lies in a directory, or only lists it.
func empty(ctx context.Context, kind, dir string, dryRun bool) ([]Garbage, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var items []Garbage
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		item := Garbage{Kind: kind, Path: filepath.Join(dir, e.Name()), Bytes: treeBytes(filepath.Join(dir, e.Name()))}
		if kind != GarbageSocket {
			item.Attempt = e.Name()
		}
		if !dryRun {
			if err := environment.RemoveTree(ctx, item.Path); err != nil {
				item.Error = err.Error()
				errs = append(errs, err)
			}
		}
		items = append(items, item)
	}
	return items, errors.Join(errs...)
}

// treeBytes is the size of the regular files below path. Links are not followed; what cannot be read counts nothing.
func treeBytes(path string) int64 {
	var n int64
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}
