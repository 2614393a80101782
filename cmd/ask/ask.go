// Package ask puts a question of a job to a person, for the programs that stand on the PATH
// of jobs as "everdict": it is the other end of the socket on which their runner listens.
package ask

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/everdict/everdict/protocol"
)

// maxAnswer bounds the line that answers a question.
const maxAnswer = 1 << 20

// Answer is what a person decided.
type Answer struct {
	Approved bool   `json:"approved"`
	Comment  string `json:"comment,omitempty"`
}

// Error says that nobody could be asked, and what to do next.
type Error struct {
	Err  error
	Next string
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Put asks, and waits for the answer for as long as it takes. An error is an *Error.
func Put(ctx context.Context, getenv func(string) string, question string) (*Answer, error) {
	socket := getenv(protocol.AskSocketEnv)
	if socket == "" {
		return nil, &Error{errors.New("there is nobody to ask: " + protocol.AskSocketEnv + " is not set"),
			"everdict ask works inside a run only; a runner sets the variable"}
	}
	answer, err := put(ctx, socket, question)
	if err != nil {
		return nil, &Error{fmt.Errorf("ask: %w", err), "is the runner of this job still there? the question can be asked again"}
	}
	return answer, nil
}

// put sends one line and waits for one line.
func put(ctx context.Context, socket, question string) (*Answer, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	line, err := json.Marshal(protocol.AskQuestion{Question: question})
	if err != nil {
		return nil, err
	}
	_, unsent := conn.Write(append(line, '\n'))
	// Who is turned away may be so before it has asked: then the reason is there to be read.
	reply, err := bufio.NewReader(io.LimitReader(conn, maxAnswer)).ReadBytes('\n')
	if err != nil {
		if unsent != nil {
			return nil, unsent
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the runner closed the connection without an answer")
		}
		return nil, err
	}
	var answer protocol.AskReply
	switch err := json.Unmarshal(reply, &answer); {
	case err != nil:
		return nil, fmt.Errorf("the runner's answer does not decode: %w", err)
	case answer.Error != "":
		return nil, errors.New(answer.Error)
	case answer.Approved == nil:
		return nil, errors.New("the runner's answer says neither yes nor no")
	}
	return &Answer{*answer.Approved, answer.Comment}, nil
}
