package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

func (a *app) runsLogs() *cobra.Command {
	var follow, raw bool
	var part protocol.LogQuery
	cmd := &cobra.Command{
		Use:   "logs RUN",
		Short: "Show what a run has written",
		Long: `Show what a run has written to stdout and stderr. On a terminal, control characters and escape sequences are
shown and not sent to it, unless --raw is given; to a file or a pipe the log goes byte for byte. With -f the
log is shown as it grows, until the run is over.`,
		Example: `  everdict runs logs run_01k0
  everdict runs logs -f run_01k0
  everdict runs logs run_01k0 --stream stderr --tail 4096
  everdict runs logs run_01k0 --attempt 1
  everdict runs logs run_01k0 > log.txt`,
		Args:        args("run id"),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			if part.Stream != "" && part.Stream != protocol.StreamStdout && part.Stream != protocol.StreamStderr {
				return &usageError{cmd, fmt.Sprintf("--stream is stdout or stderr, not %q", part.Stream)}
			}
			if err := notNegative(cmd, "tail"); err != nil {
				return err
			}
			if follow && part.Tail > 0 {
				return &usageError{cmd, "--tail and -f do not go together"}
			}
			if err := pickAttempt(cmd, part.Attempt, follow); err != nil {
				return err
			}
			return a.withRun(func(ctx context.Context, c *client.Client, id string) error {
				if !follow {
					return a.printLog(ctx, c, id, part, raw)
				}
				err := a.followLog(ctx, c, id, part.Stream, raw)
				if err != nil {
					return a.detached(ctx, id, "everdict runs logs -f", err)
				}
				return nil
			})(cmd, args)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on until the run is over")
	f.BoolVar(&raw, "raw", false, "send control characters to the terminal as they are")
	f.StringVar(&part.Stream, "stream", "", "stdout or stderr; both without it")
	f.Int64Var(&part.Tail, "tail", 0, "only this many bytes from the end")
	attemptFlag(cmd, &part.Attempt)
	a.fixed(cmd, "stream", protocol.StreamStdout, protocol.StreamStderr)
	return cmd
}

// attemptFlag picks the attempt whose evidence is shown.
func attemptFlag(cmd *cobra.Command, attempt *int64) {
	cmd.Flags().Int64Var(attempt, "attempt", 0, "that of an earlier attempt (everdict runs attempts); the newest without it")
}

// pickAttempt says what is wrong with --attempt, if anything is.
func pickAttempt(cmd *cobra.Command, attempt int64, follow bool) error {
	switch {
	case !cmd.Flags().Changed("attempt"):
		return nil
	case attempt < 1:
		return &usageError{cmd, fmt.Sprintf("--attempt is the number of an attempt, from 1 on, not %d", attempt)}
	case follow:
		return &usageError{cmd, "--attempt and -f do not go together: -f follows the newest"}
	}
	return nil
}

func (a *app) printLog(ctx context.Context, c *client.Client, id string, part protocol.LogQuery, raw bool) error {
	if a.forPrograms() {
		view, err := c.Log(ctx, id, part)
		if err != nil {
			return err
		}
		return a.json(view)
	}
	body, err := c.RawLog(ctx, id, part)
	if err != nil {
		return err
	}
	defer body.Close()
	w, end := a.logWriter(raw)
	n, err := io.Copy(w, body)
	if err != nil {
		return a.detached(ctx, id, "everdict runs logs", fmt.Errorf("read the log: %w", err))
	}
	if n == 0 {
		a.hint("nothing has been written to %s; what the agent did: everdict runs trace %s", firstOf(part.Stream, "stdout and stderr"), id)
	}
	return end()
}

// logWriter is where a run's bytes go: stdout, made safe for a terminal.
func (a *app) logWriter(raw bool) (w io.Writer, end func() error) {
	if raw || !a.isTerminal(a.out) {
		return a.out, func() error { return nil }
	}
	s := &sanitizer{w: a.out}
	return s, s.Close
}

func (a *app) followLog(ctx context.Context, c *client.Client, id, stream string, raw bool) error {
	w, end := a.logWriter(raw)
	list := a.newList()
	for text, err := range c.FollowLog(ctx, id, stream) {
		if err != nil {
			return errors.Join(err, end())
		}
		if a.forPrograms() {
			err = list.add(struct {
				Text string `json:"text"`
			}{text})
		} else {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			return err
		}
	}
	if a.forPrograms() {
		return list.end()
	}
	return end()
}

func (a *app) runsTrace() *cobra.Command {
	var follow, full bool
	var attempt int64
	cmd := &cobra.Command{
		Use:   "trace RUN",
		Short: "Show what the agent did, step by step",
		Example: `  everdict runs trace run_01k0
  everdict runs trace -f run_01k0
  everdict runs trace run_01k0 --attempt 1
  everdict runs trace run_01k0 -o jsonl | jq 'select(.kind == "tool_call")'`,
		Args:        args("run id"),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := pickAttempt(cmd, attempt, follow); err != nil {
				return err
			}
			return a.withRun(func(ctx context.Context, c *client.Client, id string) error {
				if !follow {
					return a.printTrace(c.Trace(ctx, id, attempt), full)
				}
				if err := a.printTrace(c.FollowTrace(ctx, id), full); err != nil {
					return a.detached(ctx, id, "everdict runs trace -f", err)
				}
				return nil
			})(cmd, args)
		},
	}
	attemptFlag(cmd, &attempt)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run is over")
	cmd.Flags().BoolVar(&full, "full", false, "do not cut long lines")
	return cmd
}

