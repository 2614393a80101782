package secret

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

const value = `correct-horse "battery" & staple/9`

var ann, bob = Owner{"default", "ann"}, Owner{"default", "bob"}

// place is a data directory whose coordinator can be stopped and started.
type place struct {
	t     *testing.T
	dir   string
	keys  Keys
	log   bytes.Buffer
	db    *sqlite.DB
	store *store.Store
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{t: t, dir: dir, keys: Keys{File: filepath.Join(dir, "secrets.key")}}
	p.start()
	t.Cleanup(p.stop)
	return p
}

func (p *place) start() {
	p.t.Helper()
	var err error
	if p.db, err = sqlite.Open(p.t.Context(), sqlite.Config{Path: p.database()}); err != nil {
		p.t.Fatal(err)
	}
	if p.store, err = store.Open(p.t.Context(), p.db); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) stop() {
	if err := p.db.Close(); err != nil {
		p.t.Errorf("close the database: %v", err)
	}
}

func (p *place) database() string { return filepath.Join(p.dir, "everdict.db") }

func (p *place) open() (*Vault, error) {
	return OpenWith(p.t.Context(), p.keys, Config{Store: p.store, Log: slog.New(slog.NewTextHandler(&p.log, nil))})
}

func (p *place) vault() *Vault {
	p.t.Helper()
	v, err := p.open()
	if err != nil {
		p.t.Fatalf("open the secrets: %v", err)
	}
	return v
}

func (p *place) set(v *Vault, o Owner, scope, name, value string) {
	p.t.Helper()
	if err := v.Set(p.t.Context(), o, name, protocol.SecretRequest{Value: value, Scope: scope}); err != nil {
		p.t.Fatalf("set %s for the %s: %v", name, scope, err)
	}
}

// wants resolves a reference.
func (p *place) wants(v *Vault, o Owner, ref protocol.SecretRef, want string) {
	p.t.Helper()
	if got, err := v.Resolve(p.t.Context(), o, ref); err != nil || got != want {
		p.t.Errorf("%s of %s: got %q, %v, want %q", ref, o.Subject, got, err, want)
	}
}

// keyIDs are the keys that rows need.
func (p *place) keyIDs() string {
	p.t.Helper()
	ids, err := p.store.SecretKeyIDs(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Join(ids, " ")
}

// keyFile is what the key file holds; "" if there is none.
func (p *place) keyFile() string {
	p.t.Helper()
	b, err := os.ReadFile(p.keys.File)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return string(b)
}

// rows is everything that the table holds.
func (p *place) rows() (all []store.SecretRecord) {
	p.t.Helper()
	_, err := p.store.ResealSecrets(context.Background(), func(r store.SecretRecord) (store.SecretRecord, error) {
		all = append(all, r)
		return r, nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

func named(name string, scope ...string) protocol.SecretRef {
	return protocol.SecretRef{SecretRef: name, Scope: strings.Join(scope, "")}
}
