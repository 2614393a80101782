package evidence

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
