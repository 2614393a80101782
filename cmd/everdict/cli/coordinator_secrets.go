package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/cmd/everdict/config"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/lease/sqlite"
)

func (a *app) rotateSecretsKeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate-secrets-key",
		Short: "Seal the secrets in a data directory by a new key",
		Long: `Seal the secrets in a data directory by a new key, which takes the place of the old one in the file secrets.key there.
The coordinator must be stopped meanwhile. All secrets are sealed anew in one transaction, or none is.

A key that comes from EVERDICT_SECRETS_KEY is replaced there: give the new one in it and the old one in
EVERDICT_SECRETS_OLD_KEYS, and start the coordinator.`,
		Example: `  everdict coordinator rotate-secrets-key
  everdict coordinator rotate-secrets-key --data-dir /var/lib/everdict -o json`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var o CoordinatorOptions
			var err error
			if o.DataDir, err = filepath.Abs(a.cfg.String(config.DataDir)); err != nil {
				return err
			}
			if err := a.secretsKeys(&o); err != nil {
				return err
			}
			if o.Log, err = a.logger(); err != nil {
				return err
			}
			if a.hooks.RotateSecretsKey == nil {
				return errNoHook(cmd)
			}
			done, err := a.hooks.RotateSecretsKey(cmd.Context(), o)
			if err != nil {
				return a.rotationAdvice(err)
			}
			if a.forPrograms() {
				return a.json(done)
			}
			fmt.Fprintf(a.out, "%s sealed by %s now, and not by %s any more\n", plural(done.Secrets, "secret"), cell(done.KeyID), cell(done.Before))
			a.hint("  copies of the database that were made before still need the old key, which is gone")
			return nil
		},
	}
	config.Bind(cmd.Flags(), a.schema, config.DataDir, config.LogLevel, config.LogFormat)
	return cmd
}

// secretsKeys reads the keys of the secrets and checks that they are some.
func (a *app) secretsKeys(o *CoordinatorOptions) (err error) {
	if o.SecretsKey, err = a.cfg.Secret(config.SecretsKey); err != nil {
		return err
	}
	if o.SecretsOldKeys, err = a.cfg.Secrets(config.SecretsOldKeys); err != nil {
		return err
	}
	if o.SecretsKey != "" {
		if _, err := secret.ParseKey(o.SecretsKey); err != nil {
			return a.badSecretsKey(config.SecretsKey, err)
		}
	}
	for _, old := range o.SecretsOldKeys {
		if _, err := secret.ParseKey(old); err != nil {
			return a.badSecretsKey(config.SecretsOldKeys, err)
		}
	}
	return nil
}

func (a *app) badSecretsKey(key string, err error) error {
	return &adviceError{fmt.Errorf("%s: %s is no key: %w", a.cfg.Origin(key), key, err),
		"make one with: openssl rand -base64 32; a key that is in use stays as it is"}
}

// secretsKeyAdvice adds what to do about secrets that need another key.
func secretsKeyAdvice(err error) error {
	var wrong *secret.WrongKeyError
	if !errors.As(err, &wrong) {
		return err
	}
	return &adviceError{err, "give that key in EVERDICT_SECRETS_KEY or as the file secrets.key in the data directory; to replace it, in EVERDICT_SECRETS_OLD_KEYS beside the new one. Nothing was changed"}
}

// rotationAdvice adds what to do when the key cannot be replaced.
func (a *app) rotationAdvice(err error) error {
	var held *sqlite.HeldError
	switch {
	case errors.Is(err, secret.ErrKeyFromOutside):
		return &adviceError{fmt.Errorf("the key comes from %s and is replaced there", a.cfg.Origin(config.SecretsKey)),
			"give a new key there (openssl rand -base64 32) and the old one in EVERDICT_SECRETS_OLD_KEYS, then start the coordinator"}
	case errors.As(err, &held):
		return &adviceError{fmt.Errorf("a coordinator uses this data directory: %w", err), "stop it first, and start it again afterwards"}
	}
	return secretsKeyAdvice(err)
}
