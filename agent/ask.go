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

// acceptPause is how long the listening rests after a connection could not be
// taken.
const acceptPause = 100 * time.Millisecond

// asker takes the questions of one attempt's job and hands on the answers.
type asker struct {
	listener net.Listener
	put      func(ctx context.Context, question string) (link.Answer, error)
	places   chan struct{}
	wg       sync.WaitGroup
}

// listenAsk listens on a socket below dir. The path is short, because the
// kernel allows 107 bytes.
func listenAsk(ctx context.Context, dir string, put func(context.Context, string) (link.Answer, error)) (*asker, string, error) {
	path := filepath.Join(dir, protocol.NewID(""))
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, "", fmt.Errorf("agent: listen for questions: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, "", errors.Join(fmt.Errorf("agent: listen for questions: %w", err), l.Close())
	}
	a := &asker{listener: l, put: put, places: make(chan struct{}, maxAsks)}
	a.wg.Go(func() { a.accept(ctx) })
	return a, path, nil
}

// close ends the listening and waits for what is being answered; ctx of
// listenAsk must have ended for questions that wait.
func (a *asker) close() {
	_ = a.listener.Close()
	a.wg.Wait()
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
	_ = conn.SetReadDeadline(time.Now().Add(askDeadline))
	line, err := bufio.NewReader(io.LimitReader(conn, link.MaxText)).ReadBytes('\n')
	if err != nil {
		return
	}
	var q protocol.AskQuestion
	var reply protocol.AskReply
	if err := json.Unmarshal(line, &q); err != nil || q.Question == "" {
		reply.Error = `want one line {"question": "..."}`
	} else if ans, err := a.put(ctx, q.Question); err != nil {
		reply.Error = err.Error()
	} else {
		reply.Approved, reply.Comment = &ans.Approved, ans.Comment
	}
	_ = json.NewEncoder(conn).Encode(reply)
}
