package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/protocol"
)

// steerCommands are what the running app does, in a terminal.
func steerCommands() []*cobra.Command {
	return []*cobra.Command{statusCommand(), pauseCommand(), resumeCommand(), stopCommand(), pairCommand(), disconnectCommand(), historyCommand(),
		logCommand(), openCommand(), quitCommand()}
}

// client talks to the running app.
func client() (*control.Client, error) {
	dirs, err := home.Find()
	if err != nil {
		return nil, err
	}
	return control.Dial(dirs.Socket()), nil
}

// asked runs a command with a client. Without an app there is a sentence with the next step.
func asked(f func(cmd *cobra.Command, c *control.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := client()
		if err != nil {
			return err
		}
		defer c.Close()
		if err := f(cmd, c, args); !errors.Is(err, control.ErrNotRunning) {
			return err
		}
		return errors.New("the app is not running: start everdict-desktop")
	}
}

func statusCommand() *cobra.Command {
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the connections of this computer and what runs here",
		Example: `  everdict-desktop status
  everdict-desktop status --json | jq .connections
  everdict-desktop status --watch`,
		Args: cobra.NoArgs,
		RunE: asked(func(cmd *cobra.Command, c *control.Client, _ []string) error {
			show := func(s *control.State) error {
				if asJSON {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
				}
				return printState(cmd.OutOrStdout(), s)
			}
			if watch {
				var failed error
				err := c.Watch(cmd.Context(), func(s *control.State) bool {
					failed = show(s)
					return failed == nil
				})
				if cmd.Context().Err() != nil {
					return nil
				}
				return errors.Join(err, failed)
			}
			s, err := c.State(cmd.Context())
			if err != nil {
				return err
			}
			return show(s)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show each change, until interrupted")
	return cmd
}

func printState(w io.Writer, s *control.State) error {
	fmt.Fprintln(w, oneLine(s.Text))
	if len(s.Connections) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "CONNECTION\tCOORDINATOR\tACCOUNT\tSTATUS\tJOBS\t")
		for _, c := range s.Connections {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d of %d\t%s\n", c.ID, oneLine(c.Host), oneLine(c.Account.Subject), c.Status, len(c.Jobs), c.Settings.Slots, oneLine(c.Text+" "+c.Next))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	jobs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	some := false
	for _, c := range s.Connections {
		for _, j := range c.Jobs {
			if !some {
				fmt.Fprintln(jobs, "RUN\tATTEMPT\tCASE\tHARNESS\tFOR\tPHASE\tSINCE")
				some = true
			}
			fmt.Fprintf(jobs, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", oneLine(j.Run), j.Epoch, oneLine(j.Case), oneLine(j.Harness), oneLine(j.Submitter), j.Phase, j.StartedAt.Local().Format(time.TimeOnly))
		}
	}
	if err := jobs.Flush(); err != nil {
		return err
	}
	if q := s.Question; q != nil {
		fmt.Fprintf(w, "a link asks to connect this computer to %s as %s: everdict-desktop open, and answer it there\n", oneLine(q.Host), oneLine(q.Account.Subject))
	}
	for _, n := range s.Notices {
		fmt.Fprintf(w, "%s: %s %s\n", n.Level, oneLine(n.Text), oneLine(n.Next))
	}
	if s.Keys.Warning != "" {
		fmt.Fprintln(w, "warning:", oneLine(s.Keys.Warning))
	}
	return nil
}

// one is the argument of a command that takes a connection or none.
func one(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pause [CONNECTION]",
		Short: "Take no new runs; what runs goes on to its end",
		Example: `  everdict-desktop pause
  everdict-desktop pause con_01m8n3sy291v7e273c592pwyyv`,
		Args: cobra.MaximumNArgs(1),
		RunE: asked(func(cmd *cobra.Command, c *control.Client, args []string) error {
			return changed(cmd, c, "pause", control.PauseRequest{Connection: one(args)})
		}),
	}
}

func stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "stop [CONNECTION]",
		Short:   "Pause, end what runs and give it back to the queue",
		Example: `  everdict-desktop stop`,
		Args:    cobra.MaximumNArgs(1),
		RunE: asked(func(cmd *cobra.Command, c *control.Client, args []string) error {
			return changed(cmd, c, "pause", control.PauseRequest{Connection: one(args), Stop: true})
		}),
	}
}

func resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "resume [CONNECTION]",
		Short:   "Take runs again, also outside of the allowed hours and on battery until those change",
		Example: `  everdict-desktop resume`,
		Args:    cobra.MaximumNArgs(1),
		RunE: asked(func(cmd *cobra.Command, c *control.Client, args []string) error {
			return changed(cmd, c, "resume", control.ResumeRequest{Connection: one(args)})
		}),
	}
}

func changed(cmd *cobra.Command, c *control.Client, path string, body any) error {
	var s control.State
	if err := c.Do(cmd.Context(), http.MethodPost, path, body, &s); err != nil {
		return err
	}
	return printState(cmd.OutOrStdout(), &s)
}

func pairCommand() *cobra.Command {
	var r control.PairRequest
	cmd := &cobra.Command{
		Use:   "pair URL",
		Short: "Connect this computer to a coordinator",
		Long: `Connect this computer to a coordinator. The browser opens a page of the coordinator on which you, signed in there, approve it.
Approve only if the page shows the number that is printed here.`,
		Example: `  everdict-desktop pair https://everdict.example
  everdict-desktop pair https://everdict.example --label "build box" --replace`,
		Args: cobra.ExactArgs(1),
		RunE: asked(func(cmd *cobra.Command, c *control.Client, args []string) error {
			r.Coordinator = args[0]
			var p control.Pairing
			if err := c.Do(cmd.Context(), http.MethodPost, "pair", r, &p); err != nil {
				return err
			}
			return followPairing(cmd, c, p)
		}),
	}
	cmd.Flags().StringVar(&r.Label, "label", "", "name of the runner (default: the computer's)")
	cmd.Flags().BoolVar(&r.Replace, "replace", false, "replace a connection with the same coordinator")
	return cmd
}

