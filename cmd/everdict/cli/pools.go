package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

func (a *app) poolsCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "pools",
		Short: "Show the pools of runtimes, and make the tokens with which machines join",
		Long: `Show the pools of runtimes, and make the tokens with which machines join. A pool token is for many machines: each
gets an identity of its own when it connects, and is forgotten when it stays away.`,
		Example: `  everdict pools list
  everdict pools token create --runtime prod-cluster --token-file pool-token
  everdict runner --pool-token file:pool-token`,
	})
	token := group(&cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke pool tokens",
		Example: `  everdict pools token create --runtime prod-cluster --expires 720h
  everdict pools token list`,
	})
	token.AddCommand(a.poolsTokenCreate(), a.poolsTokenList(), a.poolsTokenRevoke())
	cmd.AddCommand(a.poolsList(), token)
	return cmd
}

func (a *app) poolsList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List pools: limits, what runs, what waits, and their runners",
		Example: `  everdict pools list
  everdict pools list -o jsonl | jq '{runtime, queued, online}'`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			pools, err := c.Pools(cmd.Context())
			if err != nil {
				return err
			}
			if a.forPrograms() {
				_, err := printList(a, each(pools))
				return err
			}
			if len(pools) == 0 {
				fmt.Fprintln(a.out, "no pools")
				a.hint("a registered runtime has one: everdict runtimes register -f FILE")
				return nil
			}
			a.printPools(pools)
			return nil
		},
	}
}

func (a *app) printPools(pools []protocol.Pool) {
	p := a.palette(a.out)
	var rows [][]string
	var runners []protocol.Runner
	for _, pool := range pools {
		memory, cpu := "-", "-"
		if pool.MemoryBudgetMB > 0 {
			memory = fmt.Sprintf("%d/%d MiB", pool.MemoryMB, pool.MemoryBudgetMB)
		}
		if pool.CPUBudget > 0 {
			cpu = lease.Cores(pool.CPU) + "/" + lease.Cores(int64(pool.CPUBudget))
		}
		online := fmt.Sprint(pool.Online)
		if pool.Online == 0 && pool.Queued > 0 {
			online = p.red(online)
		}
		rows = append(rows, []string{cell(pool.Runtime), cell(pool.Kind), cell(pool.Version), fmt.Sprintf("%d/%d", pool.Running, pool.MaxConcurrent), memory, cpu,
			fmt.Sprint(pool.Queued), online, fmt.Sprint(pool.Slots)})
		runners = append(runners, pool.Runners...)
		switch {
		case pool.Online > 0 || pool.Queued == 0:
		case pool.Launched:
			a.hint("%s has runs that wait for runners to be launched: everdict runs why RUN says what for, and everdict runtimes probe %s whether that can be done", pool.Runtime, quoteArg(pool.Runtime))
		default:
			a.hint("%s has runs that wait and no runner online: everdict pools token create --runtime %s, then everdict runner --pool-token -", pool.Runtime, quoteArg(pool.Runtime))
		}
	}
	writeTable(a.out, []string{"RUNTIME", "KIND", "VERSION", "RUNNING", "MEMORY", "CPU", "QUEUED", "ONLINE", "SLOTS"}, rows)
	if len(runners) > 0 {
		fmt.Fprintln(a.out)
		a.printRunners(runners)
	}
}

