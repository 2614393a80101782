package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/cmd/everdict/config"
	"github.com/everdict/everdict/protocol"
)

func (a *app) keysCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "keys",
		Short: "Create, list and revoke API keys",
		Example: `  everdict keys create --label ci --scope write
  everdict keys create --for ann --role member
  everdict keys list`,
	})
	cmd.AddCommand(a.keysCreate(), a.keysBootstrap(), a.keysList(), a.keysRevoke())
	return cmd
}

func (a *app) keysCreate() *cobra.Command {
	var req protocol.KeyRequest
	var keyFile string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an API key, which is shown this once",
		Long: `Make an API key, which is shown this once; with --key-file it is written to a file that only you can read, and
not shown at all. A program finds its key in EVERDICT_API_KEY, as the key itself or as file:PATH.

The key acts as you, with your role or less. An admin makes keys for others with --for: they are members of the
same workspace, unless --role says otherwise. The first key of another workspace: everdict keys bootstrap.`,
		Example: `  everdict keys create --label ci --scope write
  everdict keys create --for ann --role member --key-file ./ann.key
  everdict keys create --label me --key-file ~/.everdict-key && export EVERDICT_API_KEY=file:$HOME/.everdict-key`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("for") && req.Subject == "" {
				return &adviceError{errors.New("--for is empty"), "name who the key is for, or leave --for out for a key of your own"}
			}
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
			return handOut(a, keyFile, func() (*protocol.IssuedKey, error) { return c.CreateKey(cmd.Context(), &req) },
				func(k *protocol.IssuedKey) (string, *string) { return k.ID, &k.APIKey })
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Label, "label", "", "what the key is for")
	f.StringVar(&req.Subject, "for", "", "who the key acts as (default: you); another's is made by an admin")
	f.StringVar(&req.Role, "role", "", "viewer, member or admin, none above yours (default: yours, with --for member)")
	f.StringSliceVar(&req.Scopes, "scope", nil, "read, write or admin, each contains the one before (default: those of the key that asks)")
	f.StringVar(&keyFile, "key-file", "", "write the key to this new file instead of showing it")
	a.fixed(cmd, "scope", protocol.ScopeRead, protocol.ScopeWrite, protocol.ScopeAdmin)
	a.fixed(cmd, "role", protocol.RoleViewer, protocol.RoleMember, protocol.RoleAdmin)
	return cmd
}

func (a *app) keysBootstrap() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "bootstrap WORKSPACE",
		Short: "Make an admin's API key of any workspace, as the operator",
		Long: `Make an admin's API key of a workspace, which exists by having one; with it the admin makes the others:
everdict keys create --for NAME. It is also the way back into a workspace whose last key is lost.

This is for whoever operates the coordinator. It asks for the token that the coordinator was started with, in
EVERDICT_INTERNAL_TOKEN, as the token itself or as file:PATH.`,
		Example: `  export EVERDICT_INTERNAL_TOKEN=file:/etc/everdict/internal-token
  everdict keys bootstrap acme --key-file ./acme.key`,
		Args: args("workspace"),
		RunE: func(cmd *cobra.Command, names []string) error {
			req := protocol.TenantKeyRequest{Workspace: names[0]}
			if err := req.Validate(); err != nil {
				return err
			}
			token, err := a.internalToken()
			if err != nil {
				return err
			}
			if token == "" {
				return &adviceError{errors.New("making the key of a workspace needs the coordinator's internal token"),
					"start the coordinator with EVERDICT_INTERNAL_TOKEN (openssl rand -hex 32), and set the same here; an admin of the workspace makes keys without it: everdict keys create --for NAME"}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := a.mayCarry(c.BaseURL(), config.InternalToken, "internal token"); err != nil {
				return err
			}
			return handOut(a, keyFile, func() (*protocol.TenantKey, error) { return c.CreateTenantKey(cmd.Context(), token, &req) },
				func(k *protocol.TenantKey) (string, *string) { return k.ID, &k.APIKey })
		},
	}
	cmd.Flags().StringVar(&keyFile, "key-file", "", "write the key to this new file instead of showing it")
	return cmd
}

// handOut shows the key that issue makes or, with a path, writes it to that new file,
// which is there before the key is. parts are the id and the value of an issued key.
func handOut[K any](a *app, path string, issue func() (*K, error), parts func(*K) (id string, value *string)) error {
	var file *os.File
	if path != "" {
		var err error
		if file, err = createSecret(path); err != nil {
			return err
		}
		defer file.Close()
	}
	key, err := issue()
	if err != nil {
		if file != nil {
			os.Remove(path)
		}
		return err
	}
	id, value := parts(key)
	if file != nil {
		if _, err := fmt.Fprintln(file, *value); err != nil {
			return fmt.Errorf("write the key: %w", err)
		}
		*value = ""
	}
	if a.forPrograms() {
		return a.json(key)
	}
	if file != nil {
		fmt.Fprintf(a.out, "%s written to %s\n", cell(id), path)
		at, err := absolute(path) // the variable is good in every directory
		if err != nil {
			return err
		}
		a.hint("  use it: export EVERDICT_API_KEY=file:%s", quoteArg(at))
		return nil
	}
	// Alone on its line, so that $(everdict keys create) is the key.
	fmt.Fprintln(a.out, cell(*value))
	a.hint("  %s, shown this once. Use it: export EVERDICT_API_KEY=...", id)
	return nil
}

func (a *app) keysList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List your API keys by their beginning, never whole",
		Long:  `List your API keys by their beginning, never whole. An admin sees those of everybody in the workspace.`,
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
			return show(a, keys, err, none, []string{"ID", "LABEL", "BEGINS WITH", "SCOPES", "OF", "ROLE", "CREATED"}, func() (rows [][]string) {
				for _, k := range keys {
					rows = append(rows, []string{cell(k.ID), cell(k.Label), cell(k.Prefix), cell(strings.Join(k.Scopes, ",")), cell(k.Subject), cell(k.Role), a.ago(k.CreatedAt)})
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
		Long:  `Make API keys useless, at once: your own and, as an admin, anybody's of the workspace.`,
		Example: `  everdict keys revoke key_01k0
  everdict keys revoke key_01k0 key_01k1 -o json`,
		Args: args("key id..."),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			// The API answers a revocation alike whether there was a key or not.
			ours, err := c.Keys(cmd.Context())
			if err != nil {
				return err
			}
			return a.each(cmd.Context(), ids, "revoked", func(ctx context.Context, id string) error {
				if !slices.ContainsFunc(ours, func(k protocol.Key) bool { return k.ID == id }) {
					return &adviceError{fmt.Errorf("there is no key %s that you may end", protocol.Clip(id, 80)),
						"everdict keys list shows those that you may end; another's is ended by its owner or an admin of the workspace"}
				}
				return c.RevokeKey(ctx, id)
			})
		},
	}
}
