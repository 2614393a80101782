package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// TestF53_JobAsksInALoop: a job cannot take the runner's descriptors and streams by
// asking more than a person could ever answer; the asker that is turned away hears
// why, and a place that becomes free is given again.
func TestF53_JobAsksInALoop(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ask") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithCancel(t.Context())
	var open atomic.Int32
	full, decide := make(chan struct{}), make(chan struct{})
	a := &asks{dir: dir, put: func(ctx context.Context, question string) (link.Answer, error) {
		if open.Add(1) == maxAsks {
			close(full)
		}
		<-decide
		return link.Answer{Approved: true, Comment: question}, nil
	}}
	socket, stop, err := a.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); stop() })
	ask := func(question string) *bufio.Reader {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = fmt.Fprintf(conn, "{\"question\":%q}\n", question) // who is turned away may not be read
		return bufio.NewReader(conn)
	}
	answer := func(r *bufio.Reader) (reply protocol.AskReply) {
		line, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatalf("read an answer: %v", err)
		}
		if err := json.Unmarshal(line, &reply); err != nil {
			t.Fatal(err)
		}
		return reply
	}
	var waiting []*bufio.Reader
	for i := range maxAsks {
		waiting = append(waiting, ask(fmt.Sprint(i)))
	}
	<-full
	for range 100 {
		if got := answer(ask("one more")); !strings.Contains(got.Error, "wait already") || got.Approved != nil {
			t.Fatalf("question beyond the bound: %+v, want a refusal that says why", got)
		}
	}
	close(decide)
	for i, r := range waiting {
		if got := answer(r); got.Approved == nil || !*got.Approved || got.Comment != fmt.Sprint(i) {
			t.Errorf("question %d: %+v, want its approval", i, got)
		}
	}
	for { // the last place is given back a moment after its answer
		got := answer(ask("after"))
		if got.Approved != nil && *got.Approved {
			return
		}
		if !strings.Contains(got.Error, "wait already") {
			t.Fatalf("after the answers: %+v", got)
		}
	}
}

// A question that waits when its job has ended is withdrawn: nobody needs to answer
// it before the run can settle.
func TestAskIsWithdrawnWithItsJob(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ask")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	asked := make(chan struct{})
	a := &asks{dir: dir, put: func(ctx context.Context, _ string) (link.Answer, error) {
		close(asked)
		<-ctx.Done()
		return link.Answer{}, ctx.Err()
	}}
	socket, stop, err := a.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprintln(conn, `{"question":"Anybody?"}`)
	<-asked
	stop()
}

func TestAskThatIsTooLong(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ask")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &asks{dir: dir, put: func(context.Context, string) (link.Answer, error) {
		return link.Answer{}, fmt.Errorf("it was asked")
	}}
	socket, stop, err := a.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprint(conn, strings.Repeat("x", protocol.MaxAskLine))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "longer than 16 KiB") {
		t.Errorf("got %q, %v", line, err)
	}
}
