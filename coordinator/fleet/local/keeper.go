package local

import (
	"errors"
	"os"
	"path/filepath"
)

// before ends the name of the file that a bounded file was before.
const before = ".1"

// mostOutput is how much of a stream is kept at least, if there is as much, and half of
// the most.
const mostOutput = 16 << 20

// bounded is a file of which the end is kept.
type bounded struct {
	path string
	most int64
	f    *os.File
	size int64
}

// Write implements io.Writer. What cannot be kept is dropped: a full disk does not hold
// up whoever prints.
func (b *bounded) Write(p []byte) (int, error) {
	if b.f == nil || b.size+int64(len(p)) > b.most {
		b.turn()
	}
	if b.f != nil {
		n, _ := b.f.Write(p)
		b.size += int64(n)
	}
	return len(p), nil
}

// turn begins a new file.
func (b *bounded) turn() {
	if b.f != nil {
		_ = b.f.Close() // nothing of it is buffered
		if err := os.Rename(b.path, b.path+before); err != nil {
			_ = os.Truncate(b.path, 0)
		}
	}
	b.f, _ = os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	b.size = 0
}

// Close implements io.Closer.
func (b *bounded) Close() error {
	if b.f == nil {
		return nil
	}
	return b.f.Close()
}

// readStart is what the keeper of a unit has to do; nil: nothing, since it was done or
// begun before, or the unit was terminated.
func readStart(dir string) (*start, error) {
	for _, name := range []string{keeperFile, exitFile, goneFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil, nil
		}
	}
	s := new(start)
	found, err := readJSON(dir, startFile, s)
	if err == nil && (!found || len(s.Args) == 0) {
		err = errors.New("the launch is not complete")
	}
	return s, err
}
