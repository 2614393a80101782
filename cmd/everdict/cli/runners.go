package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
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
	where := "on that machine: "
	if loopbackURL(base) {
		where = "on this machine: "
	}
	a.hint("%s    everdict runner --pair %s --api-url %s", where, quoteArg(source), base)
	if source == "-" {
		a.hint("                     and paste the token, or pipe it in")
	}
	a.hint("run something there: everdict submit -f run.json --wait --runtime %s", target)
	if loopbackURL(base) {
		a.hint("\n%s is good on this machine only. For another, give both commands --api-url http://%s:%s,\nwhere the coordinator has to listen: --listen :%[3]s --require-auth", base, thisHost(), portOf(base))
	}
	return nil
}

// portOf is the port of an address.
func portOf(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Port() == "" {
		return "8787"
	}
	return u.Port()
}

// thisHost is the name under which others may know this machine.
func thisHost() string {
	if host, err := os.Hostname(); err == nil && host != "" && host != "localhost" {
		return host
	}
	return "HOST"
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
			var others []protocol.Runner
			if !workspace {
				// A runner inside the coordinator takes runs like one's own; the list of
				// one's own does not have it. Who may not see the roster sees theirs.
				roster, _ := c.WorkspaceRunners(cmd.Context())
				for _, r := range roster {
					switch {
					case has(runners, r.ID):
					case r.Owner == localOwner:
						runners = append(runners, r)
					default:
						others = append(others, r)
					}
				}
			}
			if len(runners) > 0 {
				a.printRunners(runners)
			} else {
				fmt.Fprintln(a.out, "no runners")
				a.hint("pair this machine: everdict runners pair")
			}
			if len(others) > 0 {
				a.hint("%s of others: everdict runners list --workspace", plural(len(others), "runner"))
			}
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
		case r.Online && r.Paused != "":
			state = p.yellow("paused")
		case r.Online:
			state = p.green("online")
		case r.LastSeenAt == nil:
			state = p.dim("never connected")
		}
		slots := "-"
		if r.Slots > 0 {
			slots = fmt.Sprintf("%d/%d", r.Busy, r.Slots)
		}
		note, owner := "", ownerOf(r.Owner)
		if r.Status != nil {
			note = r.Status.Text
			if r.Status.Level != "info" {
				note = r.Status.Level + ": " + note
			}
		}
		if r.Paused != "" {
			note = r.Paused
		}
		if r.Scope == protocol.RunnerScopeWorkspace {
			owner += ", for the workspace"
		}
		system := r.OS
		if r.Arch != "" {
			system += "/" + r.Arch
		}
		rows = append(rows, []string{cell(r.ID), cell(r.Label), cell(owner), state, slots, cell(system), cell(strings.Join(r.Capabilities, ",")), a.agoPtr(r.LastSeenAt), cell(r.Version), cell(note)})
	}
	writeTable(a.out, []string{"ID", "LABEL", "OWNER", "STATE", "BUSY", "SYSTEM", "OFFERS", "LAST SEEN", "VERSION", "NOTE"}, rows)
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
			// The API answers a revocation alike whether there was a runner or not.
			own, err := c.Runners(cmd.Context())
			if err != nil {
				return err
			}
			return a.each(cmd.Context(), ids, "revoked", func(ctx context.Context, id string) error {
				if workspace {
					if err := a.inRoster(ctx, c, id); err != nil {
						return err
					}
					return c.RevokeWorkspaceRunner(ctx, id)
				}
				if !has(own, id) {
					return a.notYours(ctx, c, id)
				}
				return c.RevokeRunner(ctx, id)
			})
		},
	}
	cmd.Flags().BoolVar(&workspace, "workspace", false, "any runner of the workspace, as an admin")
	cmd.ValidArgsFunction = a.complete(true, a.ownRunners)
	return cmd
}

func has(runners []protocol.Runner, id string) bool { return find(runners, id) != nil }

func find(runners []protocol.Runner, id string) *protocol.Runner {
	for i := range runners {
		if runners[i].ID == id {
			return &runners[i]
		}
	}
	return nil
}

// localOwner owns the runner in the coordinator's own process.
const localOwner = "local:"

// workspaceOwner begins the name of an owner that is a workspace.
const workspaceOwner = "ws:"

// poolOwner begins the name of an owner that is the pool of a runtime.
const poolOwner = "runtime:"

// ownerOf is whose a runner is, for people.
func ownerOf(owner string) string {
	switch {
	case owner == localOwner:
		return "this coordinator"
	case strings.HasPrefix(owner, workspaceOwner):
		return "the workspace"
	case strings.HasPrefix(owner, poolOwner):
		return "runtime " + strings.TrimPrefix(owner, poolOwner)
	}
	return owner
}

// inRoster refuses an id that no runner of the workspace has.
func (a *app) inRoster(ctx context.Context, c *client.Client, id string) error {
	roster, err := c.WorkspaceRunners(ctx)
	if err != nil {
		return err
	}
	switch r := find(roster, id); {
	case r == nil:
		return &adviceError{fmt.Errorf("no runner %s in this workspace", protocol.Clip(id, 80)), "everdict runners list --workspace shows them all"}
	case r.Owner == localOwner:
		return errOwnRunner(id)
	}
	return nil
}

func errOwnRunner(id string) error {
	return &adviceError{fmt.Errorf("%s is the coordinator's own runner", id), "it ends with the coordinator; a coordinator without one is: everdict coordinator"}
}

// notYours says of a runner that is none of the caller's whose it is, and who
// could revoke it.
func (a *app) notYours(ctx context.Context, c *client.Client, id string) error {
	err := fmt.Errorf("no runner %s of yours", protocol.Clip(id, 80))
	advice := "everdict runners list shows yours, everdict runners list --workspace everybody's"
	roster, rosterErr := c.WorkspaceRunners(ctx)
	r := find(roster, id)
	switch {
	case rosterErr != nil || r == nil:
	case r.Owner == localOwner:
		return errOwnRunner(id)
	default:
		err = fmt.Errorf("%w: it belongs to %s", err, safeText(ownerOf(r.Owner)))
		advice = "an admin of the workspace can revoke it"
		if me, meErr := c.Me(ctx); meErr == nil && administers(me) {
			advice = "as an admin you can: everdict runners revoke --workspace " + id
		}
	}
	return &adviceError{err, advice}
}

// administers reports whether a caller may do what only admins may.
func administers(me *protocol.Me) bool {
	return slices.Contains(me.Roles, protocol.RoleAdmin) && (me.Scopes == nil || slices.Contains(me.Scopes, protocol.ScopeAdmin))
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