func (a *app) poolsTokenCreate() *cobra.Command {
	var req protocol.PoolTokenRequest
	var tokenFile string
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "create --runtime ID",
		Short: "Make a token with which machines join a runtime's pool; it is shown this once",
		Long: `Make a token with which machines join a runtime's pool; it is shown this once. With --token-file it is written
to a file that only you can read, and not shown at all. It is good for many machines until it expires or is
revoked; who has joined by then stays when it expires, and is ended when it is revoked.`,
		Example: `  everdict pools token create --runtime prod-cluster --label deployment
  everdict pools token create --runtime prod-cluster --expires 720h --token-file pool-token`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Runtime == "" {
				return &usageError{cmd, "say which runtime: --runtime ID"}
			}
			if expires < time.Second {
				return &usageError{cmd, fmt.Sprintf("--expires %s: want a second or more", expires)}
			}
			seconds := int64(expires / time.Second)
			req.ExpiresInSec = &seconds
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
			issued, err := c.CreatePoolToken(cmd.Context(), &req)
			if err != nil {
				if file != nil {
					err = errors.Join(err, os.Remove(tokenFile))
				}
				return err
			}
			source := "-"
			if file != nil {
				_, err := fmt.Fprintln(file, issued.Token)
				if err = errors.Join(err, file.Close()); err != nil {
					return fmt.Errorf("write the token %s: %w", issued.PoolToken.ID, err)
				}
				source, issued.Token = "file:"+tokenFile, ""
			}
			if a.forPrograms() {
				return a.json(issued)
			}
			if issued.Token != "" {
				// Alone on its line, so that $(everdict pools token create ...) is the token.
				fmt.Fprintln(a.out, cell(issued.Token))
				a.hint("  %s, shown this once, good until %s", issued.PoolToken.ID, issued.PoolToken.ExpiresAt)
			} else {
				fmt.Fprintf(a.out, "%s written to %s, good until %s\n", cell(issued.PoolToken.ID), tokenFile, issued.PoolToken.ExpiresAt)
			}
			a.hint("  start a runner with it: everdict runner --pool-token %s --api-url %s", quoteArg(source), c.BaseURL())
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Runtime, "runtime", "", "the registered runtime whose pool machines join")
	f.DurationVar(&expires, "expires", protocol.DefaultPoolTokenLife, "how long it is good")
	f.StringVar(&req.Label, "label", "", "what the token is for")
	f.StringVar(&tokenFile, "token-file", "", "write the token to this new file instead of showing it")
	completeFlag(cmd, "runtime", a.complete(false, a.runtimes))
	return cmd
}

func (a *app) poolsTokenList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List pool tokens by their beginning, never whole",
		Example: `  everdict pools token list
  everdict pools token list -o jsonl`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			tokens, err := c.PoolTokens(cmd.Context())
			none := nothing{"no pool tokens", "make one: everdict pools token create --runtime ID"}
			return show(a, tokens, err, none, []string{"ID", "RUNTIME", "LABEL", "TOKEN", "BY", "CREATED", "EXPIRES"}, func() (rows [][]string) {
				p := a.palette(a.out)
				for _, t := range tokens {
					expires := t.ExpiresAt.String()
					if !a.now().Before(t.ExpiresAt.Time) {
						expires = p.red("expired " + expires)
					}
					rows = append(rows, []string{cell(t.ID), cell(t.Runtime), cell(orDash(t.Label)), cell(t.Prefix) + "...", cell(t.CreatedBy), a.ago(t.CreatedAt), expires})
				}
				return rows
			})
		},
	}
}

func (a *app) poolsTokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke TOKEN...",
		Short: "End tokens by their ids: the runners that joined with them end, their runs go elsewhere",
		Example: `  everdict pools token revoke ptk_01k0
  everdict pools token revoke ptk_01k0 ptk_01k1`,
		Args: args("token id..."),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			// The API answers a revocation alike whether there was a token or not.
			tokens, err := c.PoolTokens(cmd.Context())
			if err != nil {
				return err
			}
			known := map[string]bool{}
			for _, t := range tokens {
				known[t.ID] = true
			}
			return a.each(cmd.Context(), ids, "revoked", func(ctx context.Context, id string) error {
				if strings.HasPrefix(id, protocol.PoolTokenPrefix) {
					return &adviceError{errors.New("this is a pool token itself, and is in your shell's history now"), "revoke it by its id: everdict pools token list"}
				}
				if !known[id] {
					return &adviceError{fmt.Errorf("no pool token %s in this workspace", protocol.Clip(id, 80)), "everdict pools token list shows them all"}
				}
				return c.RevokePoolToken(ctx, id)
			})
		},
	}
}
