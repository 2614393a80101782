package log

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// Whoever reads along sees what was written, in order, each byte once or told that it was missed.
func TestTail(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tail := NewTail(50)
		var whole strings.Builder
		var from int64
		read := func() {
			for from < int64(whole.Len()) {
				p, at, err := tail.Read(t.Context(), from)
				if err != nil {
					t.Fatal(err)
				}
				if want := whole.String()[at : at+int64(len(p))]; string(p) != want || at < from || len(p) == 0 {
					t.Fatalf("seed %d: from %d came %q at %d, want %q", seed, from, p, at, want)
				}
				if at > from && at != int64(whole.Len())-50 {
					t.Fatalf("seed %d: bytes %d to %d were skipped, although the last 50 of %d are kept", seed, from, at, whole.Len())
				}
				from = at + int64(len(p))
			}
		}
		for range 50 {
			p := make([]byte, rng.IntN(130))
			for i := range p {
				p[i] = byte('a' + (whole.Len()+i)%26)
			}
			whole.Write(p)
			if n, err := tail.Write(p); n != len(p) || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
			if rng.IntN(3) == 0 {
				read()
			}
		}
		tail.Close()
		read()
		if _, _, err := tail.Read(t.Context(), from); !errors.Is(err, io.EOF) {
			t.Fatalf("after the end: %v, want EOF", err)
		}
	}
}

func TestTailWaits(t *testing.T) {
	t.Parallel()
	tail := NewTail(10)
	got := make(chan string, 1)
	go func() {
		p, _, _ := tail.Read(context.Background(), 0)
		got <- string(p)
	}()
	if _, err := tail.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "x" {
		t.Errorf("got %q", s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := tail.Read(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
