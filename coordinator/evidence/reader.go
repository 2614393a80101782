package evidence

import (
	"context"
	"errors"
	"io"
	"slices"
	"sort"
	"sync"
)

// Reader reads a channel as it was produced. It implements io.Reader, io.Seeker,
// io.ReaderAt and io.Closer, and holds no file of its own. Size and the end are
// those of the moment of each call.
type Reader struct {
	st      *state
	channel string
	once    sync.Once
	mu      sync.Mutex
	pos     int64
}

// Open returns a reader of a channel, which the caller closes. A channel that has
// no bytes is ErrNotFound.
func (a *Attempt) Open(channel string) (*Reader, error) {
	a.st.mu.Lock()
	found := a.st.channel(channel) != nil
	gone := a.st.gone
	a.st.mu.Unlock()
	if gone != nil {
		return nil, gone
	}
	if !found {
		return nil, ErrNotFound
	}
	return &Reader{st: a.st.hold(), channel: channel}, nil
}

func (st *state) hold() *state {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.refs++
	return st
}

// Size is the number of bytes stored now.
func (r *Reader) Size() int64 {
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	return r.st.size(r.channel)
}

func (st *state) size(channel string) int64 {
	if ch := st.channel(channel); ch != nil {
		return ch.size
	}
	return 0
}

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("evidence: negative offset")
	}
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	n, err := r.st.readSome(r.channel, p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.ReadAt(p, r.pos)
	r.pos += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		offset += r.Size()
	default:
		return r.pos, errors.New("evidence: seek: unknown whence")
	}
	if offset < 0 {
		return r.pos, errors.New("evidence: seek: before the beginning")
	}
	r.pos = offset
	return offset, nil
}

// Close implements io.Closer.
func (r *Reader) Close() (err error) {
	r.once.Do(func() { err = r.st.s.release(r.st) })
	return err
}

// readSome reads up to len(p) stored bytes from off on. The caller holds st.mu.
func (st *state) readSome(channel string, p []byte, off int64) (int, error) {
	if st.gone != nil {
		return 0, st.gone
	}
	ch := st.channel(channel)
	if ch == nil || off >= ch.size || len(p) == 0 {
		return 0, nil
	}
	p = p[:min(int64(len(p)), ch.size-off)]
	return st.readAt(ch, p, off)
}

// readAt fills p from stored bytes, all of which exist.
func (st *state) readAt(ch *channel, p []byte, off int64) (int, error) {
	if err := st.openFile(false); err != nil {
		return 0, err
	}
	n := 0
	i := sort.Search(len(ch.extents), func(i int) bool { return ch.extents[i].off+ch.extents[i].n > off })
	for ; n < len(p) && i < len(ch.extents); i++ {
		e := ch.extents[i]
		from := off + int64(n) - e.off
		part := p[n:min(len(p), n+int(e.n-from))]
		m, err := st.f.ReadAt(part, e.pos+from)
		n += m
		if m < len(part) {
			return n, noEOF(err)
		}
	}
	return n, nil
}

// Follow returns a reader of a channel from offset on that waits for more bytes,
// is woken by their arrival, and ends when the attempt is sealed or superseded. A
// Read fails with ctx's error when ctx ends. The caller closes it.
func (a *Attempt) Follow(ctx context.Context, channel string, offset int64) io.ReadCloser {
	return &follower{ctx: ctx, r: Reader{st: a.st.hold(), channel: channel, pos: max(0, offset)}}
}

type follower struct {
	ctx context.Context
	r   Reader
}

// Read implements io.Reader.
func (f *follower) Read(p []byte) (int, error) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	for {
		if err := f.ctx.Err(); err != nil {
			return 0, err
		}
		st := f.r.st
		st.mu.Lock()
		n, err := st.readSome(f.r.channel, p, f.r.pos)
		wait, over := st.wait(), st.ended()
		st.mu.Unlock()
		f.r.pos += int64(n)
		switch {
		case n > 0 || err != nil || len(p) == 0:
			return n, err
		case over:
			return 0, io.EOF
		}
		select {
		case <-wait:
		case <-f.ctx.Done():
		}
	}
}

// Close implements io.Closer.
func (f *follower) Close() error { return f.r.Close() }

func (st *state) ended() bool { return st.sealed || st.over }

// view is what a reader of several channels sees at one moment.
type view struct {
	sizes []int64
	wait  <-chan struct{}
	over  bool
	err   error
}

func (st *state) view(wait bool, channels ...string) view {
	st.mu.Lock()
	defer st.mu.Unlock()
	v := view{over: st.ended(), err: st.gone, sizes: slices.Grow([]int64(nil), len(channels))}
	for _, c := range channels {
		v.sizes = append(v.sizes, st.size(c))
	}
	if wait {
		v.wait = st.wait()
	}
	return v
}

func (st *state) read(channel string, p []byte, off int64) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.readSome(channel, p, off)
}
