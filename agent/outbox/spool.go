package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/private"
	"github.com/everdict/everdict/protocol"
)

// Spool is one attempt in the outbox. Its methods may be called from any
// goroutine.
type Spool struct {
	o       *Outbox
	attempt Attempt
	dir     string
	born    time.Time
	seq     int
	done    chan struct{}

	mu       sync.Mutex
	channels []*channel // in order of their making
	changed  chan struct{}
	reserve  string // preallocated file, empty after Finish
	gaps     []protocol.Gap
	saved    int // gaps[:saved] are in ChannelGaps
	closing  bool
	finished bool
	gone     bool
	ack      Ack
}

// channel is one append-only file. Bytes beyond size are not part of it.
type channel struct {
	s       *Spool
	name    string
	f       file // nil until the first write
	size    int64
	lost    int64 // bytes that were offered and did not fit
	acked   int64
	dirty   bool // the file may be longer than size
	hadGap  bool // the last write was lost
	openErr error
}

func (o *Outbox) newSpool(a Attempt, dir string) *Spool {
	o.nextSpool++
	return &Spool{o: o, attempt: a, dir: dir, born: time.Now(), seq: o.nextSpool,
		done: make(chan struct{}), changed: make(chan struct{})}
}

// load takes up the directory of an earlier runner.
func (o *Outbox) load(name string) (*Spool, error) {
	dir := filepath.Join(o.cfg.Dir, name)
	b, err := os.ReadFile(filepath.Join(dir, attemptFile))
	if err != nil {
		return nil, err
	}
	a, err := decodeAttempt(b)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", attemptFile, err)
	}
	if a.dirName() != name {
		return nil, fmt.Errorf("%s names %s", attemptFile, a)
	}
	s := o.newSpool(a, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		switch name := e.Name(); {
		case name == attemptFile:
			s.born = info.ModTime()
		case name == resultFile:
			s.closing, s.finished = true, true
		case strings.HasPrefix(name, tempPre), strings.HasPrefix(name, scratchPre):
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		case info.Mode().IsRegular() && protocol.ValidChannel(fromFile(name)):
			s.channels = append(s.channels, &channel{s: s, name: fromFile(name), size: info.Size()})
		default:
			return nil, fmt.Errorf("%s is not a file of an attempt", name)
		}
	}
	return s, nil
}

// file is a channel's file. Windows takes no colon in a name.
func (s *Spool) file(channel string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(channel, ":", "="))
}

func fromFile(name string) string { return strings.ReplaceAll(name, "=", ":") }

// Attempt returns what the spool belongs to.
func (s *Spool) Attempt() Attempt { return s.attempt }

// Done is closed when the result has its final answer and the spool is gone, or
// when it was abandoned.
func (s *Spool) Done() <-chan struct{} { return s.done }

// Ack is the final answer; its Status is empty until there is one.
func (s *Spool) Ack() Ack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ack
}

// Channel returns a writer that appends to a channel; asking again continues it.
// Each Write is all or nothing: it returns a *DiskFullError, or the system's
// error, when the bytes were not taken; they are then counted as a gap and the
// next Write is tried anew. Close writes nothing. The name must satisfy
// protocol.ValidChannel, or every Write fails.
func (s *Spool) Channel(name string) io.WriteCloser {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channel(name)
}

func (s *Spool) channel(name string) *channel {
	for _, c := range s.channels {
		if c.name == name {
			return c
		}
	}
	c := &channel{s: s, name: name}
	if !protocol.ValidChannel(name) || reserved(name) {
		c.openErr = fmt.Errorf("outbox: %q is not a channel's name", protocol.Clip(name, 80))
		return c
	}
	s.channels = append(s.channels, c)
	return c
}

// Write implements io.Writer.
func (c *channel) Write(p []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.closing {
		return 0, ErrFinished
	}
	if c.openErr != nil {
		return 0, c.openErr
	}
	if err := c.append(p); err != nil {
		c.miss(int64(len(p)), err)
		return 0, diskError(c.name, c.s.file(c.name), len(p), err)
	}
	if c.hadGap {
		c.hadGap = false
		c.s.saveGaps()
	}
	return len(p), nil
}

