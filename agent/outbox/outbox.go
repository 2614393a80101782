package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Names inside the directory.
const (
	attemptFile = "attempt.json"
	resultFile  = "result.json"
	lockFile    = ".lock"
	rejectedDir = ".rejected"
	reservePre  = ".reserve-"
	donePre     = ".done-"
	tempPre     = ".tmp-"
	scratchPre  = ".scratch-"

	sendParallel = 8
	maxChunk     = 64 << 10
)

// Config of an Outbox. Only Dir has no default.
type Config struct {
	Dir string
	// MaxBytes is how much unacknowledged evidence may lie in the outbox before
	// Create refuses. Default 4 GiB: two days of ordinary runs while offline.
	MaxBytes int64
	// ReserveBytes is preallocated per attempt, so that its result fits on a
	// full disk. Default 256 KiB, some hundred times a usual result.
	ReserveBytes int64
	// RejectedBytes bounds what rejected attempts keep on disk; the oldest go
	// first. The newest stays, however large it is. Default 64 MiB.
	RejectedBytes int64
	// ChunkBytes is the largest piece that is sent at once. Default 32 KiB, at
	// most 64 KiB.
	ChunkBytes int
	// RetryMin and RetryMax bound the backoff of an attempt whose stream failed
	// while the session lasts. Defaults 250 ms and 15 s.
	RetryMin, RetryMax time.Duration
	// CallTimeout bounds each call of a Sink or Stream, so that a coordinator
	// that never answers for one attempt holds up that one only. Default 90 s,
	// above the link's own 60 s.
	CallTimeout time.Duration
	// Logger receives what nobody else is told; nil discards.
	Logger *slog.Logger

	disk disk
}

func (c Config) withDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 4<<30)
	c.ReserveBytes = cmp.Or(c.ReserveBytes, 256<<10)
	c.RejectedBytes = cmp.Or(c.RejectedBytes, 64<<20)
	c.ChunkBytes = min(cmp.Or(c.ChunkBytes, 32<<10), maxChunk)
	c.RetryMin = cmp.Or(c.RetryMin, 250*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 15*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 90*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.disk == nil {
		c.disk = osDisk{}
	}
	return c
}

// Outbox is the spool directory of one runner. Its methods may be called from
// any goroutine.
type Outbox struct {
	cfg  Config
	lock *flock.Flock

	mu         sync.Mutex
	spools     map[string]*Spool // by dirName
	unfinished []*Spool          // left by a crashed runner
	reserves   []string          // free preallocated files
	nextFile   int               // numbers reserves
	nextSpool  int
	changed    chan struct{} // closed and replaced when spools come, finish or go
	shipping   bool
	closed     bool
}

// Open opens the directory, creates it when it is missing, and takes up what an
// earlier runner left: finished attempts are sent by the next Ship, unfinished
// ones are returned by Unfinished. It returns ErrInUse while another process
// holds the directory.
func Open(cfg Config) (*Outbox, error) {
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(filepath.Join(cfg.Dir, rejectedDir), 0o700); err != nil {
		return nil, fmt.Errorf("outbox: create: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	o := &Outbox{cfg: cfg, lock: lock, spools: map[string]*Spool{}, changed: make(chan struct{})}
	if err := o.recover(); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return o, nil
}

// recover reads the directory. What cannot be understood is moved aside, never
// deleted and never in the way.
func (o *Outbox) recover() error {
	entries, err := os.ReadDir(o.cfg.Dir)
	if err != nil {
		return fmt.Errorf("outbox: list: %w", err)
	}
	for _, e := range entries {
		name, path := e.Name(), filepath.Join(o.cfg.Dir, e.Name())
		switch {
		case strings.HasPrefix(name, donePre), strings.HasPrefix(name, tempPre), strings.HasPrefix(name, reservePre):
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("outbox: clean up: %w", err)
			}
		case !e.IsDir() || strings.HasPrefix(name, "."):
		default:
			s, err := o.load(name)
			if err != nil {
				o.cfg.Logger.Error("outbox: attempt is unreadable, moved aside", "dir", name, "error", err)
				if err := o.moveRejected(name); err != nil {
					return err
				}
				continue
			}
			o.spools[name] = s
			if !s.finished {
				o.unfinished = append(o.unfinished, s)
			}
		}
	}
	return nil
}

// Unfinished returns the attempts without a result that were found by Open. Their
// processes are gone with the runner that started them: the caller finishes each
// with a result that says so, or abandons it. Their evidence is shipped meanwhile.
func (o *Outbox) Unfinished() []*Spool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.unfinished)
}

