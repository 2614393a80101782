package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/everdict/everdict/agent/evidence/redact"
	"github.com/everdict/everdict/protocol"
)

func (a *app) secretsCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "secrets",
		Short: "Set, list and delete the secrets that harnesses name",
		Long: `Set, list and delete the secrets that harnesses name. A harness gets one by {"secretRef": NAME} as the value of an
environment variable. Values are kept sealed and are never shown again.`,
		Example: `  everdict secrets set DEPLOY_TOKEN
  everdict secrets usage
  everdict secrets rm DEPLOY_TOKEN`,
	})
	set, list, rm, usage := a.secretsSet(), a.secretsList(), a.secretsRm(), a.secretsUsage()
	set.ValidArgsFunction, rm.ValidArgsFunction = a.completeSecrets, a.completeSecrets
	cmd.AddCommand(set, list, rm, usage)
	return cmd
}

// secretScope adds the flag that says whose secret is meant.
func (a *app) secretScope(cmd *cobra.Command, scope *string) {
	cmd.Flags().StringVar(scope, "scope", protocol.SecretWorkspace, "whose it is: workspace, or user for one of your own")
	a.fixed(cmd, "scope", protocol.SecretWorkspace, protocol.SecretUser)
}

func (a *app) secretsSet() *cobra.Command {
	var req protocol.SecretRequest
	var file string
	name := args("secret name")
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Set a secret, from standard input, a file or a prompt",
		Long: `Set a secret, or replace its value: attempts that begin from now on get the new one. The value comes from standard
input, from --from-file, or on a terminal from a prompt that does not show it. It is never an argument, where other
programs and the shell's history would see it. The line break at the end of a value of one line is not part of it.`,
		Example: `  everdict secrets set DEPLOY_TOKEN
  pass show deploy | everdict secrets set DEPLOY_TOKEN
  everdict secrets set SSH_KEY --from-file ~/.ssh/id_deploy --scope user`,
		Args: func(cmd *cobra.Command, got []string) error {
			if len(got) > 1 { // which may be the value: it is not repeated
				return &usageError{cmd, "a value is never an argument: give it on standard input, with --from-file, or at the prompt"}
			}
			return name(cmd, got)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := protocol.CheckSecretName(args[0]); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if req.Value, err = a.secretValue(cmd.Context(), args[0], file); err != nil {
				return err
			}
			if err := req.Validate(); err != nil {
				return err
			}
			if err := c.SetSecret(cmd.Context(), args[0], req); err != nil {
				return err
			}
			if short := redact.New([]redact.Secret{{Name: args[0], Value: req.Value}}).NotMaskable(); len(short) > 0 {
				a.warn("the value of %s is too short or too common to be masked: a run that prints it shows it", args[0])
			}
			if a.forPrograms() {
				return a.json(map[string]string{"name": args[0], "scope": req.Scope})
			}
			whose, scope := "for the workspace", ""
			if req.Scope == protocol.SecretUser {
				whose, scope = "for you alone", `, "scope": "user"`
			}
			fmt.Fprintf(a.out, "%s set %s\n", cell(args[0]), whose)
			a.hint(`  a harness gets it by "env": {"VARIABLE": {"secretRef": "%s"%s}}`, args[0], scope)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "from-file", "", "file that holds the value")
	a.secretScope(cmd, &req.Scope)
	return cmd
}

// secretValue is what a file, standard input or a person at the terminal says.
func (a *app) secretValue(ctx context.Context, name, file string) (string, error) {
	in := a.in
	switch {
	case file != "":
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read the value: %w", err)
		}
		defer f.Close()
		in = f
	case a.atTerminal():
		return a.askSecret(ctx, name)
	}
	b, err := io.ReadAll(io.LimitReader(in, protocol.MaxSecretBytes+2)) // a line break may be taken off
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	if !utf8.Valid(b) {
		return "", &adviceError{errors.New("the value is not text"), "give binary values in base64, and let the harness decode them"}
	}
	value := string(b)
	// echo and editors end a line; a key in PEM is read by programs that want its end.
	if line := strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r"); !strings.Contains(line, "\n") {
		value = line
	}
	return value, nil
}

