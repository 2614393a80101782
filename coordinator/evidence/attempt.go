package evidence

import (
	"bytes"
	"container/list"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/everdict/everdict/protocol"
)

// Attempt is a handle of one attempt's evidence. Its methods may be called from
// any goroutine; handles of the same attempt see each other's writes at once.
type Attempt struct {
	st    *state
	run   string
	epoch int64
	once  sync.Once
}

// state is what all handles of one attempt share.
type state struct {
	s    *Store
	run  string
	path string
	refs int           // guarded by Store.mu
	elem *list.Element // guarded by Store.mu

	mu       sync.Mutex
	f        file // nil: not open now
	loaded   bool
	exists   bool // the file has a whole header
	verified bool // contents come from checksums, or from this process
	newName  bool // the file's name is not durable yet
	synced   bool // the seal and all before it are durable
	suspect  bool // a sync failed: the disk may have dropped what it had taken
	dirty    bool // the file may be longer than contents.end
	nonce    [8]byte
	contents
	over    bool          // nobody waits for more bytes
	gone    error         // ErrClosed or ErrRemoved
	changed chan struct{} // nil while nobody waits
}

var frames = sync.Pool{New: func() any { b := make([]byte, 0, 68<<10); return &b }}

// Close gives the handle back. Readers made from it stay usable.
func (a *Attempt) Close() (err error) {
	a.once.Do(func() { err = a.st.s.release(a.st) })
	return err
}

// Run and Epoch name the attempt.
func (a *Attempt) Run() string { return a.run }

// Epoch is the attempt's number within its run.
func (a *Attempt) Epoch() int64 { return a.epoch }

// Append stores bytes of a channel that begin at offset, and returns the offset
// that is wanted next, also with an error. What is stored already is compared
// and skipped, so sending again is harmless. Errors: *HoleError, *ConflictError,
// *NameError, *LimitError, ErrSealed, or the disk's; none of them changes what is
// stored. See the package comment for what a nil error means.
func (a *Attempt) Append(channel string, offset int64, p []byte) (next int64, err error) {
	if !protocol.ValidChannel(channel) {
		return 0, &NameError{"channel", channel}
	}
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.verify(); err != nil {
		return 0, st.wrap("append", err)
	}
	ch := st.channel(channel)
	if ch != nil {
		next = ch.next()
	}
	switch {
	case offset < 0 || offset > next:
		return next, &HoleError{Channel: channel, Offset: offset, Want: next}
	case len(p) > maxPayload:
		return next, &LimitError{"piece bytes", maxPayload, int64(len(p))}
	}
	if known := min(next-offset, int64(len(p))); known > 0 {
		if err := st.compare(ch, offset, p[:known]); err != nil {
			return next, st.wrap("append", err)
		}
		p = p[known:]
	}
	if len(p) == 0 {
		return next, nil
	}
	if st.sealed {
		return next, ErrSealed
	}
	if ch == nil && len(st.channels) >= st.s.cfg.MaxChannels {
		return next, &LimitError{"channels", int64(st.s.cfg.MaxChannels), int64(len(st.channels)) + 1}
	}
	pos, err := st.write(kindData, channel, p)
	if err != nil {
		return next, st.wrap("append", err)
	}
	ch = st.add(channel, pos, p)
	st.wake()
	return ch.next(), nil
}

// Skip notes that n bytes of a channel from offset on are lost at the runner, and
// why. They count as stored for offsets; readers see a gap and no bytes. What is
// stored already stays. Returns and errors are those of Append.
func (a *Attempt) Skip(channel string, offset, n int64, reason string) (next int64, err error) {
	if !protocol.ValidChannel(channel) {
		return 0, &NameError{"channel", channel}
	}
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.verify(); err != nil {
		return 0, st.wrap("skip", err)
	}
	ch := st.channel(channel)
	if ch != nil {
		next = ch.next()
	}
	const far = 1 << 60 // so that a sum of two does not overflow
	if offset < 0 || offset > next || n < 0 {
		return next, &HoleError{Channel: channel, Offset: offset, Want: next}
	}
	n -= next - offset
	switch {
	case n <= 0:
		return next, nil
	case st.sealed:
		return next, ErrSealed
	case ch == nil && len(st.channels) >= st.s.cfg.MaxChannels:
		return next, &LimitError{"channels", int64(st.s.cfg.MaxChannels), int64(len(st.channels)) + 1}
	case n > far-next:
		return next, &LimitError{"gap bytes", far - next, n}
	}
	reason = protocol.Clip(reason, 200)
	if _, err := st.write(kindGap, channel, append(binary.AppendUvarint(nil, uint64(n)), reason...)); err != nil {
		return next, st.wrap("skip", err)
	}
	ch = st.addGap(channel, n, reason)
	st.wake()
	return ch.next(), nil
}

