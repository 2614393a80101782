package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

func (a *app) runsHandOut() *cobra.Command {
	var file string
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "hand-out RUN --payload-file FILE",
		Short: "Write the next attempt of a queued run to a file, for a machine that cannot reach the coordinator",
		Long: `Write the next attempt of a queued run to a file, for a machine that cannot reach the coordinator. job-runner carries
it out there (EVERDICT_PAYLOAD_FILE) and prints the result. From now on nobody else gets the run, until its result
is delivered, the payload is taken back, or it has been out for too long: then the run has failed. The file holds
credentials for this attempt, and no value of a secret.`,
		Example: `  everdict runs hand-out run_01k0 --payload-file payload.json
  EVERDICT_PAYLOAD_FILE=payload.json job-runner > output
  everdict runs deliver run_01k0 -f output`,
		Args: args("run id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return &usageError{cmd, "say where to: --payload-file FILE"}
			}
			if expires < time.Second {
				return &usageError{cmd, fmt.Sprintf("--expires %s: want a second or more", expires)}
			}
			seconds := int64(expires / time.Second)
			req := protocol.PayloadRequest{ExpiresInSec: &seconds}
			if err := req.Validate(); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			// Before the attempt is out: a file that cannot be written would lose it.
			f, err := createSecret(file)
			if err != nil {
				return err
			}
			defer f.Close()
			p, err := c.HandOut(cmd.Context(), args[0], req)
			if err != nil {
				return errors.Join(err, os.Remove(file))
			}
			if err = errors.Join(json.NewEncoder(f).Encode(p), f.Close()); err != nil {
				return &adviceError{fmt.Errorf("write the payload: %w", err), "the run is out all the same: everdict runs take-back " + p.Job.RunID}
			}
			if a.forPrograms() {
				return a.json(map[string]any{"runId": p.Job.RunID, "attempt": p.Attempt, "file": file})
			}
			fmt.Fprintf(a.out, "attempt %d of %s written to %s\n", p.Attempt, cell(p.Job.RunID), file)
			a.hint("  run it: EVERDICT_PAYLOAD_FILE=%s job-runner > output", quoteArg(file))
			a.hint("  then, where the coordinator can be reached: everdict runs deliver %s -f output", p.Job.RunID)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "payload-file", "", "the new file, which only you can read")
	cmd.Flags().DurationVar(&expires, "expires", protocol.DefaultPayloadLife, "how long it may be out, 168h at most")
	return cmd
}

func (a *app) runsTakeBack() *cobra.Command {
	return &cobra.Command{
		Use:   "take-back RUN",
		Short: "Queue a run again that was handed out, because nobody runs its payload, or will",
		Long: `Queue a run again that was handed out, because nobody runs its payload, or will. Only you can know that. A result of
it that is delivered later is kept as late evidence.`,
		Example: "  everdict runs take-back run_01k0",
		Args:    args("run id"),
		RunE: a.withRun(func(ctx context.Context, c *client.Client, id string) error {
			if err := c.TakeBack(ctx, id); err != nil {
				return err
			}
			if a.forPrograms() {
				return nil
			}
			fmt.Fprintf(a.out, "%s is queued again\n", cell(id))
			return nil
		}),
	}
}

func (a *app) runsDeliver() *cobra.Command {
	var file string
	var attempt int64
	cmd := &cobra.Command{
		Use:   "deliver RUN -f OUTPUT",
		Short: "Bring the result of a run that was handed out: what job-runner has printed",
		Long: `Bring the result of a run that was handed out: what job-runner has printed. To bring it twice changes nothing. If the
run has gone on without this attempt, the result is kept as late evidence.`,
		Example: `  everdict runs deliver run_01k0 -f output
  ssh lab cat output | everdict runs deliver run_01k0 -f -`,
		Args: args("run id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return &usageError{cmd, "say where the output is: -f FILE, or -f - for standard input"}
			}
			output, err := a.readOutput(file)
			if err != nil {
				return err
			}
			result := protocol.ResultIn(output)
			if result == nil {
				return &adviceError{fmt.Errorf("there is no result in %s", file), "it is a whole line that begins with " + protocol.ResultSentinel + ", which job-runner prints when the run is over; with EVERDICT_API_URL set it delivers the result itself and prints nothing: everdict runs get says whether it came"}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if attempt == 0 {
				if attempt, err = handedOut(cmd.Context(), c, args[0]); err != nil {
					return err
				}
			}
			got, err := c.Deliver(cmd.Context(), args[0], attempt, result)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				return a.json(got)
			}
			if got.Late {
				fmt.Fprintf(a.out, "%s had gone on without attempt %d: its result is kept as late evidence\n", cell(got.RunID), got.Attempt)
				return nil
			}
			fmt.Fprintf(a.out, "the result of attempt %d of %s is delivered\n", got.Attempt, cell(got.RunID))
			a.hint("  see it: everdict runs get %s", got.RunID)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "what job-runner printed, - for standard input")
	cmd.Flags().Int64Var(&attempt, "attempt", 0, "number of the attempt; left out: the last one that was handed out")
	return cmd
}

// handedOut is the last attempt of a run that was handed out.
func handedOut(ctx context.Context, c *client.Client, run string) (int64, error) {
	attempts, err := c.Attempts(ctx, run)
	if err != nil {
		return 0, err
	}
	for _, at := range slices.Backward(attempts) {
		if at.HandedOut != nil {
			return at.Attempt, nil
		}
	}
	return 0, &adviceError{fmt.Errorf("no attempt of %s was handed out", protocol.Clip(run, 80)), "everdict runs attempts " + quoteArg(run) + " shows them"}
}

// maxOutput bounds what a runner printed beside its result.
const maxOutput = 64 << 20

// readOutput reads what job-runner printed.
func (a *app) readOutput(path string) ([]byte, error) {
	in := a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	output, err := io.ReadAll(io.LimitReader(in, maxOutput+1))
	if err != nil {
		return nil, err
	}
	if len(output) > maxOutput {
		return nil, fmt.Errorf("%s has more than %d MiB: give the end of it", path, maxOutput>>20)
	}
	return output, nil
}
