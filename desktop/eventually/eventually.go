// Package eventually waits in tests for what will come about.
package eventually

import (
	"testing"
	"time"
)

// Patience is how long a wait may take before it has failed; a busy machine needs some.
const Patience = 60 * time.Second

// Nil asks until the condition returns nil, and fails the test with what it last said.
func Nil(t testing.TB, what string, condition func() error) {
	t.Helper()
	deadline := time.After(Patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %v for %s: %v", Patience, what, err)
		}
	}
}
