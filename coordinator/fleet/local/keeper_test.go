package local

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
)

// TestBounded: of what is written without end, the end is kept, on a bounded part of the
// disk.
func TestBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	b := &bounded{path: path, most: 1000}
	var all bytes.Buffer
	for i := range 5000 {
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		if n, err := b.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, 1, 500, 1000} {
		got, err := tail(path, limit)
		if want := all.Bytes()[int64(all.Len())-limit:]; err != nil || !bytes.Equal(got, want) {
			t.Errorf("the last %d bytes are %q, %v; want %q", limit, got, err, want)
		}
	}
	if got, err := tail(path, 1<<20); err != nil || len(got) > 2000 || !bytes.HasSuffix(all.Bytes(), got) {
		t.Errorf("%d bytes are kept, %v", len(got), err)
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ending ending
		cause  fleet.Cause // empty: no trouble
		says   string
		alive  bool
	}{
		"ended well":             {ending{}, "", "", false},
		"drained":                {ending{Asked: true}, "", "", false},
		"exit code":              {ending{Code: 3}, fleet.CauseExited, "exit code 3", false},
		"137 is not an OOM":      {ending{Code: 137, Signal: "killed"}, fleet.CauseExited, "signal: killed", false},
		"OOM":                    {ending{Code: 137, Signal: "killed", OutOfMemory: true}, fleet.CauseOOM, "want of memory", false},
		"an OOM of others":       {ending{Code: 1, OutOfMemory: true}, fleet.CauseExited, "exit code 1", false},
		"killed by the keeper":   {ending{Code: 137, Signal: "killed", OutOfMemory: true, Asked: true, Killed: true}, fleet.CauseEvicted, "told to end", false},
		"told to end":            {ending{Code: 143, Asked: true}, fleet.CauseEvicted, "told to end; exit code 143", false},
		"late":                   {ending{Code: 143, Late: true}, fleet.CauseDeadline, "deadline of 1m0s", false},
		"not started":            {ending{Failed: "no such file"}, fleet.CauseStart, "no such file", false},
		"something does not end": {ending{Left: 2}, fleet.CauseExited, "2 processes of it do not end", true},
	} {
		got := test.ending.trouble(time.Minute)
		switch {
		case test.cause == "":
			if got != nil {
				t.Errorf("%s: %+v, want no trouble", name, got)
			}
		case got == nil || got.Cause != test.cause || !strings.Contains(got.Message, test.says) || got.Dead == test.alive || !got.Final:
			t.Errorf("%s: %+v, want %s: %s", name, got, test.cause, test.says)
		}
	}
}
