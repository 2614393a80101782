// Package history keeps the last jobs of this computer on its disk: an entry a line, appended when a job ends, and made
// short again when there are too many.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
)

// Keep is how many entries are kept. The file has up to twice as many.
const Keep = 500

// maxLine bounds what is read as one entry, in bytes; Add keeps to it.
const maxLine = 16 << 10

// maxFile bounds how much of the file is read, in bytes: the end of it. It has room for all that Add writes.
const maxFile = 2 * Keep * maxLine

// History is a file of entries.
type History struct {
	path string

	mu    sync.Mutex
	lines int // in the file
}

// Open returns the history in a file, which need not be there.
func Open(path string) (*History, error) {
	h := &History{path: path}
	entries, err := h.read()
	h.lines = len(entries)
	return h, err
}

// Add appends an entry.
func (h *History) Add(e control.Entry) error {
	if e.Failure != nil && len(e.Failure.Message) > maxLine/8 {
		short := *e.Failure
		short.Message = short.Message[:maxLine/8]
		e.Failure = &short
	}
	line, err := json.Marshal(e)
	if err != nil || len(line) >= maxLine {
		return errors.Join(fmt.Errorf("history: an entry of %d bytes", len(line)), err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lines >= 2*Keep {
		if err := h.shorten(); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(h.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	// A line that a crash cut is ended, so that it does not take this one with it.
	if end, err := f.Seek(-1, io.SeekEnd); err == nil {
		var last [1]byte
		if _, err := f.ReadAt(last[:], end); err == nil && last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	_, err = f.Write(append(line, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	h.lines++
	return nil
}

// Last returns the newest n entries, the newest first.
func (h *History) Last(n int) ([]control.Entry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries, err := h.read()
	slices.Reverse(entries)
	return entries[:min(n, Keep, len(entries))], err
}

// Has says whether there is an entry of an attempt.
func (h *History) Has(run string, epoch int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries, _ := h.read() // what cannot be read is not there
	return slices.ContainsFunc(entries, func(e control.Entry) bool { return e.Run == run && e.Epoch == epoch })
}

// Forget removes the entries of a connection.
func (h *History) Forget(connection string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries, err := h.read()
	if err != nil {
		return err
	}
	return h.write(slices.DeleteFunc(entries, func(e control.Entry) bool { return e.Connection == connection }))
}

func (h *History) shorten() error {
	entries, err := h.read()
	if err != nil {
		return err
	}
	return h.write(entries[max(0, len(entries)-Keep):])
}

func (h *History) write(entries []control.Entry) error {
	var b bytes.Buffer
	for _, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		b.Write(append(line, '\n'))
	}
	if err := home.WriteFile(h.path, b.Bytes()); err != nil {
		return err
	}
	h.lines = len(entries)
	return nil
}

// read returns the entries, the oldest first. What is no entry is left out: history is worth no failure.
func (h *History) read() ([]control.Entry, error) {
	entries := []control.Entry{}
	f, err := os.Open(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return entries, nil
	}
	if err != nil {
		return entries, fmt.Errorf("history: %w", err)
	}
	defer f.Close()                                                 // it is only read
	if info, err := f.Stat(); err == nil && info.Size() > maxFile { // somebody else has written it
		if _, err := f.Seek(-maxFile, io.SeekEnd); err != nil {
			return entries, fmt.Errorf("history: %w", err)
		}
	}
	r := bufio.NewReaderSize(f, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			line = nil
			_, err = r.ReadSlice('\n')
		}
		var e control.Entry
		if len(line) > 0 && json.Unmarshal(line, &e) == nil && e.Run != "" {
			entries = append(entries, e)
		}
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, fmt.Errorf("history: %w", err)
		}
	}
}
