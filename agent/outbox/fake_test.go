package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// coordinator is a Sink that behaves as the real one does: offsets are checked,
// chunks are acknowledged later, results settle once. It can be made to fail.
type coordinator struct {
	mu       sync.Mutex
	changed  chan struct{}
	attempts map[string]*stored
	opens    int

	down     error                     // every call fails
	answer   map[string]Ack            // to results, Accepted otherwise
	refuse   map[string]*RejectedError // from Open
	block    map[string]bool           // Flush waits for its context
	onResult func(Attempt)
	// fault is asked before each append; an error is what the disk or the link
	// does then. after says that the bytes were stored and the answer was lost.
	fault func() (err error, after bool)
}

type stored struct {
	channels map[string][]byte
	sent     map[string]int64
	result   []byte
	results  int
}

func newCoordinator() *coordinator {
	return &coordinator{changed: make(chan struct{}), attempts: map[string]*stored{}, answer: map[string]Ack{},
		refuse: map[string]*RejectedError{}, block: map[string]bool{}}
}

func (c *coordinator) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.wake()
}

func (c *coordinator) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *coordinator) Open(_ context.Context, a Attempt) (Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opens++
	c.wake()
	if c.down != nil {
		return nil, c.down
	}
	if r := c.refuse[a.String()]; r != nil {
		return nil, r
	}
	st := c.attempts[a.String()]
	if st == nil {
		st = &stored{channels: map[string][]byte{}, sent: map[string]int64{}}
		c.attempts[a.String()] = st
	}
	s := &stream{c: c, a: a, st: st, resume: map[string]int64{}, acked: map[string]int64{}}
	for name, b := range st.channels {
		s.resume[name], s.acked[name] = int64(len(b)), int64(len(b))
	}
	return s, nil
}

type stream struct {
	c             *coordinator
	a             Attempt
	st            *stored
	resume, acked map[string]int64
	failed        error
}

func (s *stream) Resume(channel string) int64 { return s.resume[channel] }

func (s *stream) Send(_ context.Context, channel string, offset int64, p []byte) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if err := errors.Join(s.failed, s.c.down); err != nil {
		return err
	}
	if have := int64(len(s.st.channels[channel])); offset != have {
		return fmt.Errorf("channel %s: offset %d, want %d", channel, offset, have)
	}
	s.st.sent[channel] += int64(len(p))
	var fault error
	after := false
	if s.c.fault != nil {
		fault, after = s.c.fault()
	}
	if fault == nil || after {
		s.st.channels[channel] = append(s.st.channels[channel], p...)
	}
	// The failure shows up with the next call, as it does on a wire.
	s.failed = fault
	s.c.wake()
	return nil
}

func (s *stream) Acked(channel string) int64 { return s.acked[channel] }

func (s *stream) Flush(ctx context.Context) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for s.c.block[s.a.String()] {
		changed := s.c.changed
		s.c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.c.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := errors.Join(s.failed, s.c.down); err != nil {
		return err
	}
	for name, b := range s.st.channels {
		s.acked[name] = int64(len(b))
	}
	return nil
}

func (s *stream) Result(_ context.Context, result json.RawMessage) (Ack, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.onResult != nil {
		s.c.onResult(s.a)
	}
	if s.st.result != nil && !bytes.Equal(s.st.result, result) {
		return Ack{}, errors.New("another result for the same attempt")
	}
	s.st.result = bytes.Clone(result)
	s.st.results++
	s.c.wake()
	if s.c.fault != nil {
		if err, _ := s.c.fault(); err != nil {
			return Ack{}, err // stored, and the answer is lost
		}
	}
	if a, ok := s.c.answer[s.a.String()]; ok {
		return a, nil
	}
	return Ack{Status: Accepted}, nil
}

func (s *stream) Close() error { return nil }

func (c *coordinator) attempt(name string) *stored {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.attempts[name]; st != nil {
		return &stored{maps.Clone(st.channels), maps.Clone(st.sent), st.result, st.results}
	}
	return &stored{}
}

func (c *coordinator) check(t testing.TB, name string, channels map[string]string, result string) {
	t.Helper()
	st := c.attempt(name)
	got := map[string]string{}
	for ch, b := range st.channels {
		got[ch] = string(b)
	}
	if d := cmp.Diff(channels, got); d != "" {
		t.Errorf("%s: channels at the coordinator (-want):\n%s", name, d)
	}
	if string(st.result) != result {
		t.Errorf("%s: result %s, want %s", name, st.result, result)
	}
}

func (c *coordinator) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for {
		c.mu.Lock()
		done, changed := ok(), c.changed
		c.mu.Unlock()
		if done {
			return
		}
		await(t, what, changed)
	}
}

func (c *coordinator) await(t testing.TB, name, channel string, n int) {
	t.Helper()
	c.until(t, name+" "+channel, func() bool { st := c.attempts[name]; return st != nil && len(st.channels[channel]) >= n })
}

func (c *coordinator) awaitResult(t testing.TB, name string) {
	t.Helper()
	c.until(t, "result of "+name, func() bool { st := c.attempts[name]; return st != nil && st.result != nil })
}

func (c *coordinator) awaitOpens(t testing.TB, more int) {
	t.Helper()
	c.mu.Lock()
	want := c.opens + more
	c.mu.Unlock()
	c.until(t, "opens", func() bool { return c.opens >= want })
}

// fakeDisk is the real one with a record of what happens and a size that can be
// taken away.
type fakeDisk struct {
	mu    sync.Mutex
	log   []string
	hook  func() // before each change
	small bool
	free  int64
}

func (d *fakeDisk) limit(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.small, d.free = n >= 0, n
}

func (d *fakeDisk) note(e string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, e)
}

func (d *fakeDisk) events() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

func (d *fakeDisk) open(path string, flag int, perm os.FileMode) (file, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &fakeFile{f, d}, nil
}

type fakeFile struct {
	*os.File
	d *fakeDisk
}

// WriteAt takes what fits, as a disk does, and says that it is full.
func (f *fakeFile) WriteAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.hook != nil {
		f.d.hook()
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	grows := max(0, at+int64(len(p))-info.Size())
	if f.d.small && grows > f.d.free {
		n, _ := f.File.WriteAt(p[:int64(len(p))-grows+f.d.free], at)
		return n, &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	if f.d.small {
		f.d.free -= grows
	}
	f.d.log = append(f.d.log, "write "+filepath.Base(f.Name()))
	return f.File.WriteAt(p, at)
}

func (f *fakeFile) Sync() error {
	f.d.mu.Lock()
	if f.d.hook != nil {
		f.d.hook()
	}
	f.d.mu.Unlock()
	f.d.note("sync " + filepath.Base(f.Name()))
	return f.File.Sync()
}
