package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
)

// maxLog bounds the log file, in bytes. When it is full it becomes NAME.1, in the place of the one before.
const maxLog = 2 << 20

// logFile is the app's one log. A Write never fails: a full disk costs lines and nothing else.
type logFile struct {
	path string

	mu   sync.Mutex
	f    *os.File // nil: it could not be opened anew
	size int64
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write implements io.Writer.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil && l.size > 0 && l.size+int64(len(p)) > maxLog {
		l.turn()
	}
	if l.f != nil {
		n, _ := l.f.Write(p)
		l.size += int64(n)
	}
	return len(p), nil
}

// turn begins a new file.
func (l *logFile) turn() {
	_ = l.f.Close()
	l.f = nil
	if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(l.path) // rather no old lines than too many
	}
	_ = l.open() // without a file there are no lines
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

func logTo(file *logFile, stderr bool) io.Writer {
	if stderr {
		return io.MultiWriter(file, os.Stderr)
	}
	return file
}