func (a *app) printTrace(events iter.Seq2[protocol.TraceEvent, error], full bool) error {
	if a.forPrograms() {
		_, err := printList(a, events)
		return err
	}
	width := 160
	if full {
		width = 0
	}
	p := a.palette(a.out)
	start, any := 0.0, false
	for e, err := range events {
		if err != nil {
			return err
		}
		if !any {
			start, any = e.T, true
		}
		line := eventLine(e, width)
		switch e.Kind {
		case protocol.EventError:
			line = p.red(line)
		case protocol.EventToolCall:
			line = p.cyan(line)
		case protocol.EventLog, protocol.EventSpan, protocol.EventLLMCall, protocol.EventInfra:
			line = p.dim(line)
		case protocol.EventToolResult:
			if e.OK != nil && !*e.OK {
				line = p.red(line)
			}
		}
		at := time.Duration((e.T - start) * float64(time.Millisecond))
		if _, err := fmt.Fprintf(a.out, "%s  %s\n", p.dim(fmt.Sprintf("%8s", "+"+span(at))), line); err != nil {
			return err
		}
	}
	if !any {
		fmt.Fprintln(a.out, "no trace events")
	}
	return nil
}

func (a *app) runsDiff() *cobra.Command {
	var stat, raw bool
	var attempt int64
	cmd := &cobra.Command{
		Use:   "diff RUN",
		Short: "Show what a run changed in its repository",
		Long: `Show what a run changed in its repository. To a file or a pipe the diff goes byte for byte, and git apply
--binary takes it.`,
		Example: `  everdict runs diff run_01k0
  everdict runs diff run_01k0 --stat
  everdict runs diff run_01k0 --attempt 1
  everdict runs diff run_01k0 | git apply --binary`,
		Args: args("run id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := pickAttempt(cmd, attempt, false); err != nil {
				return err
			}
			return a.withRun(func(ctx context.Context, c *client.Client, id string) error {
				if stat || a.forPrograms() {
					return a.printDiffStat(ctx, c, id, attempt)
				}
				body, err := c.Diff(ctx, id, attempt)
				if err != nil {
					return err
				}
				defer body.Close()
				if raw || !a.isTerminal(a.out) {
					_, err = io.Copy(a.out, body)
				} else {
					err = a.showDiff(body)
				}
				if err != nil {
					return fmt.Errorf("read the diff: %w", err)
				}
				return nil
			})(cmd, args)
		},
	}
	attemptFlag(cmd, &attempt)
	cmd.Flags().BoolVar(&stat, "stat", false, "only the changed files and the number of lines")
	cmd.Flags().BoolVar(&raw, "raw", false, "send control characters to the terminal as they are")
	return cmd
}

// diffSummary is a diff in -o json.
type diffSummary struct {
	ChangedFiles []string               `json:"changedFiles"`
	Added        int                    `json:"added"`
	Removed      int                    `json:"removed"`
	Binary       int                    `json:"binary"`
	Bytes        int                    `json:"bytes"`
	Omitted      []protocol.OmittedFile `json:"omitted,omitempty"`
	Diff         string                 `json:"diff,omitempty"`
}