// followPairing says how a pairing goes, and cancels it when the command is interrupted.
func followPairing(cmd *cobra.Command, c *control.Client, begun control.Pairing) error {
	w := cmd.OutOrStdout()
	said, result := "", error(nil)
	err := c.Watch(cmd.Context(), func(s *control.State) bool {
		p := s.Pairing
		if p == nil {
			result = errors.New("the pairing was dismissed")
			return false
		}
		if p.Coordinator != begun.Coordinator || p.ByLink != begun.ByLink {
			result = fmt.Errorf("this pairing was ended for another one, with %s", oneLine(p.Host))
			return false
		}
		line := oneLine(p.Text)
		if p.Status == control.PairingWaiting {
			line = fmt.Sprintf("%s\n  number   %s\n  address  %s\n  %s", line, oneLine(p.Number), oneLine(p.URL), oneLine(p.Next))
		}
		if line != said && p.Status != control.PairingFailed {
			fmt.Fprintln(w, strings.TrimRight(line, " \n"))
			said = line
		}
		if p.Status == control.PairingFailed {
			result = protocol.Conflict("%s", oneLine(p.Text)).WithHint("%s", oneLine(p.Next))
		}
		return p.Status != control.PairingFailed && p.Status != control.PairingDone
	})
	if cmd.Context().Err() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return errors.Join(errors.New("interrupted: this computer was not connected"), c.Do(ctx, http.MethodPost, "pair/cancel", nil, nil))
	}
	return errors.Join(err, result)
}

func disconnectCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "disconnect CONNECTION",
		Short:   "End a connection: its job is given back, its key removed, and the coordinator told",
		Example: `  everdict-desktop disconnect con_01m8n3sy291v7e273c592pwyyv`,
		Args:    cobra.ExactArgs(1),
		RunE: asked(func(cmd *cobra.Command, c *control.Client, args []string) error {
			var u control.Unpaired
			if err := c.Do(cmd.Context(), http.MethodPost, "connections/"+segment(args[0])+"/unpair", nil, &u); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), oneLine(u.Text))
			return nil
		}),
	}
}

func historyCommand() *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show the last jobs of this computer",
		Example: `  everdict-desktop history --limit 5
  everdict-desktop history --json`,
		Args: cobra.NoArgs,
		RunE: asked(func(cmd *cobra.Command, c *control.Client, _ []string) error {
			var h control.History
			if err := c.Do(cmd.Context(), http.MethodGet, "history?limit="+strconv.Itoa(limit), nil, &h); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(h)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "ENDED\tRUN\tCASE\tHARNESS\tOUTCOME\tTOOK\tCOST\tCOORDINATOR")
			for _, e := range h.Entries {
				cost := "-"
				if e.CostUSD != nil {
					cost = fmt.Sprintf("$%.2f", *e.CostUSD)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.EndedAt.Local().Format("2006-01-02 15:04"), oneLine(e.Run), oneLine(e.Case), oneLine(e.Harness),
					e.Outcome, (time.Duration(e.DurationMs) * time.Millisecond).Round(time.Second), cost, oneLine(e.Host))
			}
			return t.Flush()
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "how many, at most 200")
	return cmd
}

func logCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "log RUN",
		Short:   "Follow the log of a job that runs here",
		Example: `  everdict-desktop log run_01m8n3sy579ykv8yd1k9gkf8nh`,
		Args:    cobra.ExactArgs(1),
		RunE: asked(func(cmd *cobra.Command, c *control.Client, args []string) error {
			s, err := c.State(cmd.Context())
			if err != nil {
				return err
			}
			for _, con := range s.Connections {
				for _, j := range con.Jobs {
					if j.Run != args[0] {
						continue
					}
					err := c.Log(cmd.Context(), j.Run, j.Epoch, func(chunk control.LogChunk) bool {
						_, err := io.WriteString(cmd.OutOrStdout(), printable(chunk.Text))
						return err == nil
					})
					if cmd.Context().Err() != nil {
						return nil
					}
					return err
				}
			}
			return protocol.NotFound("%s does not run here", oneLine(protocol.Clip(args[0], 60))).WithHint("everdict runs logs has it")
		}),
	}
}

func openCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "open",
		Short:   "Show the window of the app",
		Example: `  everdict-desktop open`,
		Args:    cobra.NoArgs,
		RunE: asked(func(cmd *cobra.Command, c *control.Client, _ []string) error {
			_, err := c.Open(cmd.Context(), "")
			return err
		}),
	}
}

func quitCommand() *cobra.Command {
	var r control.QuitRequest
	cmd := &cobra.Command{
		Use:     "quit",
		Short:   "End the app",
		Example: `  everdict-desktop quit --force`,
		Args:    cobra.NoArgs,
		RunE: asked(func(cmd *cobra.Command, c *control.Client, _ []string) error {
			return c.Do(cmd.Context(), http.MethodPost, "quit", r, nil)
		}),
	}
	cmd.Flags().BoolVar(&r.Force, "force", false, "give back what runs")
	return cmd
}

// segment keeps an argument one part of a path.
func segment(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, s)
}

// oneLine keeps what others wrote from being more than a line, or from steering the terminal.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s))
}

// printable keeps a job's output from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
