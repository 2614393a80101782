package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
)

// Files in the data directory.
const (
	databaseFile   = "everdict.db"
	secretsKeyFile = "secrets.key"
)

func secretKeys(cfg *Config) secret.Keys {
	return secret.Keys{Service: cfg.SecretsKeyService, Current: cfg.SecretsKey, Old: cfg.SecretsOldKeys, File: filepath.Join(cfg.DataDir, secretsKeyFile)}
}

// RotateSecretsKey gives the secrets in cfg.DataDir a new key, in the key file there,
// while no coordinator serves them. Only DataDir, the fields of secrets and Log of cfg
// count. A key that is not in the key file is secret.ErrKeyFromOutside, a
// coordinator that runs a *sqlite.HeldError.
func RotateSecretsKey(ctx context.Context, cfg Config) (done secret.Rotation, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	path := filepath.Join(cfg.DataDir, databaseFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return done, fmt.Errorf("coordinator: %s is not the data directory of a coordinator: it has no %s", cfg.DataDir, databaseFile)
	}
	db, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	st, err := store.Open(ctx, db)
	if err != nil {
		return done, err
	}
	return secretKeys(&cfg).Rotate(ctx, st, cfg.Log)
}