// Close implements io.Closer. The file stays with the spool.
func (c *channel) Close() error { return nil }

// append writes p behind size, or leaves the channel as it was.
func (c *channel) append(p []byte) error {
	if c.f == nil {
		f, err := c.s.o.cfg.disk.open(c.s.file(c.name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		c.f = f
	}
	if c.dirty {
		if err := c.f.Truncate(c.size); err != nil {
			return err
		}
		c.dirty = false
	}
	if _, err := c.f.WriteAt(p, c.size); err != nil {
		c.dirty = c.f.Truncate(c.size) != nil
		return err
	}
	c.size += int64(len(p))
	c.s.notify()
	return nil
}

// miss counts n bytes as lost. Consecutive losses are one gap.
func (c *channel) miss(n int64, err error) {
	reason := protocol.GapWriteError
	if isDiskFull(err) {
		reason = protocol.GapDiskFull
	}
	s := c.s
	at := c.size + c.lost
	c.lost += n
	if c.hadGap {
		for i := len(s.gaps) - 1; i >= s.saved; i-- {
			if g := &s.gaps[i]; g.Channel == c.name && g.Reason == reason && g.Offset+g.Bytes == at {
				g.Bytes += n
				return
			}
		}
	}
	c.hadGap = true
	s.gaps = append(s.gaps, protocol.Gap{Channel: c.name, Offset: at, Bytes: n, Reason: reason})
}

// saveGaps writes the gaps that are not yet in ChannelGaps, as far as the disk
// takes them; they stay in memory for Gaps in any case.
func (s *Spool) saveGaps() {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, g := range s.gaps[s.saved:] {
		if err := enc.Encode(g); err != nil {
			return
		}
	}
	if b.Len() > 0 && s.channel(protocol.ChannelGaps).append(b.Bytes()) == nil {
		s.saved = len(s.gaps)
	}
}

// Gaps are the bytes that the disk did not take, for Evidence.Gaps of the
// result. Those of the log are left out: its recorder counts them itself. All are
// also written to protocol.ChannelGaps when there is room again.
func (s *Spool) Gaps() []protocol.Gap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.gaps), func(g protocol.Gap) bool {
		return g.Channel == protocol.ChannelLog || g.Channel == protocol.ChannelLogIndex
	})
}

// Open reads what a channel holds now, for the graders. A channel that nobody
// asked for is fs.ErrNotExist.
func (s *Spool) Open(channel string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.channels {
		if c.name != channel {
			continue
		}
		f, err := os.Open(s.file(channel))
		if errors.Is(err, fs.ErrNotExist) && c.size == 0 {
			return io.NopCloser(strings.NewReader("")), nil
		}
		if err != nil {
			return nil, fmt.Errorf("outbox: read %s: %w", channel, err)
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, 0, c.size), f}, nil
	}
	return nil, fmt.Errorf("outbox: channel %q: %w", protocol.Clip(channel, 80), fs.ErrNotExist)
}

// Scratch opens a temporary file beside the channels. It is never sent; it goes
// with the spool, or when a later runner finds it. The caller closes it.
func (s *Spool) Scratch(name string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, ErrFinished
	}
	if !protocol.ValidChannel(name) {
		return nil, fmt.Errorf("outbox: %q is not a file name", protocol.Clip(name, 80))
	}
	return os.OpenFile(filepath.Join(s.dir, scratchPre+name), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
}

