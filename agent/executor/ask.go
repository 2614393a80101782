package executor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Asks puts questions of a job to a person. What it does with the sandbox
// meanwhile is its own matter.
type Asks interface {
	// Listen takes questions on a unix socket of the host until stop is called,
	// which withdraws those that wait for an answer. Who is not one of the attempt's
	// processes, as holds says, may not ask; holds may be nil, when nobody can tell.
	Listen(ctx context.Context, holds func(pid int) bool) (socket string, stop func(), err error)
	// Answer takes one question, a line of JSON that a job wrote, and waits for its
	// answer. It is for sandboxes whose commands cannot reach the host's sockets.
	Answer(ctx context.Context, line []byte) protocol.AskReply
}

// carrierWithin bounds the start of a sandbox's end of the questions: it takes
// milliseconds.
const carrierWithin = 30 * time.Second

// listen lets the harness ask a person. The socket is where its sandbox sees one,
// empty when it cannot ask; stop is called when nothing of the harness runs any
// more, and ctx of it bounds the wait for what was started.
func (x *execution) listen(ctx context.Context) (socket string, stop func(context.Context)) {
	var err error
	switch program := x.bare.Info().Asker; {
	case x.a.Asks == nil:
	case program != "":
		if socket, stop, err = x.carry(ctx, program); err == nil {
			return socket, stop
		}
	case !x.in.Container:
		var holds func(int) bool
		if h, ok := x.bare.(sandbox.Holder); ok {
			holds = h.Holds
		}
		var end func()
		if socket, end, err = x.a.Asks.Listen(ctx, holds); err == nil {
			return socket, func(context.Context) { end() }
		}
	}
	if err != nil {
		x.log.Error("this attempt cannot ask a person", "err", err)
	}
	return "", func(context.Context) {}
}

// carry starts the sandbox's program that takes questions inside and brings them
// here, one at a time (sandbox.Info.Asker). What it says is as hostile as the
// job: it is a question, whatever it holds.
func (x *execution) carry(ctx context.Context, program string) (socket string, stop func(context.Context), err error) {
	ctx, cancel := context.WithCancel(ctx)
	stdin, answers := io.Pipe()
	questions, stdout := io.Pipe()
	end := func() {
		cancel()
		_ = answers.Close()
		_ = questions.Close()
	}
	defer func() {
		if err != nil {
			end()
			err = fmt.Errorf("executor: listen for questions in the sandbox: %w", err)
		}
	}()
	// Not through the masks: they hold text back, and the question is masked as a whole.
	p, err := x.bare.Exec(ctx, sandbox.Command{Args: []string{program, "carry"}, Stdin: stdin, Stdout: stdout})
	if err != nil {
		return "", nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		<-p.Done()
		_ = stdout.CloseWithError(io.EOF)
	})
	lines := bufio.NewReaderSize(questions, protocol.MaxAskLine)
	bound, unbind := context.WithTimeout(ctx, carrierWithin)
	defer unbind()
	heard := context.AfterFunc(bound, func() { _ = stdout.CloseWithError(context.Cause(bound)) })
	line, err := lines.ReadSlice('\n')
	heard()
	if err != nil {
		return "", nil, err
	}
	socket = string(line[:len(line)-1])
	wg.Go(func() {
		defer end()
		for {
			line, err := lines.ReadSlice('\n') // a longer one is refused inside, else by its end here
			if err != nil {
				return
			}
			reply, err := json.Marshal(x.a.Asks.Answer(ctx, line))
			if err != nil {
				return
			}
			if _, err := answers.Write(append(reply, '\n')); err != nil {
				return
			}
		}
	})
	return socket, func(bound context.Context) {
		end()
		over := make(chan struct{})
		go func() {
			wg.Wait()
			close(over)
		}()
		select {
		case <-over:
		case <-bound.Done():
		}
	}, nil
}
