package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
)

func (a *app) keysCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "keys",
		Short: "Create, list and revoke API keys",
		Example: `  everdict keys create --label ci --scope write
  everdict keys list`,
	})
	cmd.AddCommand(a.keysCreate(), a.keysList(), a.keysRevoke())
	return cmd
}

func (a *app) keysCreate() *cobra.Command {
	var req protocol.KeyRequest
	var keyFile string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an API key, which is shown this once",
		Long: `Make an API key, which is shown this once; with --key-file it is written to a file that only you can read, and
not shown at all. A program finds its key in EVERDICT_API_KEY, as the key itself or as file:PATH.`,
		Example: `  everdict keys create --label ci --scope write
  everdict keys create --label me --key-file ~/.everdict-key && export EVERDICT_API_KEY=file:$HOME/.everdict-key`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// On a copy: it fills in a default, and what the key that asks may give is
			// the server's to know.
			checked := req
			if err := checked.Validate(); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			var file *os.File
			if keyFile != "" {
				if file, err = createSecret(keyFile); err != nil {
					return err
				}
				defer file.Close()
			}
			key, err := c.CreateKey(cmd.Context(), &req)
			if err != nil {
				if file != nil {
					os.Remove(keyFile)
				}
				return err
			}
			if file != nil {
				if _, err := fmt.Fprintln(file, key.APIKey); err != nil {
					return fmt.Errorf("write the key: %w", err)
				}
				key.APIKey = ""
			}
			if a.forPrograms() {
				return a.json(key)
			}
			if file != nil {
				fmt.Fprintf(a.out, "%s written to %s\n", cell(key.ID), keyFile)
				path, err := absolute(keyFile) // the variable is good in every directory
				if err != nil {
					return err
				}
				a.hint("  use it: export EVERDICT_API_KEY=file:%s", quoteArg(path))
				return nil
			}
			// Alone on its line, so that $(everdict keys create) is the key.
			fmt.Fprintln(a.out, cell(key.APIKey))
			a.hint("  %s, shown this once. Use it: export EVERDICT_API_KEY=...", key.ID)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Label, "label", "", "what the key is for")
	f.StringSliceVar(&req.Scopes, "scope", nil, "read, write or admin, each contains the one before (default: those of the key that asks)")
	f.StringVar(&keyFile, "key-file", "", "write the key to this new file instead of showing it")
	a.fixed(cmd, "scope", protocol.ScopeRead, protocol.ScopeWrite, protocol.ScopeAdmin)
	return cmd
}

func (a *app) keysList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List your API keys by their beginning, never whole",
		Example: `  everdict keys list
  everdict keys list -o jsonl`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			keys, err := c.Keys(cmd.Context())
			none := nothing{"no keys", "make one: everdict keys create --label NAME"}
			return show(a, keys, err, none, []string{"ID", "LABEL", "BEGINS WITH", "SCOPES", "CREATED"}, func() (rows [][]string) {
				for _, k := range keys {
					rows = append(rows, []string{cell(k.ID), cell(k.Label), cell(k.Prefix), cell(strings.Join(k.Scopes, ",")), a.ago(k.CreatedAt)})
				}
				return rows
			})
		},
	}
}

func (a *app) keysRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke KEY...",
		Short: "Make API keys useless, at once",
		Example: `  everdict keys revoke key_01k0
  everdict keys revoke key_01k0 key_01k1 -o json`,
		Args: args("key id..."),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			// The API answers a revocation alike whether there was a key or not.
			own, err := c.Keys(cmd.Context())
			if err != nil {
				return err
			}
			return a.each(cmd.Context(), ids, "revoked", func(ctx context.Context, id string) error {
				if !slices.ContainsFunc(own, func(k protocol.Key) bool { return k.ID == id }) {
					return &adviceError{fmt.Errorf("no key %s of yours", protocol.Clip(id, 80)),
						"everdict keys list shows yours; a key is ended by whoever it belongs to"}
				}
				return c.RevokeKey(ctx, id)
			})
		},
	}
}