// Finished returns the attempts whose results wait to be acknowledged, the oldest first.
func (o *Outbox) Finished() []*Spool {
	o.mu.Lock()
	all := o.byAge()
	o.mu.Unlock()
	return slices.DeleteFunc(all, func(s *Spool) bool { return !s.isFinished() })
}

// Create makes the spool of a new attempt. Errors: ErrExists, *FullError,
// *DiskFullError, ErrClosed, or the system's. Nothing is left behind by a failure.
func (o *Outbox) Create(a Attempt) (*Spool, error) {
	if err := a.validate(); err != nil {
		return nil, fmt.Errorf("outbox: create: %w", err)
	}
	doc, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("outbox: create: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, ErrClosed
	}
	name := a.dirName()
	if _, ok := o.spools[name]; ok {
		return nil, ErrExists
	}
	if n := o.unacked(); n >= o.cfg.MaxBytes {
		return nil, &FullError{Limit: o.cfg.MaxBytes, Measured: n}
	}
	reserve, err := o.takeReserve()
	if err != nil {
		return nil, err
	}
	// The directory appears under its own name only when attempt.json is in it.
	temp, dir := filepath.Join(o.cfg.Dir, tempPre+name), filepath.Join(o.cfg.Dir, name)
	err = os.Mkdir(temp, 0o700)
	if err == nil {
		err = writeWhole(o.cfg.disk, filepath.Join(temp, attemptFile), doc, false)
	}
	if err == nil {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		o.reserves = append(o.reserves, reserve)
		os.RemoveAll(temp)
		return nil, diskError("attempt", dir, len(doc), err)
	}
	s := o.newSpool(a, dir)
	s.reserve = reserve
	o.spools[name] = s
	o.notify()
	return s, nil
}

// Entry describes one attempt in the outbox.
type Entry struct {
	Attempt Attempt
	// Finished says that its result is on disk and not yet acknowledged.
	Finished bool
	// Bytes are on disk, Acked of them acknowledged, per channel.
	Bytes, Acked map[string]int64
}

// List returns what is in the outbox, oldest first.
func (o *Outbox) List() []Entry {
	o.mu.Lock()
	spools := o.byAge()
	o.mu.Unlock()
	entries := make([]Entry, 0, len(spools))
	for _, s := range spools {
		entries = append(entries, s.entry())
	}
	return entries
}

// Unacknowledged is the number of bytes that no coordinator has acknowledged.
func (o *Outbox) Unacknowledged() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unacked()
}

// Undelivered gives each result that is finished and was not acknowledged, the oldest
// first.
func (o *Outbox) Undelivered(give func(a Attempt, result json.RawMessage)) error {
	for _, s := range o.Finished() {
		result, err := os.ReadFile(filepath.Join(s.dir, resultFile))
		if errors.Is(err, os.ErrNotExist) {
			continue // acknowledged meanwhile
		}
		if err != nil {
			return fmt.Errorf("outbox: read result: %w", err)
		}
		give(s.attempt, result)
	}
	return nil
}