// Gaps lists what was skipped in a channel. A log's own gaps are in its index,
// see Log.
func (a *Attempt) Gaps(channel string) []protocol.Gap {
	a.st.mu.Lock()
	defer a.st.mu.Unlock()
	ch := a.st.channel(channel)
	if ch == nil {
		return nil
	}
	var gaps []protocol.Gap
	lost := int64(0)
	for _, g := range ch.gaps {
		gaps = append(gaps, protocol.Gap{Channel: channel, Offset: g.at + lost, Bytes: g.n, Reason: g.reason})
		lost += g.n
	}
	return gaps
}

// compare reports where p differs from the stored bytes at offset. What lies in
// or before the last gap is not compared: for that, offsets count bytes that are
// not there.
func (st *state) compare(ch *channel, offset int64, p []byte) error {
	if k := len(ch.gaps); k > 0 {
		first := ch.gaps[k-1].at + ch.lost
		skip := min(max(0, first-offset), int64(len(p)))
		p, offset = p[skip:], offset+skip-ch.lost
	}
	var buf [32 << 10]byte
	for len(p) > 0 {
		b := buf[:min(len(p), len(buf))]
		if _, err := st.readAt(ch, b, offset); err != nil {
			return err
		}
		if !bytes.Equal(b, p[:len(b)]) {
			for i := range b {
				if b[i] != p[i] {
					return &ConflictError{Channel: ch.name, Offset: offset + int64(i) + ch.lost}
				}
			}
		}
		p, offset = p[len(b):], offset+int64(len(b))
	}
	return nil
}

// Offsets returns how many bytes of each channel are stored: where a runner
// resumes.
func (a *Attempt) Offsets() (map[string]int64, error) {
	a.st.mu.Lock()
	defer a.st.mu.Unlock()
	if err := a.st.verify(); err != nil {
		return nil, a.st.wrap("offsets", err)
	}
	m := make(map[string]int64, len(a.st.channels))
	for _, ch := range a.st.channels {
		m[ch.name] = ch.next()
	}
	return m, nil
}

// Put stores the result. The same one again is no error; another one is a
// *ConflictError, or ErrSealed when the attempt was sealed without one.
func (a *Attempt) Put(result []byte) error {
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.verify(); err != nil {
		return st.wrap("put", err)
	}
	switch {
	case len(result) == 0:
		return errors.New("evidence: put: the result is empty")
	case len(result) > maxPayload:
		return &LimitError{"piece bytes", maxPayload, int64(len(result))}
	case st.result.n > 0:
		have, err := st.readResult()
		if err != nil {
			return st.wrap("put", err)
		}
		if !bytes.Equal(have, result) {
			return &ConflictError{Channel: "result"}
		}
		return nil
	case st.sealed:
		return ErrSealed
	}
	pos, err := st.write(kindResult, "", result)
	if err != nil {
		return st.wrap("put", err)
	}
	st.result = extent{pos: pos, n: int64(len(result))}
	return nil
}

// Result returns the stored result, or ErrNotFound.
func (a *Attempt) Result() ([]byte, error) {
	a.st.mu.Lock()
	defer a.st.mu.Unlock()
	if a.st.result.n == 0 {
		return nil, ErrNotFound
	}
	b, err := a.st.readResult()
	if err != nil {
		return nil, a.st.wrap("read result", err)
	}
	return b, nil
}

