package evidence

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/everdict/everdict/protocol"
)

const extension = ".ev"

// Config of a Store. Only Dir has no default.
type Config struct {
	Dir string
	// MaxOpen bounds the files that are open at a time; an attempt beyond it
	// costs an open per use. Default 256.
	MaxOpen int
	// MaxAttemptBytes bounds the evidence of one attempt. Default 4 GiB.
	MaxAttemptBytes int64
	// MaxChannels bounds the channels of one attempt. Default 256, as on the wire.
	MaxChannels int

	disk disk
}

// file is what the store needs of an open file.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Stat() (os.FileInfo, error)
}

// disk opens files and makes the names in a directory durable; tests put a failing
// one in its place.
type disk interface {
	open(path string, flag int) (file, error)
	syncDir(path string) error
}

type osDisk struct{}

func (osDisk) open(path string, flag int) (file, error) { return os.OpenFile(path, flag, 0o600) }

// syncDir does nothing on Windows, which has no such call and needs none.
func (osDisk) syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Store keeps the evidence of all runs below one directory. Its methods may be
// called from any goroutine. One process uses a directory at a time; the
// coordinator's lock on its data directory sees to that.
type Store struct {
	cfg Config

	mu       sync.Mutex
	attempts map[string]*state // those with handles, by path
	open     *list.List        // states with an open file, last used first
	closed   bool
}

var (
	// ErrSealed is returned for new bytes of a sealed attempt.
	ErrSealed = errors.New("evidence: attempt is sealed")
	// ErrClosed is returned after Close of the store or the handle.
	ErrClosed = errors.New("evidence: closed")
	// ErrRemoved is returned by handles of a run that was removed.
	ErrRemoved = errors.New("evidence: run was removed")
	// ErrNotFound is returned by readers of what was never written.
	ErrNotFound = errors.New("evidence: not found")
)

// NameError is a run or channel whose name cannot be one.
type NameError struct{ What, Name string }

// Error implements error.
func (e *NameError) Error() string {
	return fmt.Sprintf("evidence: %s %q is not a name of letters, digits, dots, dashes and underscores", e.What, protocol.Clip(e.Name, 80))
}

// HoleError refuses bytes that do not follow on what is stored.
type HoleError struct {
	Channel string
	// Offset was offered, Want is the next one that is taken.
	Offset, Want int64
}

// Error implements error.
func (e *HoleError) Error() string {
	return fmt.Sprintf("evidence: channel %s: bytes at %d, wanted from %d on", e.Channel, e.Offset, e.Want)
}

// ConflictError refuses bytes that differ from what is stored in the same place.
type ConflictError struct {
	Channel string
	Offset  int64 // where they begin to differ
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("evidence: %s differs from what is stored at %d", e.Channel, e.Offset)
}

// LimitError refuses what is over a limit.
type LimitError struct {
	Limit                string // "attempt bytes", "channels", "piece bytes"
	Configured, Measured int64
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf("evidence: %s: %d, limit %d", e.Limit, e.Measured, e.Configured)
}

// Open opens or creates a store.
func Open(cfg Config) (*Store, error) {
	cfg.MaxOpen = cmp.Or(cfg.MaxOpen, 256)
	cfg.MaxAttemptBytes = cmp.Or(cfg.MaxAttemptBytes, 4<<30)
	cfg.MaxChannels = cmp.Or(cfg.MaxChannels, 256)
	if cfg.disk == nil {
		cfg.disk = osDisk{}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("evidence: create: %w", err)
	}
	return &Store{cfg: cfg, attempts: map[string]*state{}, open: list.New()}, nil
}

// Close closes all files. Followers end with ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	states := make([]*state, 0, len(s.attempts))
	for _, st := range s.attempts {
		states = append(states, st)
	}
	s.mu.Unlock()
	var errs []error
	for _, st := range states {
		errs = append(errs, st.shut(ErrClosed))
	}
	return errors.Join(errs...)
}

// Attempt returns a handle of an attempt, which the caller closes. Nothing is
// created before the first Append.
func (s *Store) Attempt(run string, epoch int64) (*Attempt, error) {
	if !protocol.ValidRunName(run) {
		return nil, &NameError{"run", run}
	}
	if epoch < 0 {
		return nil, fmt.Errorf("evidence: epoch %d is negative", epoch)
	}
	path := s.path(run, epoch)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	st := s.attempts[path]
	if st == nil {
		st = &state{s: s, run: run, path: path}
		s.attempts[path] = st
	}
	st.refs++
	s.mu.Unlock()
	a := &Attempt{st: st}
	if err := st.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("evidence: open %s epoch %d: %w", run, epoch, err), a.Close())
	}
	return a, nil
}

