package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/pressly/goose/v3"
)

var componentName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Migrate brings the tables of one component up to date with its numbered SQL files (goose format: 00001_name.sql with
// "-- +goose Up"). Each component keeps its version in a table of its own, <component>_schema_version, so that several
// share the file and none knows of the others. It runs between groups, when the writer holds no lock.
func (db *DB) Migrate(ctx context.Context, component string, files fs.FS) error {
	if !componentName.MatchString(component) {
		return fmt.Errorf("sqlite: migrate: bad component name %q", component)
	}
	err := db.submit(ctx, alone, func(*Tx) error { return db.migrate(ctx, component, files) })
	if err != nil {
		return fmt.Errorf("sqlite: migrate %s: %w", component, err)
	}
	return nil
}

func (db *DB) migrate(ctx context.Context, component string, files fs.FS) (err error) {
	conn, err := sql.Open("sqlite3", db.dsn("rw", "&_synchronous=full&_txlock=immediate"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	conn.SetMaxOpenConns(1)
	provider, err := goose.NewProvider(goose.DialectSQLite3, conn, files,
		goose.WithTableName(component+"_schema_version"),
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	have, want, err := provider.GetVersions(ctx)
	if err != nil {
		return err
	}
	if have > want {
		return fmt.Errorf("the database is at version %d, newer than this program's %d: use the newer program", have, want)
	}
	_, err = provider.Up(ctx)
	return err
}
