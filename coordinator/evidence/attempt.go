package evidence

import (
	"context"
	"sync"

	"github.com/everdict/everdict/protocol"
)

// Attempt is a handle of one attempt's evidence. Its methods may be called from
// any goroutine; handles of the same attempt see each other's writes at once.
type Attempt struct {
	st   *state
	once sync.Once
}

// Close gives the handle back. Readers made from it stay usable.
func (a *Attempt) Close() (err error) {
	a.once.Do(func() { err = a.st.s.release(a.st) })
	return err
}

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
		next = ch.size
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
	return ch.size, nil
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
		m[ch.name] = ch.size
	}
	return m, nil
}

// Seal ends the attempt: when it returns nil, all channels are on the disk, no
// byte can be added, and followers have ended. It is what must come before a
// result is acknowledged. Sealing again is no error. After an error
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
	return Summary{Channels: m, Sealed: a.st.sealed}
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
