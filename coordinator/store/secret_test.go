package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	ours := store.SecretRecord{SecretKey: store.SecretKey{Workspace: "default", Scope: protocol.SecretWorkspace, Name: "A"},
		KeyID: "kek_1", DataKey: []byte("wrapped"), Sealed: []byte("sealed"), UpdatedAt: protocol.At(start)}
	own := ours
	own.Scope, own.Owner, own.KeyID = protocol.SecretUser, "ann", "kek_2"
	for _, r := range []store.SecretRecord{ours, own} {
		if err := s.PutSecret(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []store.SecretRecord{ours, own} {
		got, err := s.Secret(ctx, want.SecretKey)
		if diff := cmp.Diff(&want, got); err != nil || diff != "" {
			t.Errorf("secret (%v) (-want +got):\n%s", err, diff)
		}
	}
	another := own.SecretKey
	another.Owner = "bob"
	if _, err := s.Secret(ctx, another); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("somebody else's: %v, want ErrNotFound", err)
	}
	if ids, err := s.SecretKeyIDs(ctx); err != nil || !cmp.Equal(ids, []string{"kek_1", "kek_2"}) {
		t.Errorf("keys %v, %v", ids, err)
	}

	// An error in the middle leaves all as they were.
	failure := errors.New("no")
	seal := func(failAt string) error {
		_, err := s.ResealSecrets(ctx, func(r store.SecretRecord) (store.SecretRecord, error) {
			if r.KeyID == failAt {
				return r, failure
			}
			return store.SecretRecord{KeyID: "kek_3", DataKey: []byte("w"), Sealed: append(r.Sealed, '!')}, nil
		})
		return err
	}
	if err := seal("kek_1"); !errors.Is(err, failure) {
		t.Errorf("a failure of one: %v", err)
	}
	if got, err := s.Secret(ctx, own.SecretKey); err != nil || got.KeyID != "kek_2" {
		t.Errorf("after a failure: %+v, %v, want it as it was", got, err)
	}
	if err := seal(""); err != nil {
		t.Fatal(err)
	}
	want := own
	want.KeyID, want.DataKey, want.Sealed = "kek_3", []byte("w"), []byte("sealed!")
	got, err := s.Secret(ctx, own.SecretKey)
	if diff := cmp.Diff(&want, got); err != nil || diff != "" {
		t.Errorf("sealed anew (%v) (-want +got):\n%s", err, diff)
	}

	if err := s.DeleteSecret(ctx, own.SecretKey); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSecret(ctx, own.SecretKey); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("delete twice: %v, want ErrNotFound", err)
	}
	names, err := s.SecretNames(ctx, ours.SecretKey)
	if listed := []protocol.Secret{{Name: "A", Scope: protocol.SecretWorkspace, Kind: protocol.SecretPlain, UpdatedAt: protocol.At(start)}}; err != nil || !cmp.Equal(names, listed) {
		t.Errorf("names %+v, %v, want %+v", names, err, listed)
	}
}
