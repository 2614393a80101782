package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
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
	socket, stop, err := a.Listen(ctx, nil)
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
	socket, stop, err := a.Listen(t.Context(), nil)
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
	socket, stop, err := a.Listen(t.Context(), nil)
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

// listening is a socket for questions, each of which waits until it is withdrawn.
func listening(t *testing.T, holds func(int) bool) (conn *net.UnixConn, asked chan string, withdrawn chan struct{}) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ask")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	asked, withdrawn = make(chan string, 1), make(chan struct{})
	a := &asks{dir: dir, put: func(ctx context.Context, question string) (link.Answer, error) {
		asked <- question
		if question == "Quick?" {
			return link.Answer{Approved: true}, nil
		}
		<-ctx.Done()
		close(withdrawn)
		return link.Answer{}, ctx.Err()
	}}
	socket, stop, err := a.Listen(t.Context(), holds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, asked, withdrawn
}

// A job cannot ask in another one's name: who connects is looked at.
func TestAskOfAnotherRun(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says here who has connected")
	}
	for _, mine := range []bool{true, false} {
		var looked atomic.Int64
		conn, asked, _ := listening(t, func(pid int) bool { looked.Store(int64(pid)); return mine })
		_, _ = fmt.Fprintln(conn, `{"question":"Quick?"}`) // who is turned away may not be read
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || strings.Contains(line, "none of the run") == mine || strings.Contains(line, "approved") != mine {
			t.Errorf("mine %v: got %q, %v", mine, line, err)
		}
		if got := looked.Load(); got != int64(os.Getpid()) {
			t.Errorf("process %d was looked at, %d has asked", got, os.Getpid())
		}
		if mine != (len(asked) > 0) {
			t.Errorf("mine %v: %d questions were put", mine, len(asked))
		}
	}
}

// Who does not wait for the answer any more has withdrawn the question.
func TestAskerGoesAway(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere it shows when the answer is written")
	}
	conn, asked, withdrawn := listening(t, nil)
	_, _ = fmt.Fprintln(conn, `{"question":"Still?"}`)
	<-asked
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-withdrawn
}

// Who has only ended its half of a connection, as some programs do behind their one line, waits.
func TestAskerSaysNoMore(t *testing.T) {
	t.Parallel()
	conn, asked, _ := listening(t, nil)
	if _, err := fmt.Fprintln(conn, `{"question":"Quick?"}`); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "Quick?" {
		t.Errorf("asked %q", got)
	}
	if reply, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(reply, "approved") {
		t.Errorf("got %q, %v", reply, err)
	}
}

// A runner's directory may have any path; that of a socket may not.
func TestAskInADirectoryOfALongName(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a := &asks{dir: dir, put: func(context.Context, string) (link.Answer, error) { return link.Answer{Approved: true}, nil }}
	socket, stop, err := a.Listen(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintln(conn, `{"question":"Anybody?"}`)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, `"approved":true`) {
		t.Errorf("got %q, %v", line, err)
	}
	_ = conn.Close()
	stop()
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("the directory of the socket is left: %v", err)
	}
}