// Seal ends the attempt: when it returns nil, all channels and the result are on
// the disk, no byte can be added, and followers have ended. It is what must
// come before a result is acknowledged. Sealing again is no error. After an error
// Seal may be tried again.
func (a *Attempt) Seal(ctx context.Context) error {
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := st.verify(); err != nil {
		return st.wrap("seal", err)
	}
	if st.synced {
		return nil
	}
	if !st.sealed {
		if _, err := st.write(kindSeal, "", nil); err != nil {
			return st.wrap("seal", err)
		}
		st.sealed = true
	}
	// The seal is synced together with what it seals. Should the power go before
	// this returns, the file may hold the seal and not the rest: therefore
	// verify believes checksums only, and Offsets and Append go through it.
	if err := st.syncFile(); err != nil {
		return st.wrap("seal", err)
	}
	st.synced = true
	st.over = true
	st.wake()
	return nil
}

// Supersede says that the run has gone on without this attempt: followers end at
// what is there. Late evidence is still taken and kept. It does not outlive the
// last handle; the run's record does.
func (a *Attempt) Supersede() {
	a.st.mu.Lock()
	defer a.st.mu.Unlock()
	a.st.over = true
	a.st.wake()
}

// Summary describes what is stored of an attempt.
type Summary struct {
	Channels map[string]int64 // bytes
	Result   bool
	Sealed   bool
}

// Summary returns what is stored.
func (a *Attempt) Summary() Summary {
	a.st.mu.Lock()
	defer a.st.mu.Unlock()
	m := make(map[string]int64, len(a.st.channels))
	for _, ch := range a.st.channels {
		m[ch.name] = ch.size
	}
	return Summary{Channels: m, Result: a.st.result.n > 0, Sealed: a.st.sealed}
}

// Lines returns how many complete lines a channel has: of protocol.ChannelTrace,
// the number of events.
func (a *Attempt) Lines(channel string) int64 {
	a.st.mu.Lock()
	defer a.st.mu.Unlock()
	if ch := a.st.channel(channel); ch != nil {
		return ch.lines
	}
	return 0
}

// load reads the file's table of contents, once.
func (st *state) load() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.gone != nil {
		return st.gone
	}
	if st.loaded {
		return nil
	}
	st.contents, st.verified = contents{end: headerSize}, true
	err := st.openFile(false)
	if errors.Is(err, os.ErrNotExist) {
		st.loaded = true
		return nil
	}
	if err != nil {
		return err
	}
	size, err := st.readHead()
	if err != nil || !st.exists {
		st.loaded = err == nil
		return err
	}
	c, ok, err := readSealed(st.f, st.nonce, size)
	if err != nil {
		return err
	}
	if !ok {
		if c, err = scan(st.f, st.nonce, size); err != nil {
			return err
		}
	}
	st.contents, st.verified, st.dirty, st.loaded = c, !ok, c.end < size, true
	return nil
}

func (st *state) readHead() (size int64, err error) {
	info, err := st.f.Stat()
	if err != nil {
		return 0, err
	}
	st.nonce, st.exists, err = readHeader(st.f)
	st.dirty = !st.exists // a header that was cut short is written anew
	return info.Size(), err
}

// verify makes sure that contents are what the checksums say, before anything is
// built on them.
func (st *state) verify() error {
	if st.gone != nil {
		return st.gone
	}
	if st.verified {
		return nil
	}
	if err := st.openFile(false); err != nil {
		return err
	}
	size, err := st.readHead()
	if err != nil {
		return err
	}
	c, err := scan(st.f, st.nonce, size)
	if err != nil {
		return err
	}
	st.contents, st.verified, st.dirty = c, true, c.end < size
	// Written by an earlier process: whether it came to sync the name is unknown.
	st.newName = true
	return nil
}

// write appends a frame and returns where its payload lies. After a failure the
// file is what it was, or is made so before the next write.
func (st *state) write(kind byte, name string, payload []byte) (pos int64, err error) {
	if err := st.openFile(true); err != nil {
		return 0, err
	}
	if st.dirty {
		if err := st.f.Truncate(st.fileEnd()); err != nil {
			return 0, err
		}
		st.dirty = false
	}
	buf := frames.Get().(*[]byte)
	defer frames.Put(buf)
	b, at := (*buf)[:0], st.end
	if !st.exists {
		// The header goes with the first frame in one write.
		rand.Read(st.nonce[:])
		b, at = append(append(b, magic...), st.nonce[:]...), 0
	}
	if kind == kindSeal {
		payload = appendSeal(nil, &st.contents, st.nonce)
	} else if n := st.end + frameSize + int64(len(name)+len(payload)); n > st.s.cfg.MaxAttemptBytes {
		return 0, &LimitError{"attempt bytes", st.s.cfg.MaxAttemptBytes, n}
	}
	b = appendFrame(b, st.nonce, kind, name, payload)
	if cap(b) <= 1<<20 {
		*buf = b
	}
	if _, err := st.f.WriteAt(b, at); err != nil {
		st.dirty = st.f.Truncate(st.fileEnd()) != nil
		return 0, err
	}
	st.exists = true
	pos = st.end + frameSize + int64(len(name))
	st.end = pos + int64(len(payload))
	return pos, nil
}

