package ask

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/everdict/everdict/protocol"
)

// Exit codes of Main.
const (
	exitApproved = 0
	exitRejected = 1
	exitNobody   = 2
)

const usage = `Ask a person, from inside a run, and wait for the answer. The run is suspended meanwhile, and its clock stands
still. A comment to the answer goes to stdout.

Usage:
  everdict ask QUESTION [-o table|json|jsonl]

Exit codes: 0 approved, 1 rejected, 2 nobody could be asked.

This is all that everdict does in a launched unit.
`

// Command is an "everdict" that knows ask alone, with what follows its name; it returns its
// exit code.
func Command(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	question, output, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return exitApproved
	}
	var answer *Answer
	if err == nil {
		answer, err = Put(ctx, getenv, question)
	}
	if err == nil {
		err = answer.write(stdout, output)
	}
	switch {
	case err != nil:
		report(stderr, output, err)
		return exitNobody
	case !answer.Approved:
		return exitRejected
	}
	return exitApproved
}

// parse reads a command line; flag.ErrHelp: it asks for help, or for nothing.
func parse(args []string) (question, output string, err error) {
	f := flag.NewFlagSet("everdict", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&output, "o", "table", "")
	f.StringVar(&output, "output", "table", "")
	var words []string
	for rest := args; len(rest) > 0; {
		if err := f.Parse(rest); err != nil {
			return "", output, usageError(err)
		}
		read := len(rest) - f.NArg()
		if read > 0 && rest[read-1] == "--" {
			words = append(words, f.Args()...)
			break
		}
		if rest = f.Args(); len(rest) > 0 {
			words, rest = append(words, rest[0]), rest[1:]
		}
	}
	switch {
	case len(words) == 0:
		return "", output, flag.ErrHelp
	case !slices.Contains([]string{"table", "json", "jsonl"}, output):
		return "", "table", usageError(fmt.Errorf("-o is table, json or jsonl, not %s", output))
	case words[0] != "ask":
		return "", output, usageError(fmt.Errorf("here everdict can only ask, there is no command everdict %s", words[0]))
	case len(words) == 1:
		return "", output, usageError(errors.New("the question is missing"))
	case words[1] == "":
		return "", output, usageError(errors.New("argument 1 is empty"))
	case len(words) > 2:
		return "", output, usageError(fmt.Errorf("one argument too many: %s", words[2]))
	}
	return words[1], output, nil
}

// usageError is a command line that is wrong; a wish for help is none.
func usageError(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return &Error{err, "see everdict ask --help"}
}

func (a *Answer) write(to io.Writer, output string) (err error) {
	switch {
	case output != "table":
		e := json.NewEncoder(to)
		e.SetEscapeHTML(false)
		if output == "json" {
			e.SetIndent("", "  ")
		}
		err = e.Encode(a)
	case a.Comment != "":
		_, err = fmt.Fprintln(to, a.Comment)
	}
	if err != nil {
		return &Error{fmt.Errorf("the answer could not be written: %w", err), "is stdout still open?"}
	}
	return nil
}

// report says what went wrong and what to do next: two lines for a person, a problem
// document for a program.
func report(to io.Writer, output string, err error) {
	next := ""
	var e *Error
	if errors.As(err, &e) {
		next = e.Next
	}
	if output != "table" {
		_ = json.NewEncoder(to).Encode(protocol.Problem{Code: protocol.CodeBadRequest, Message: err.Error(), Hint: next}) // who does not read it has the exit code
		return
	}
	// A terminal does not obey what somebody else wrote.
	shown := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, err.Error())
	fmt.Fprintf(to, "everdict: %s\n  next: %s\n", shown, next)
}
