package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
)

// maxAnswer bounds the line that answers a question.
const maxAnswer = 1 << 20

// askAnswer is what a person decided.
type askAnswer struct {
	Approved bool   `json:"approved"`
	Comment  string `json:"comment,omitempty"`
}

func (a *app) askCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ask QUESTION",
		Short: "Ask a person, from inside a run, and wait for the answer",
		Long: `Ask a person, from inside a run, and wait for the answer. The run is suspended meanwhile, and its clock stands
still; somebody answers with everdict runs approve or everdict runs reject. A comment to the answer goes to
stdout.

Exit codes: 0 approved, 1 rejected, 2 nobody could be asked.`,
		Example: `  everdict ask "May I run the migration?" && ./migrate.sh
  everdict ask -o json "Which of the two plans?"`,
		Args:        args("question"),
		Annotations: map[string]string{noConfig: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			socket := a.getenv(protocol.AskSocketEnv)
			if socket == "" {
				return &adviceError{errors.New("there is nobody to ask: " + protocol.AskSocketEnv + " is not set"),
					"everdict ask works inside a run only; a runner sets the variable"}
			}
			answer, err := ask(cmd.Context(), socket, args[0])
			if code := interrupted(cmd.Context()); err != nil && code != 0 {
				return &ExitError{Code: code}
			}
			if err != nil {
				return &adviceError{fmt.Errorf("ask: %w", err), "is the runner of this job still there? the question can be asked again"}
			}
			if a.forPrograms() {
				err = a.json(answer)
			} else if answer.Comment != "" {
				_, err = fmt.Fprintln(a.out, answer.Comment)
			}
			if err == nil && !answer.Approved {
				return &ExitError{Code: exitFail}
			}
			return err
		},
	}
}

// ask sends one line and waits for one line, for as long as it takes.
func ask(ctx context.Context, socket, question string) (*askAnswer, error) {
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
	return &askAnswer{*answer.Approved, answer.Comment}, nil
}