// Finish makes the result durable, with the channels before it; when it returns
// nil, neither a crash nor a power cut loses it, and Ship sends it. After it no
// channel takes bytes. On a full disk the result goes into the preallocated
// space. A *DiskFullError says that it did not fit there either: the caller may
// Finish again with a smaller one.
func (s *Spool) Finish(result json.RawMessage) error {
	if !json.Valid(result) {
		return errors.New("outbox: finish: the result is not JSON")
	}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return ErrFinished
	}
	s.closing = true
	s.saveGaps()
	reserve := s.reserve
	files := map[string]file{}
	for _, c := range s.channels {
		if c.f != nil { // nil: nothing was written in this life of the runner
			files[c.name] = c.f
		}
	}
	s.mu.Unlock()

	used, err := false, s.sync(files)
	if err == nil {
		used, err = s.writeResult(result, reserve)
	}

	s.mu.Lock()
	if err != nil {
		s.closing = false
		s.mu.Unlock()
		return err
	}
	s.finished, s.reserve = true, ""
	s.notify()
	s.mu.Unlock()
	if reserve != "" && !used {
		s.o.giveReserve(reserve)
	}
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.o.unfinished = slices.DeleteFunc(s.o.unfinished, func(u *Spool) bool { return u == s })
	s.o.notify()
	return nil
}

// sync makes the channels, attempt.json and the attempt's name durable, all at
// once so that they share the disk's commits. Without the latter two the result
// would be lost by a power cut. A channel that fails costs evidence only if the
// power goes before it is sent, and must not cost the result.
func (s *Spool) sync(files map[string]file) error {
	var wg sync.WaitGroup
	for name, f := range files {
		wg.Go(func() {
			if err := f.Sync(); err != nil {
				s.o.cfg.Logger.Warn("outbox: sync channel failed", "attempt", s.attempt, "channel", name, "error", err)
			}
		})
	}
	var attempt, dir error
	wg.Go(func() {
		path := filepath.Join(s.dir, attemptFile)
		f, err := s.o.cfg.disk.open(path, os.O_RDWR, 0o600)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		attempt = diskError("attempt", path, 0, err)
	})
	wg.Go(func() { dir = private.SyncDir(s.o.cfg.Dir) })
	wg.Wait()
	return errors.Join(attempt, dir)
}

// writeResult puts the result in place and reports whether it took the reserve.
func (s *Spool) writeResult(result []byte, reserve string) (used bool, err error) {
	d, path := s.o.cfg.disk, filepath.Join(s.dir, resultFile)
	temp := filepath.Join(s.dir, tempPre+resultFile)
	err = writeWhole(d, temp, result, true)
	if isDiskFull(err) && reserve != "" && int64(len(result)) <= s.o.cfg.ReserveBytes {
		if err = overwrite(d, reserve, result); err == nil {
			temp, used = reserve, true
		}
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err == nil {
		err = private.SyncDir(s.dir)
	}
	return used, diskError("result", path, len(result), err)
}

// Abandon removes an unfinished attempt with all its evidence: it was given back
// or refused and nobody waits for it.
func (s *Spool) Abandon() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return ErrFinished
	}
	s.closing = true
	reserve := s.reserve
	s.reserve = ""
	s.mu.Unlock()
	if reserve != "" {
		s.o.giveReserve(reserve)
	}
	return s.end(Ack{})
}

// end takes the spool out of the outbox after its final answer.
func (s *Spool) end(ack Ack) error {
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return nil
	}
	s.gone, s.ack = true, ack
	s.notify()
	s.mu.Unlock()
	defer close(s.done)
	return s.o.drop(s, ack.Status == Rejected)
}

func (s *Spool) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Spool) isFinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished
}

func (s *Spool) unacked() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for _, c := range s.channels {
		n += max(0, c.size-c.acked)
	}
	return n
}

func (s *Spool) entry() Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := Entry{Attempt: s.attempt, Finished: s.finished, Bytes: map[string]int64{}, Acked: map[string]int64{}}
	for _, c := range s.channels {
		e.Bytes[c.name], e.Acked[c.name] = c.size, c.acked
	}
	return e
}

func (s *Spool) closeFiles() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	var errs []error
	for _, c := range s.channels {
		if c.f != nil {
			errs = append(errs, c.f.Close())
			c.f = nil
		}
	}
	return errors.Join(errs...)
}
