package evidence

import (
	"bytes"
	"container/list"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

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

// compare reports where p differs from the stored bytes at offset.
func (st *state) compare(ch *channel, offset int64, p []byte) error {
	var buf [32 << 10]byte
	for len(p) > 0 {
		b := buf[:min(len(p), len(buf))]
		if _, err := st.readAt(ch, b, offset); err != nil {
			return err
		}
		if !bytes.Equal(b, p[:len(b)]) {
			for i := range b {
				if b[i] != p[i] {
					return &ConflictError{Channel: ch.name, Offset: offset + int64(i)}
				}
			}
		}
		p, offset = p[len(b):], offset+int64(len(b))
	}
	return nil
}