// List returns the epochs of a run that have evidence, in order.
func (s *Store) List(run string) ([]int64, error) {
	if !protocol.ValidRunName(run) {
		return nil, &NameError{"run", run}
	}
	entries, err := os.ReadDir(s.shard(run))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("evidence: list %s: %w", run, err)
	}
	var epochs []int64
	for _, e := range entries {
		if r, epoch, ok := parseName(e.Name()); ok && r == run {
			epochs = append(epochs, epoch)
		}
	}
	slices.Sort(epochs)
	return epochs, nil
}

// Runs yields each run that has evidence, in no order, for retention.
func (s *Store) Runs() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		shards, err := os.ReadDir(s.cfg.Dir)
		if err != nil {
			yield("", fmt.Errorf("evidence: list: %w", err))
			return
		}
		for _, shard := range shards {
			entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, shard.Name()))
			if err != nil {
				yield("", fmt.Errorf("evidence: list: %w", err))
				return
			}
			seen := map[string]bool{}
			for _, e := range entries {
				run, _, ok := parseName(e.Name())
				if !ok || seen[run] {
					continue
				}
				seen[run] = true
				if !yield(run, nil) {
					return
				}
			}
		}
	}
}

// Remove deletes all evidence of a run. Handles of it return ErrRemoved.
// Removing a run that has none is no error.
func (s *Store) Remove(run string) error {
	if !protocol.ValidRunName(run) {
		return &NameError{"run", run}
	}
	var gone []*state
	s.mu.Lock()
	for path, st := range s.attempts {
		if st.run == run {
			// A handle asked for from now on is of a new attempt, not of this one.
			delete(s.attempts, path)
			gone = append(gone, st)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, st := range gone {
		errs = append(errs, st.shut(ErrRemoved))
	}
	epochs, err := s.List(run)
	errs = append(errs, err)
	for _, epoch := range epochs {
		if err := os.Remove(s.path(run, epoch)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("evidence: remove %s: %w", run, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) path(run string, epoch int64) string {
	return filepath.Join(s.shard(run), run+"."+strconv.FormatInt(epoch, 10)+extension)
}

// shard spreads runs over 4096 directories, so that a million runs leave some
// hundred names in each.
func (s *Store) shard(run string) string {
	h := fnv.New32a()
	h.Write([]byte(run))
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("%03x", h.Sum32()&0xfff))
}

func parseName(name string) (run string, epoch int64, ok bool) {
	name, ok = strings.CutSuffix(name, extension)
	i := strings.LastIndexByte(name, '.')
	if !ok || i < 0 {
		return "", 0, false
	}
	epoch, err := strconv.ParseInt(name[i+1:], 10, 64)
	return name[:i], epoch, err == nil && epoch >= 0
}

// release gives one handle of a state back.
func (s *Store) release(st *state) error {
	s.mu.Lock()
	st.refs--
	last := st.refs == 0
	if last && s.attempts[st.path] == st {
		delete(s.attempts, st.path)
	}
	s.mu.Unlock()
	if last {
		return st.shut(ErrClosed)
	}
	return nil
}

// used notes that st has an open file and was just used, and closes the file
// that was not used for longest when there are too many. The caller holds st.mu;
// the other states' locks are only tried, so that no two wait for each other.
func (s *Store) used(st *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.elem != nil {
		s.open.MoveToFront(st.elem)
		return
	}
	st.elem = s.open.PushFront(st)
	for e := s.open.Back(); e != nil && s.open.Len() > s.cfg.MaxOpen; {
		victim, prev := e.Value.(*state), e.Prev()
		if victim != st && victim.mu.TryLock() {
			victim.f.Close() // nothing is lost: every write has returned
			victim.f = nil
			s.open.Remove(e)
			victim.elem = nil
			victim.mu.Unlock()
		}
		e = prev
	}
}

func (s *Store) unused(st *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.elem != nil {
		s.open.Remove(st.elem)
		st.elem = nil
	}
}