// atTerminal reports whether a person can be asked.
func (a *app) atTerminal() bool {
	f, ok := a.in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// askSecret asks the person at the terminal, which does not show what they type.
func (a *app) askSecret(ctx context.Context, name string) (string, error) {
	fd := int(a.in.(*os.File).Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("ask for the value: %w", err)
	}
	type answer struct {
		value []byte
		err   error
	}
	answered := make(chan answer, 1)
	fmt.Fprintf(a.err, "Value of %s (not shown): ", cell(name))
	defer fmt.Fprintln(a.err)
	go func() {
		value, err := term.ReadPassword(fd)
		answered <- answer{value, err}
	}()
	select {
	case got := <-answered:
		if got.err != nil {
			return "", fmt.Errorf("ask for the value: %w", got.err)
		}
		return string(got.value), nil
	case <-ctx.Done():
		// The read goes on until the process ends; what is typed then is shown again.
		return "", errors.Join(context.Cause(ctx), term.Restore(fd, before))
	}
}

var noSecrets = nothing{"no secrets", "set one: everdict secrets set NAME"}

func (a *app) secretsList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List secrets by name: your own and, for admins, the workspace's",
		Example: `  everdict secrets list
  everdict secrets list -o jsonl`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Secrets(cmd.Context())
			return show(a, list, err, noSecrets, []string{"NAME", "SCOPE", "CHANGED"}, func() (rows [][]string) {
				for _, s := range list {
					rows = append(rows, []string{cell(s.Name), cell(s.Scope), a.ago(s.UpdatedAt)})
				}
				return rows
			})
		},
	}
}

func (a *app) secretsUsage() *cobra.Command {
	return &cobra.Command{
		Use:   "usage",
		Short: "Show what refers to each secret",
		Example: `  everdict secrets usage
  everdict secrets usage -o json`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.SecretUsage(cmd.Context())
			return show(a, list, err, noSecrets, []string{"NAME", "SCOPE", "USED BY", "AS"}, func() (rows [][]string) {
				for _, s := range list {
					refs := s.Refs
					if len(refs) == 0 {
						refs = []protocol.SecretUse{{}}
					}
					for _, r := range refs {
						rows = append(rows, []string{cell(s.Name), cell(s.Scope), cell(strings.TrimSpace(r.Kind + " " + r.Label)), cell(strings.TrimSpace(r.Field + " " + r.Detail))})
					}
				}
				return rows
			})
		},
	}
}

func (a *app) secretsRm() *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Delete secrets: runs that wait and need one will fail",
		Example: `  everdict secrets rm DEPLOY_TOKEN
  everdict secrets rm OLD_TOKEN OLDER_TOKEN --scope user -o json`,
		Args: args("secret name..."),
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			// The API answers a deletion alike whether there was a secret or not.
			list, err := c.Secrets(cmd.Context())
			if err != nil {
				return err
			}
			return a.each(cmd.Context(), names, "deleted", func(ctx context.Context, name string) error {
				if err := c.DeleteSecret(ctx, name, scope); err != nil {
					return err // such as that one may not
				}
				if !slices.ContainsFunc(list, func(s protocol.Secret) bool { return s.Name == name && s.Scope == scope }) {
					return &adviceError{fmt.Errorf("no secret %s of scope %s", protocol.Clip(name, 80), scope), "everdict secrets list shows them, with their scopes"}
				}
				return nil
			})
		},
	}
	a.secretScope(cmd, &scope)
	return cmd
}

// completeSecrets offers the names of secrets to a shell.
func (a *app) completeSecrets(cmd *cobra.Command, got []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(got) > 0 && cmd.Name() == "set" || a.loadConfig(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	list, err := c.Secrets(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	scope := cmd.Flag("scope").Value.String()
	var names []string
	for _, s := range list {
		if s.Scope == scope && !slices.Contains(got, s.Name) {
			names = append(names, fmt.Sprintf("%s\tchanged %s", cell(s.Name), a.ago(s.UpdatedAt)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
