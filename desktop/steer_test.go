package desktop

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/desktop/vault"
	"github.com/everdict/everdict/protocol"
)

// Only a coordinator that says that the runner is gone knows it. Other refusals are none of its words, and a nonce that was
// over is asked for once more.
func TestTellGone(t *testing.T) {
	t.Parallel()
	refused := func(reason string) *protocol.Problem {
		p := protocol.Unauthenticated("no")
		if reason != "" {
			p = p.WithData("reason", reason)
		}
		return p
	}
	for _, c := range []struct {
		name string
		// answers are those to DELETE /runners/self, one after the other; nil: 204.
		answers []*protocol.Problem
		told    bool
	}{
		{"it takes it", []*protocol.Problem{nil}, true},
		{"revoked there", []*protocol.Problem{refused("revoked")}, true},
		{"unknown there", []*protocol.Problem{refused("unknown")}, true},
		{"restarted in between", []*protocol.Problem{refused("nonce"), nil}, true},
		{"revoked, after a restart", []*protocol.Problem{refused("nonce"), refused("revoked")}, true},
		{"no nonce is good", []*protocol.Problem{refused("nonce"), refused("nonce")}, false},
		{"something on the way", []*protocol.Problem{refused("")}, false},
		{"not allowed", []*protocol.Problem{protocol.Forbidden("no")}, false},
		{"broken", []*protocol.Problem{protocol.Internal("broken")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := New(Config{Dirs: home.Below(t.TempDir())})
			if err != nil {
				t.Fatal(err)
			}
			rec := record{ID: "con_1", Runner: "rnr_1", Key: control.FilePlace}
			if err := a.vault.Put(t.Context(), rec.ID, rec.Key, vault.Secret{Key: protocol.NewDeviceKey()}); err != nil {
				t.Fatal(err)
			}
			var nonces []string // used; the server has one request at a time
			mux := http.NewServeMux()
			mux.HandleFunc("POST /agent/nonce", func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(protocol.Nonce{Nonce: protocol.NewVerifier(), ExpiresInSec: 60})
			})
			answers := slices.Clone(c.answers)
			mux.HandleFunc("DELETE /runners/self", func(w http.ResponseWriter, r *http.Request) {
				nonces = append(nonces, r.Header.Get("Authorization"))
				p := answers[0]
				answers = answers[1:]
				if p == nil {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(p.Status)
				_ = json.NewEncoder(w).Encode(p)
			})
			s := httptest.NewServer(mux)
			defer s.Close()
			rec.Coordinator = s.URL
			if err := a.tellGone(t.Context(), rec); (err == nil) != c.told {
				t.Errorf("told: %v; want it told: %v", err, c.told)
			}
			if len(answers) != 0 || len(slices.Compact(slices.Sorted(slices.Values(nonces)))) != len(c.answers) {
				t.Errorf("it was asked with %q, and %d answers are left: want each asked for with a nonce of its own", nonces, len(answers))
			}
		})
	}
}

// forgetful is a keyring that takes a secret and does not keep it.
type forgetful struct{}

func (forgetful) Usable(context.Context) error                { return nil }
func (forgetful) Get(context.Context, string) (string, error) { return "", vault.ErrNotFound }
func (forgetful) Set(context.Context, string, string) error   { return nil }
func (forgetful) Delete(context.Context, string) error        { return nil }

// A key is not taken out of its place before it is safe in the other one.
func TestMoveToAForgetfulKeyring(t *testing.T) {
	t.Parallel()
	a, err := New(Config{Dirs: home.Below(t.TempDir()), Keyring: forgetful{}})
	if err != nil {
		t.Fatal(err)
	}
	c := newConnection(a, record{ID: "con_1", Coordinator: "https://everdict.example", Runner: "rnr_1", Key: control.FilePlace})
	a.connections = append(a.connections, c)
	s := vault.Secret{Key: protocol.NewDeviceKey()}
	if err := a.vault.Put(t.Context(), c.rec.ID, control.FilePlace, s); err != nil {
		t.Fatal(err)
	}
	if _, err := a.MoveKeys(t.Context(), control.KeyMove{Place: control.KeyringPlace}); err == nil {
		t.Error("the move has succeeded")
	}
	if got, err := a.vault.Get(t.Context(), c.rec.ID, control.FilePlace); err != nil || !got.Key.Equal(s.Key) || c.rec.Key != control.FilePlace {
		t.Errorf("the key is gone: %v, and is said to lie in the %s", err, c.rec.Key)
	}
}
