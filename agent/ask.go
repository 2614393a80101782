package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// maxAsks is how many questions of one attempt are taken at a time. Each holds a
// descriptor and a goroutine of the runner, a stream of its session and a wait in
// the coordinator, and a job may ask in a loop.
const maxAsks = 32

// askDeadline bounds the reading of a question; the answer may take days.
const askDeadline = 10 * time.Second

const (
	// socketName is how many characters the name of a socket has: enough to tell those of
	// one runner apart.
	socketName = 8
	// maxSocket is how long its path may be: macOS allows 103 bytes, Linux 107.
	maxSocket = 103
)

// acceptPause is how long the listening rests after a connection could not be
// taken.
const acceptPause = 100 * time.Millisecond

// asks is how the job of one attempt asks a person.
type asks struct {
	dir string // of the sockets
	put func(ctx context.Context, question string) (link.Answer, error)
}

// Listen implements executor.Asks.
func (a *asks) Listen(ctx context.Context, holds func(pid int) bool) (socket string, stop func(), err error) {
	dir, remove, err := a.place()
	if err != nil {
		return "", nil, fmt.Errorf("agent: make a place for questions: %w", err)
	}
	id := protocol.NewID("")
	socket = filepath.Join(dir, id[len(id)-socketName:])
	l, err := net.Listen("unix", socket)
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("agent: listen for questions: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		err = errors.Join(fmt.Errorf("agent: listen for questions: %w", err), l.Close())
		remove()
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &asker{asks: a, listener: l, holds: holds, places: make(chan struct{}, maxAsks)}
	k.wg.Go(func() { k.accept(ctx) })
	return socket, func() {
		cancel()
		_ = l.Close()
		k.wg.Wait()
		remove()
	}, nil
}

// place is a directory for a socket: the runner's own, or, where that has too long a path,
// as some clusters give it, a new one among the temporary files.
func (a *asks) place() (dir string, remove func(), err error) {
	fits := func(dir string) bool { return len(dir)+1+socketName <= maxSocket }
	if fits(a.dir) {
		return a.dir, func() {}, nil
	}
	const pattern = "everdict-ask-*"
	among := os.TempDir()
	if !fits(filepath.Join(among, pattern+"0123456789")) { // it is the cluster's, too
		among = "/tmp"
	}
	dir, err = os.MkdirTemp(among, pattern)
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

// Answer implements executor.Asks.
func (a *asks) Answer(ctx context.Context, line []byte) protocol.AskReply {
	asked := question(line)
	if asked == "" {
		return protocol.AskReply{Error: `want one line {"question": "..."}`}
	}
	ans, err := a.put(ctx, asked)
	if err != nil {
		return protocol.AskReply{Error: err.Error()}
	}
	return protocol.AskReply{Approved: &ans.Approved, Comment: ans.Comment}
}

// question is what a line of a job asks; empty: it asks nothing.
func question(line []byte) string {
	var q protocol.AskQuestion
	if json.Unmarshal(line, &q) != nil {
		return ""
	}
	return q.Question
}

// asker takes questions from a socket.
type asker struct {
	*asks
	listener net.Listener
	holds    func(pid int) bool // nil: nobody can tell whose processes ask
	places   chan struct{}
	wg       sync.WaitGroup
}

func (a *asker) accept(ctx context.Context) {
	for {
		conn, err := a.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is free: one will be
			select {
			case <-time.After(acceptPause):
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case a.places <- struct{}{}:
		default:
			// What fits into the socket's buffer does not block.
			_ = json.NewEncoder(conn).Encode(protocol.AskReply{Error: fmt.Sprintf("%d questions of this run wait already", maxAsks)})
			_ = conn.Close()
			continue
		}
		a.wg.Go(func() {
			defer func() { <-a.places }()
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			a.answer(ctx, conn)
		})
	}
}

func (a *asker) answer(ctx context.Context, conn net.Conn) {
	// All jobs of a runner are one user, and can find each other's sockets.
	if a.holds != nil {
		if pid, ok := peer(conn); ok && !a.holds(pid) {
			_ = json.NewEncoder(conn).Encode(protocol.AskReply{Error: fmt.Sprintf("process %d is none of the run whose questions are taken here", pid)})
			return
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(askDeadline))
	line, err := bufio.NewReader(io.LimitReader(conn, protocol.MaxAskLine)).ReadBytes('\n')
	switch {
	case err == nil:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		_ = conn.SetReadDeadline(time.Time{})
		a.wg.Go(func() {
			awaitClose(ctx, conn)
			cancel()
		})
		reply := a.Answer(ctx, line)
		_ = json.NewEncoder(conn).Encode(reply)
	case len(line) == protocol.MaxAskLine:
		_ = json.NewEncoder(conn).Encode(protocol.AskReply{Error: fmt.Sprintf("the question is longer than %d KiB", protocol.MaxAskLine>>10)})
	}
}
