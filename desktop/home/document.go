package home

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// maxDocument bounds what is read of a document, in bytes.
const maxDocument = 8 << 20

// BrokenError is a document that could not be read and was moved aside, so that the app goes on without it.
type BrokenError struct {
	// Path is where it was, Aside where it is now.
	Path, Aside string
	Err         error
}

// Error implements error.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("home: %s cannot be read and was moved to %s: %v", e.Path, e.Aside, e.Err)
}

// Unwrap implements errors.
func (e *BrokenError) Unwrap() error { return e.Err }

// versioned is how a document lies on the disk.
type versioned struct {
	Version int             `json:"version"`
	Content json.RawMessage `json:"content"`
}

// Read reads a document of a version, or of an earlier one. Without a file into stays as it is. A file that cannot be understood, or
// that a later app has written, is moved aside and the error is a *BrokenError; into stays as it is then, too. check, if
// not nil, says whether what was read makes sense.
func Read[T any](path string, version int, into *T, check func(*T) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("home: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	_ = f.Close() // it was only read
	if err != nil {
		return fmt.Errorf("home: %w", err)
	}
	read, err := decode(b, version, *into, check)
	if err != nil {
		return aside(path, err)
	}
	*into = read
	return nil
}

// decode reads over what is there, so that a key that an earlier app did not write keeps its default.
func decode[T any](b []byte, version int, into T, check func(*T) error) (T, error) {
	var v versioned
	switch err := json.Unmarshal(b, &v); {
	case len(b) > maxDocument:
		return into, fmt.Errorf("it is longer than %d bytes", maxDocument)
	case err != nil:
		return into, err
	case v.Version < 1 || v.Version > version:
		return into, fmt.Errorf("it is of version %d, and this app knows 1 to %d", v.Version, version)
	}
	d := json.NewDecoder(bytes.NewReader(v.Content))
	if err := d.Decode(&into); err != nil {
		return into, err
	}
	if check != nil {
		return into, check(&into)
	}
	return into, nil
}

// aside moves a file out of the way. Only the newest broken one of a minute is kept.
func aside(path string, why error) error {
	e := &BrokenError{Path: path, Aside: path + ".broken-" + time.Now().UTC().Format("20060102-1504"), Err: why}
	if err := os.Rename(path, e.Aside); err != nil {
		return errors.Join(e, err)
	}
	return e
}

// Write keeps a document.
func Write(path string, version int, content any) error {
	b, err := json.Marshal(content)
	if err == nil {
		b, err = json.MarshalIndent(versioned{Version: version, Content: b}, "", "  ")
	}
	if err != nil {
		return fmt.Errorf("home: write %s: %w", path, err)
	}
	return WriteFile(path, append(b, '\n'))
}