// Drained returns when no finished attempt is left, or with ctx's error.
// Something must be shipping for that to happen.
func (o *Outbox) Drained(ctx context.Context) error {
	for {
		o.mu.Lock()
		changed, left := o.changed, false
		for _, s := range o.spools {
			left = left || s.isFinished()
		}
		o.mu.Unlock()
		if !left {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close closes the files and gives the directory up. Spools that are not
// finished stay on disk. Ship must have returned.
func (o *Outbox) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	var errs []error
	for _, s := range o.spools {
		errs = append(errs, s.closeFiles())
	}
	for _, r := range o.reserves {
		errs = append(errs, os.Remove(r))
	}
	o.notify()
	return errors.Join(append(errs, o.lock.Unlock())...)
}

func (o *Outbox) unacked() int64 {
	var n int64
	for _, s := range o.spools {
		n += s.unacked()
	}
	return n
}

func (o *Outbox) byAge() []*Spool {
	spools := make([]*Spool, 0, len(o.spools))
	for _, s := range o.spools {
		spools = append(spools, s)
	}
	slices.SortFunc(spools, func(a, b *Spool) int { return cmp.Or(a.born.Compare(b.born), cmp.Compare(a.seq, b.seq)) })
	return spools
}

func (o *Outbox) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// takeReserve returns a file of ReserveBytes that has its blocks. The caller
// holds o.mu. Zeros are written, not a hole: a hole reserves nothing.
func (o *Outbox) takeReserve() (string, error) {
	if n := len(o.reserves); n > 0 {
		r := o.reserves[n-1]
		o.reserves = o.reserves[:n-1]
		return r, nil
	}
	o.nextFile++
	path := filepath.Join(o.cfg.Dir, reservePre+strconv.Itoa(o.nextFile))
	if err := writeWhole(o.cfg.disk, path, make([]byte, o.cfg.ReserveBytes), false); err != nil {
		return "", diskError("attempt", path, int(o.cfg.ReserveBytes), err)
	}
	return path, nil
}

// giveReserve takes back a reserve that was not needed.
func (o *Outbox) giveReserve(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		os.Remove(path)
		return
	}
	o.reserves = append(o.reserves, path)
}

// drop forgets a spool and removes its directory, or keeps it aside when it was
// rejected.
func (o *Outbox) drop(s *Spool, rejected bool) error {
	name := s.attempt.dirName()
	err := s.closeFiles()
	if rejected {
		err = errors.Join(err, o.moveRejected(name))
	} else {
		done := filepath.Join(o.cfg.Dir, donePre+name)
		err = errors.Join(err, os.Rename(s.dir, done), os.RemoveAll(done))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.spools, name)
	o.unfinished = slices.DeleteFunc(o.unfinished, func(u *Spool) bool { return u == s })
	o.notify()
	return err
}

// moveRejected puts an attempt's directory aside and makes room for it.
func (o *Outbox) moveRejected(name string) error {
	root := filepath.Join(o.cfg.Dir, rejectedDir)
	to := filepath.Join(root, name)
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("outbox: keep rejected: %w", err)
	}
	if err := os.Rename(filepath.Join(o.cfg.Dir, name), to); err != nil {
		return fmt.Errorf("outbox: keep rejected: %w", err)
	}
	now := time.Now()
	os.Chtimes(to, now, now) // the order of going; a failure only changes that
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("outbox: list rejected: %w", err)
	}
	type kept struct {
		path  string
		mod   time.Time
		bytes int64
	}
	var all []kept
	var total int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			k := kept{filepath.Join(root, e.Name()), info.ModTime(), treeBytes(filepath.Join(root, e.Name()))}
			all, total = append(all, k), total+k.bytes
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return a.mod.Compare(b.mod) })
	for _, k := range all {
		if total <= o.cfg.RejectedBytes {
			break
		}
		if k.path == to {
			continue
		}
		if err := os.RemoveAll(k.path); err != nil {
			return fmt.Errorf("outbox: drop rejected: %w", err)
		}
		total -= k.bytes
	}
	return nil
}