func (a *app) printDiffStat(ctx context.Context, c *client.Client, id string, attempt int64) error {
	result, err := resultOf(ctx, c, id, attempt)
	if err != nil {
		return err
	}
	body, err := c.Diff(ctx, id, attempt)
	if err != nil {
		return err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read the diff: %w", err)
	}
	s := statOf(string(b))
	out := diffSummary{ChangedFiles: []string{}, Added: s.added, Removed: s.removed, Binary: s.binary, Bytes: len(b)}
	if result != nil {
		out.ChangedFiles = append(out.ChangedFiles, result.Snapshot.ChangedFiles...)
		out.Omitted = result.Snapshot.Omitted
	}
	if a.forPrograms() {
		out.Diff = string(b)
		return a.json(out)
	}
	for _, f := range out.ChangedFiles {
		fmt.Fprintln(a.out, cell(f))
	}
	fmt.Fprintf(a.out, "%s changed, %s\n", plural(s.files, "file"), s)
	return nil
}

// resultOf is the result of a run, or of one of its attempts; nil if there is none.
func resultOf(ctx context.Context, c *client.Client, id string, attempt int64) (*protocol.CaseResult, error) {
	if attempt == 0 {
		run, err := c.Run(ctx, id)
		if err != nil {
			return nil, err
		}
		return run.Result, nil
	}
	attempts, err := c.Attempts(ctx, id)
	for _, a := range attempts {
		if a.Attempt == attempt {
			return a.Result, err
		}
	}
	return nil, err
}

// showDiff colours a diff for a terminal, and shows what would act on it.
func (a *app) showDiff(r io.Reader) error {
	p := a.palette(a.out)
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			text := safeText(strings.TrimSuffix(line, "\n"))
			switch {
			case strings.HasPrefix(text, "+++"), strings.HasPrefix(text, "---"), strings.HasPrefix(text, "diff "):
				text = p.bold(text)
			case strings.HasPrefix(text, "+"):
				text = p.green(text)
			case strings.HasPrefix(text, "-"):
				text = p.red(text)
			case strings.HasPrefix(text, "@@"):
				text = p.cyan(text)
			}
			if _, err := fmt.Fprintln(a.out, text); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (a *app) runsEvents() *cobra.Command {
	return &cobra.Command{
		Use:   "events RUN",
		Short: "Show the steps of a run's life: submitted, leased, started, settled",
		Example: `  everdict runs events run_01k0
  everdict runs events run_01k0 -o jsonl`,
		Args:        args("run id"),
		Annotations: map[string]string{jsonLines: ""},
		RunE: a.withRun(func(ctx context.Context, c *client.Client, id string) error {
			events, err := c.Events(ctx, id)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				_, err := printList(a, each(events))
				return err
			}
			var rows [][]string
			for i, e := range events {
				at := "+0s"
				if i > 0 {
					at = "+" + span(e.At.Sub(events[0].At.Time))
				}
				attempt := "-"
				if e.Attempt > 0 {
					attempt = fmt.Sprint(e.Attempt)
				}
				rows = append(rows, []string{at, cell(e.Kind), attempt, cell(e.Runner), cell(e.Message)})
			}
			writeTable(a.out, []string{"AT", "EVENT", "ATTEMPT", "RUNNER", "WHAT"}, rows)
			return nil
		}),
	}
}

func (a *app) runsAttempts() *cobra.Command {
	return &cobra.Command{
		Use:   "attempts RUN",
		Short: "Show each try of a run, and what came late from superseded ones",
		Example: `  everdict runs attempts run_01k0
  everdict runs attempts run_01k0 -o json`,
		Args:        args("run id"),
		Annotations: map[string]string{jsonLines: ""},
		RunE: a.withRun(func(ctx context.Context, c *client.Client, id string) error {
			attempts, err := c.Attempts(ctx, id)
			none := nothing{"no attempts", "why it waits: everdict runs why " + id}
			return show(a, attempts, err, none, []string{"ATTEMPT", "OUTCOME", "RUNNER", "STARTED", "ENDED", "LATE RESULT", "WHAT"}, func() (rows [][]string) {
				for _, t := range attempts {
					late := "-"
					if t.LateAt != nil {
						late = a.ago(*t.LateAt)
					}
					rows = append(rows, []string{fmt.Sprint(t.Attempt), cell(t.Outcome), cell(firstOf(t.RunnerLabel, t.Runner)), a.agoPtr(t.StartedAt), a.agoPtr(t.EndedAt), late, cell(t.Message)})
				}
				return rows
			})
		}),
	}
}
