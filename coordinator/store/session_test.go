package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// A session is found with its key until it is ended, its time is over, or the key is
// gone.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := open(t)
	now := time.UnixMilli(1_800_000_000_000)
	key := store.KeyRecord{
		Key:       protocol.Key{ID: "key_1", Subject: "ann", Role: "member", Prefix: "ak_12345", Scopes: []string{"write"}, CreatedAt: protocol.At(now)},
		Workspace: "team", Hash: "keyhash",
	}
	if err := s.InsertKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	begin := func(hash string, at time.Time) error {
		return s.InsertSession(t.Context(), store.SessionRecord{Hash: hash, Key: key, CreatedAt: protocol.At(at), SeenAt: protocol.At(at), ExpiresAt: protocol.At(at.Add(time.Hour))})
	}
	for _, hash := range []string{"one", "two"} {
		if err := begin(hash, now); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Session(t.Context(), "one")
	if err != nil || got.Key.Subject != "ann" || got.Key.Scopes[0] != "write" || !got.ExpiresAt.Equal(now.Add(time.Hour)) {
		t.Fatalf("session: %+v, %v; want ann's for an hour", got, err)
	}
	later := protocol.At(now.Add(time.Minute))
	if err := errors.Join(s.TouchSession(t.Context(), "one", later), s.TouchSession(t.Context(), "one", protocol.At(now))); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Session(t.Context(), "one"); err != nil || !got.SeenAt.Equal(later.Time) {
		t.Errorf("after two touches seen at %v, %v; want the later of both", got.SeenAt, err)
	}
	if err := s.DeleteSession(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.DeleteSession(t.Context(), "one"), notThere(s.Session(t.Context(), "one"))} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a session that was ended: %v, want not found", err)
		}
	}
	if err := begin("three", now.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := notThere(s.Session(t.Context(), "two")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a session whose time was over: %v, want it dropped at the next sign-in", err)
	}
	if err := s.DeleteKey(t.Context(), "team", "key_1"); err != nil {
		t.Fatal(err)
	}
	if err := notThere(s.Session(t.Context(), "three")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a session whose key was deleted: %v, want it gone", err)
	}
	if err := begin("four", now); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a session for a key that is gone: %v, want not found", err)
	}
}

func notThere(_ *store.SessionRecord, err error) error { return err }