// fileEnd is how long the file is when it is clean.
func (st *state) fileEnd() int64 {
	if !st.exists {
		return 0
	}
	return st.end
}

// openFile opens the file when it is not open.
func (st *state) openFile(create bool) error {
	if st.gone != nil {
		return st.gone
	}
	if st.f == nil {
		f, err := st.s.cfg.disk.open(st.path, os.O_RDWR)
		if errors.Is(err, os.ErrNotExist) && create {
			if f, err = st.s.cfg.disk.open(st.path, os.O_RDWR|os.O_CREATE); errors.Is(err, os.ErrNotExist) {
				if err = st.s.makeShard(filepath.Dir(st.path)); err == nil {
					f, err = st.s.cfg.disk.open(st.path, os.O_RDWR|os.O_CREATE)
				}
			}
			st.newName = true
		}
		if err != nil {
			return err
		}
		st.f = f
	}
	st.s.used(st)
	return nil
}

func (s *Store) makeShard(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return s.cfg.disk.syncDir(s.cfg.Dir)
}

func (st *state) syncFile() error {
	if err := st.openFile(false); err != nil {
		return err
	}
	if st.suspect {
		if err := st.rewrite(); err != nil {
			return err
		}
		st.suspect = false
	}
	if err := st.f.Sync(); err != nil {
		st.suspect = true
		return err
	}
	if st.newName {
		if err := st.s.cfg.disk.syncDir(filepath.Dir(st.path)); err != nil {
			return err
		}
		st.newName = false
	}
	return nil
}

// rewrite copies the file to a new one in its place. After a failed sync the
// system may call pages clean that never reached the disk, so that a second sync
// of the same file would succeed and prove nothing.
func (st *state) rewrite() error {
	temp := st.path + ".tmp"
	f, err := st.s.cfg.disk.open(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(f, 0), io.NewSectionReader(st.f, 0, st.fileEnd()))
	if err == nil {
		err = os.Rename(temp, st.path)
	}
	if err != nil {
		os.Remove(temp)
		return errors.Join(err, f.Close())
	}
	st.f.Close() // its content lives on in f
	st.f, st.newName, st.dirty = f, true, false
	return nil
}

func (st *state) readResult() ([]byte, error) {
	if err := st.openFile(false); err != nil {
		return nil, err
	}
	b := make([]byte, st.result.n)
	if _, err := st.f.ReadAt(b, st.result.pos); err != nil {
		return nil, noEOF(err)
	}
	return b, nil
}

// noEOF keeps a file that is shorter than it was from looking like the end.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// shut ends the state: its file is closed and those who wait are woken.
func (st *state) shut(why error) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.gone == nil {
		st.gone = why
	}
	st.wake()
	st.s.unused(st)
	if st.f == nil {
		return nil
	}
	err := st.f.Close()
	st.f = nil
	return err
}

// wait returns a channel that is closed at the next change. The caller holds
// st.mu.
func (st *state) wait() <-chan struct{} {
	if st.changed == nil {
		st.changed = make(chan struct{})
	}
	return st.changed
}

func (st *state) wake() {
	if st.changed != nil {
		close(st.changed)
		st.changed = nil
	}
}

func (st *state) wrap(action string, err error) error {
	switch err.(type) {
	case *HoleError, *ConflictError, *LimitError, *NameError:
		return err
	}
	if err == ErrClosed || err == ErrRemoved || err == ErrSealed {
		return err
	}
	return fmt.Errorf("evidence: %s %s: %w", action, filepath.Base(st.path), err)
}
