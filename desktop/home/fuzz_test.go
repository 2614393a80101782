package home

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzRead: a document is read, or is aside and has changed nothing.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":1,"content":{"Name":"a","Count":2}}`))
	f.Add([]byte(`{"version":99,"content":{}}`))
	f.Add([]byte(`{"version":1,"content":{"Name":"a","Count":"x"}}`))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "doc.json")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		was := doc{"default", 7}
		got := was
		err := Read(path, 1, &got, nil)
		var broken *BrokenError
		if err != nil && (!errors.As(err, &broken) || got != was) {
			t.Errorf("%v, and the document is %+v", err, got)
		}
		if _, stat := os.Stat(path); (err == nil) != (stat == nil) {
			t.Errorf("read with %v, and the file: %v", err, stat)
		}
	})
}
