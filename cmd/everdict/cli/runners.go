package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
)

func (a *app) runnersCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "runners",
		Short: "Pair, list and revoke the machines that run things",
		Example: `  everdict runners pair --label my-mac
  everdict runners list`,
	})
	cmd.AddCommand(a.runnersPair(), a.runnersList(), a.runnersRevoke())
	return cmd
}

func (a *app) runnersPair() *cobra.Command {
	var req protocol.PairRequest
	var workspace bool
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "pair",
		Short: "Register a machine and get the token that its runner starts with",
		Long: `Register a machine and get the token that its runner starts with. The token is shown this once; with
--token-file it is written to a file that only you can read, and not shown at all.`,
		Example: `  everdict runners pair --label my-mac
  everdict runners pair --label build-7 --capabilities git,docker --workspace
  everdict runners pair --label this-machine --token-file token && everdict runner --pair file:token`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Label == "" {
				host, err := os.Hostname()
				if err != nil {
					return &usageError{cmd, "give the machine a name with --label"}
				}
				req.Label = host
			}
			if err := req.Validate(); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			// Before the token exists: a file that cannot be written would lose it.
			var file *os.File
			if tokenFile != "" {
				if file, err = createSecret(tokenFile); err != nil {
					return err
				}
				defer file.Close()
			}
			pair := c.Pair
			if workspace {
				pair = c.PairForWorkspace
			}
			paired, err := pair(cmd.Context(), &req)
			if err != nil {
				if file != nil {
					err = errors.Join(err, os.Remove(tokenFile))
				}
				return err
			}
			source := "-"
			if file != nil {
				if _, err := fmt.Fprintln(file, paired.Token); err != nil {
					return fmt.Errorf("write the token of %s: %w", paired.Runner.ID, err)
				}
				if err := file.Close(); err != nil {
					return fmt.Errorf("write the token of %s: %w", paired.Runner.ID, err)
				}
				source, paired.Token = "file:"+tokenFile, ""
			}
			return a.printPaired(paired, source, c.BaseURL())
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Label, "label", "", "name to show for the machine (default: this host's name)")
	f.StringVar(&req.OS, "os", "", "its operating system: "+runtime.GOOS+", ...")
	f.StringSliceVar(&req.Capabilities, "capabilities", nil, "what it offers, such as git,docker; it reports the same itself")
	f.BoolVar(&workspace, "workspace", false, "for everybody of the workspace, not only for you")
	f.StringVar(&tokenFile, "token-file", "", "write the token to this new file instead of showing it")
	return cmd
}

// createSecret makes a file that only its owner reads; it must not be there yet,
// since a file with other rights would keep them.
func createSecret(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, &adviceError{fmt.Errorf("%s exists", path), "choose another name, or remove it first"}
	}
	return f, err
}

func (a *app) printPaired(p *protocol.Paired, source, base string) error {
	if a.forPrograms() {
		return a.json(p)
	}
	target := firstOf(p.Runner.Target, protocol.TargetSelfPrefix+p.Runner.ID)
	c := a.palette(a.out)
	rows := [][]string{{c.dim("runner"), c.bold(cell(p.Runner.ID)) + "  " + cell(p.Runner.Label)}}
	if p.Token != "" {
		rows = append(rows, []string{c.dim("token"), cell(p.Token) + c.dim("  (shown this once)")})
	}
	rows = append(rows, []string{c.dim("runtime"), cell(target)})
	writeTable(a.out, nil, rows)
	a.hint("")
	a.hint("on that machine:     everdict runner --pair %s --api-url %s", quoteArg(source), base)
	if source == "-" {
		a.hint("                     and paste the token, or pipe it in")
	}
	a.hint("run something there: everdict submit -f run.json --wait --runtime %s", target)
	return nil
}

// quoteArg quotes s for a POSIX shell where it has to be.
func quoteArg(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (a *app) runnersList() *cobra.Command {
	var workspace bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List your machines, or all of the workspace",
		Example: `  everdict runners list
  everdict runners list --workspace -o jsonl | jq 'select(.online)'`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list := c.Runners
			if workspace {
				list = c.WorkspaceRunners
			}
			runners, err := list(cmd.Context())
			if err != nil {
				return err
			}
			if a.forPrograms() {
				_, err := printList(a, each(runners))
				return err
			}
			if len(runners) == 0 {
				fmt.Fprintln(a.out, "no runners")
				if workspace {
					a.hint("pair this machine: everdict runners pair")
				} else {
					a.hint("pair this machine: everdict runners pair; those of everybody: everdict runners list --workspace")
				}
				return nil
			}
			a.printRunners(runners)
			return nil
		},
	}
	cmd.Flags().BoolVar(&workspace, "workspace", false, "every runner of the workspace")
	return cmd
}

func (a *app) printRunners(runners []protocol.Runner) {
	p := a.palette(a.out)
	var rows [][]string
	for _, r := range runners {
		state := p.dim("offline")
		switch {
		case r.UpdateRequired && r.LastSeenAt != nil:
			state = p.red("update it")
		case r.Online:
			state = p.green("online")
		case r.LastSeenAt == nil:
			state = p.dim("never seen")
		}
		slots := "-"
		if r.Slots > 0 {
			slots = fmt.Sprintf("%d/%d", r.Busy, r.Slots)
		}
		note := ""
		if r.Status != nil {
			note = r.Status.Text
			if r.Status.Level != "info" {
				note = r.Status.Level + ": " + note
			}
		}
		system := r.OS
		if r.Arch != "" {
			system += "/" + r.Arch
		}
		rows = append(rows, []string{cell(r.ID), cell(r.Label), state, slots, cell(system), cell(strings.Join(r.Capabilities, ",")), a.agoPtr(r.LastSeenAt), cell(r.Version), cell(note)})
	}
	writeTable(a.out, []string{"ID", "LABEL", "STATE", "BUSY", "SYSTEM", "OFFERS", "LAST SEEN", "VERSION", "STATUS"}, rows)
}

func (a *app) runnersRevoke() *cobra.Command {
	var workspace bool
	cmd := &cobra.Command{
		Use:   "revoke RUNNER...",
		Short: "End the pairing of machines: their sessions close, their runs stop",
		Example: `  everdict runners revoke rnr_01k0
  everdict runners revoke --workspace rnr_01k0 rnr_01k1`,
		Args: args("runner id..."),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			revoke := c.RevokeRunner
			if workspace {
				revoke = c.RevokeWorkspaceRunner
			}
			return a.each(cmd.Context(), ids, "revoked", revoke)
		},
	}
	cmd.Flags().BoolVar(&workspace, "workspace", false, "runners of the workspace, not your own")
	return cmd
}

// each does something to every id and says so; what fails does not keep the rest
// from being done.
func (a *app) each(ctx context.Context, ids []string, done string, do func(context.Context, string) error) error {
	var errs []error
	ok := []string{}
	for _, id := range ids {
		if err := do(ctx, id); err != nil {
			if len(ids) > 1 {
				err = fmt.Errorf("%s: %w", id, err)
			}
			errs = append(errs, err)
			continue
		}
		ok = append(ok, id)
		if !a.forPrograms() {
			fmt.Fprintf(a.out, "%s %s\n", cell(id), done)
		}
	}
	if a.forPrograms() {
		errs = append(errs, a.json(map[string][]string{done: ok}))
	}
	return errors.Join(errs...)
}

// absolute is path from the root, as services are told.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}
