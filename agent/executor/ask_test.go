package executor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/fake"
	"github.com/everdict/everdict/protocol"
)

// person answers the first few questions and lets the others wait.
type person struct {
	patience int

	mu    sync.Mutex
	asked []string
}

func (p *person) Listen(context.Context, func(int) bool) (string, func(), error) {
	return "/host", func() {}, nil
}

func (p *person) Answer(ctx context.Context, line []byte) protocol.AskReply {
	p.mu.Lock()
	p.asked = append(p.asked, string(line))
	n := len(p.asked)
	p.mu.Unlock()
	if n <= p.patience {
		return protocol.AskReply{Comment: fmt.Sprint(n)}
	}
	<-ctx.Done()
	return protocol.AskReply{Error: ctx.Err().Error()}
}

// TestCarry: whatever the sandbox's end of the questions does, the harness runs, at worst without anybody to ask, and
// nothing waits for it at the end.
func TestCarry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script, socket string
		asked                []string
	}{
		{"answers come back", `exec carry: print /sock; print first; cat`, "/sock", []string{"first\n", `{"comment":"1"}` + "\n", `{"comment":"2"}` + "\n"}},
		{"it does not start", `exec carry: fail no memory`, "", nil},
		{"it ends at once", `exec carry: exit 2`, "", nil},
		{"it says half of it", `exec carry: print "/so"; exit 0`, "", nil},
		{"it says nothing", `exec carry: hang`, "", nil},
		{"it says no end of it", `exec carry: print /sock; print "` + strings.Repeat("x", 2*protocol.MaxAskLine) + `"; hang`, "/sock", nil},
		{"it ends later", `exec carry: print /sock; sleep 1m; exit 1`, "/sock", nil},
		{"it takes no answer", `exec carry: print /sock; print first; exit 0`, "/sock", []string{"first\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := fake.New(fake.Config{Script: tt.script, Info: sandbox.Info{Asker: "/asker"}})
				h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "run_1.1", Dir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				p := &person{patience: 2}
				x := &execution{Executor: New(Config{}), log: slog.New(slog.DiscardHandler), a: Attempt{Asks: p}, in: Lane{Container: true}, bare: h}
				socket, stop := x.listen(t.Context())
				if socket != tt.socket {
					t.Errorf("socket %q, want %q", socket, tt.socket)
				}
				time.Sleep(2 * time.Minute) // of the bubble: everything that can happen has
				if err := h.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				stop(t.Context())
				if took := time.Since(begin); took > 0 {
					t.Errorf("the end waited %s", took)
				}
				if !slices.Equal(p.asked, tt.asked) {
					t.Errorf("asked %q, want %q", p.asked, tt.asked)
				}
				if err := h.Release(context.WithoutCancel(t.Context())); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// Without its own end of the questions a container has nobody to ask; a process has the host's socket.
func TestListen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		container bool
		asks      Asks
		want      string
	}{
		{"process", false, &person{}, "/host"},
		{"container", true, &person{}, ""},
		{"nobody", false, nil, ""},
	} {
		h, err := fake.New(fake.Config{}).Start(t.Context(), sandbox.Spec{Attempt: "run_1.1", Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		x := &execution{Executor: New(Config{}), log: slog.New(slog.DiscardHandler), a: Attempt{Asks: tt.asks}, in: Lane{Container: tt.container}, bare: h}
		socket, stop := x.listen(t.Context())
		if socket != tt.want {
			t.Errorf("%s: socket %q, want %q", tt.name, socket, tt.want)
		}
		stop(t.Context())
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
