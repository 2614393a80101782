package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// TestP12_ValuesAreSealedAtRest: no file of the data directory holds a value, before
// and after it was replaced, and what is listed is names.
func TestP12_ValuesAreSealedAtRest(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v := p.vault()
	p.set(v, ann, protocol.SecretWorkspace, "TOKEN", value)
	p.set(v, ann, protocol.SecretUser, "TOKEN", value+" of ann")
	p.set(v, ann, protocol.SecretWorkspace, "TOKEN", value+" again")
	p.wants(v, ann, named("TOKEN"), value+" again")
	list, err := v.List(t.Context(), ann, protocol.SecretWorkspace, protocol.SecretUser)
	if err != nil || len(list) != 2 || list[0].Scope != protocol.SecretWorkspace || list[1].Scope != protocol.SecretUser || list[0].UpdatedAt.IsZero() {
		t.Errorf("listed %+v, %v", list, err)
	}
	files, err := filepath.Glob(p.dir + "/*")
	if err != nil || len(files) < 3 {
		t.Fatalf("the data directory has %v, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(value[:12])) {
			t.Errorf("%s holds the value", file)
		}
	}
	if log := p.log.String(); strings.Contains(log, value[:12]) {
		t.Errorf("the log holds the value: %s", log)
	}
	if st, err := os.Stat(p.keys.File); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key file: %v, %v, want it for its owner only", st, err)
	}
	rows := p.rows()
	if bytes.Equal(rows[0].DataKey, rows[1].DataKey) || rows[0].KeyID == "" {
		t.Errorf("rows share a data key, or name no key: %+v", rows)
	}
}

// TestP12_ARowCannotStandForAnother: whoever can write the database, and has no key,
// cannot make one secret pass for another one.
func TestP12_ARowCannotStandForAnother(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v := p.vault()
	p.set(v, ann, protocol.SecretWorkspace, "A", "value of the workspace")
	from, err := p.store.Secret(t.Context(), ann.key(protocol.SecretWorkspace, "A"))
	if err != nil {
		t.Fatal(err)
	}
	other := Owner{"other", "ann"}
	for name, row := range map[string]struct {
		owner Owner
		scope string
		name  string
	}{
		"another name":      {ann, protocol.SecretWorkspace, "B"},
		"another scope":     {ann, protocol.SecretUser, "A"},
		"another person's":  {bob, protocol.SecretUser, "A"},
		"another workspace": {other, protocol.SecretWorkspace, "A"},
	} {
		p.set(v, row.owner, row.scope, row.name, "its own value")
		own, err := p.store.Secret(t.Context(), row.owner.key(row.scope, row.name))
		if err != nil {
			t.Fatal(err)
		}
		for what, swapped := range map[string]store.SecretRecord{
			"whole":    {SecretKey: own.SecretKey, KeyID: from.KeyID, DataKey: from.DataKey, Sealed: from.Sealed},
			"value":    {SecretKey: own.SecretKey, KeyID: own.KeyID, DataKey: own.DataKey, Sealed: from.Sealed},
			"data key": {SecretKey: own.SecretKey, KeyID: own.KeyID, DataKey: from.DataKey, Sealed: own.Sealed},
		} {
			if err := p.store.PutSecret(t.Context(), swapped); err != nil {
				t.Fatal(err)
			}
			got, err := v.Resolve(t.Context(), row.owner, named(row.name, row.scope))
			var unreadable *UnreadableError
			if !errors.As(err, &unreadable) || got != "" {
				t.Errorf("%s, %s of A put there: got %q, %v, want an UnreadableError", name, what, got, err)
			}
		}
	}
}

// TestTiers: the workspace's secret comes first, a scope chooses, and nobody gets what
// is another person's.
func TestTiers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v := p.vault()
	p.set(v, ann, protocol.SecretWorkspace, "BOTH", "ours")
	p.set(v, ann, protocol.SecretUser, "BOTH", "ann's")
	p.set(v, ann, protocol.SecretUser, "MINE", "ann's alone")
	p.set(v, Owner{"other", "ann"}, protocol.SecretWorkspace, "ELSEWHERE", "theirs")
	p.wants(v, ann, named("BOTH"), "ours")
	p.wants(v, ann, named("BOTH", protocol.SecretWorkspace), "ours")
	p.wants(v, ann, named("BOTH", protocol.SecretUser), "ann's")
	p.wants(v, bob, named("BOTH"), "ours")
	p.wants(v, ann, named("MINE"), "ann's alone")
	p.wants(v, ann, named("MINE", protocol.SecretUser), "ann's alone")
	for _, row := range []struct {
		of  Owner
		ref protocol.SecretRef
	}{
		{bob, named("MINE")}, {bob, named("BOTH", protocol.SecretUser)}, {ann, named("MINE", protocol.SecretWorkspace)},
		{ann, named("ELSEWHERE")}, {Owner{Workspace: "default"}, named("MINE")}, {ann, named("both")},
	} {
		if got, err := v.Resolve(t.Context(), row.of, row.ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of %+v: got %q, %v, want ErrNotFound", row.ref, row.of, got, err)
		}
	}
	missing, err := v.Missing(t.Context(), bob, []protocol.SecretRef{named("Z"), named("MINE", protocol.SecretUser), named("BOTH"), named("MINE"), named("Z")})
	if want := []string{"MINE", "Z", "user:MINE"}; err != nil || !slices.Equal(missing, want) {
		t.Errorf("missing %q, %v, want %q", missing, err, want)
	}
}

func TestP15_BadSecretsChangeNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v := p.vault()
	const telling = "a-value-that-tells"
	for what, row := range map[string]struct {
		name string
		req  protocol.SecretRequest
	}{
		"a space":         {"a token", protocol.SecretRequest{Value: telling}},
		"a digit first":   {"1TOKEN", protocol.SecretRequest{Value: telling}},
		"no name":         {"", protocol.SecretRequest{Value: telling}},
		"a path":          {"../TOKEN", protocol.SecretRequest{Value: telling}},
		"a line break":    {"TOKEN\n", protocol.SecretRequest{Value: telling}},
		"a long name":     {strings.Repeat("A", protocol.MaxNameBytes+1), protocol.SecretRequest{Value: telling}},
		"no value":        {"TOKEN", protocol.SecretRequest{}},
		"an unknown wish": {"TOKEN", protocol.SecretRequest{Value: telling, Scope: "everybody"}},
		"a NUL byte":      {"TOKEN", protocol.SecretRequest{Value: telling + "\x00"}},
		"no text":         {"TOKEN", protocol.SecretRequest{Value: telling + "\uFFFD"}},
		"too long":        {"TOKEN", protocol.SecretRequest{Value: strings.Repeat(telling, protocol.MaxSecretBytes/len(telling)+1)}},
	} {
		err := v.Set(t.Context(), ann, row.name, row.req)
		var problem *protocol.Problem
		if !errors.As(err, &problem) || problem.Code != protocol.CodeBadRequest || problem.Message == "" {
			t.Errorf("%s: got %v, want a problem", what, err)
		} else if strings.Contains(problem.Error(), telling) {
			t.Errorf("%s: the problem repeats the value: %v", what, err)
		}
	}
	var problem *protocol.Problem
	if err := v.Set(t.Context(), Owner{Workspace: "default"}, "TOKEN", protocol.SecretRequest{Value: telling, Scope: protocol.SecretUser}); !errors.As(err, &problem) || problem.Hint == "" {
		t.Errorf("nobody's own: got %v, want a problem with a hint", err)
	}
	if rows := p.rows(); len(rows) != 0 {
		t.Errorf("afterwards there are %+v", rows)
	}
	p.set(v, ann, protocol.SecretUser, "TOKEN", value)
	for _, of := range []Owner{ann, bob} { // neither is anybody's
		if err := v.Delete(t.Context(), of, protocol.SecretWorkspace, "TOKEN"); err != nil {
			t.Errorf("delete what is not there: %v", err)
		}
	}
	p.wants(v, ann, named("TOKEN"), value)
}

// uses refers to secrets.
type uses []protocol.SecretRef

func (u uses) EachSecretRef(_ context.Context, workspace string, fn func(protocol.SecretRef, protocol.SecretUse)) error {
	for _, ref := range u {
		for _, by := range []string{ann.Subject, "somebody else"} {
			label := workspace + " " + ref.String() + " of " + by
			fn(ref, protocol.SecretUse{Kind: protocol.SecretUseHarness, Field: protocol.SecretUseEnv, Label: label, By: by})
		}
	}
	return nil
}

// TestUsage: a reference counts for the secret that it would find, which of one's own is
// one of a harness that one registered.
func TestUsage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v := p.vault()
	v.cfg.Referrers = []Referrer{uses{named("A"), named("A", protocol.SecretUser)}, uses{named("B"), named("B", protocol.SecretWorkspace), named("C")}}
	p.set(v, ann, protocol.SecretWorkspace, "A", value)
	p.set(v, ann, protocol.SecretUser, "A", value)
	p.set(v, ann, protocol.SecretUser, "B", value)
	p.set(v, ann, protocol.SecretWorkspace, "UNUSED", value)
	usage, err := v.Usage(t.Context(), ann, protocol.SecretWorkspace, protocol.SecretUser)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, u := range usage {
		if u.Refs == nil {
			t.Errorf("the references of %s are null", u.Name)
		}
		key := u.Scope + " " + u.Name
		got[key] = []string{}
		for _, r := range u.Refs {
			got[key] = append(got[key], r.Label)
		}
	}
	want := map[string][]string{
		"workspace A": {"default A of ann", "default A of somebody else"}, "workspace UNUSED": {},
		"user A": {"default user:A of ann"}, "user B": {"default B of ann"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

// away is a key service that does not answer.
type away struct {
	KeyService
	err error
}

func (a away) Unwrap(context.Context, string, []byte, []byte) ([]byte, error) { return nil, a.err }

// TestAKeyServiceThatDoesNotAnswer: its secrets are not taken for damaged.
func TestAKeyServiceThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v := p.vault()
	p.set(v, ann, protocol.SecretWorkspace, "A", value)
	ring := v.cfg.Keys
	v.cfg.Keys = away{ring, fmt.Errorf("dial the service: %w", ErrUnavailable)}
	var damaged *UnreadableError
	if _, err := v.Resolve(t.Context(), ann, named("A")); !errors.Is(err, ErrUnavailable) || errors.As(err, &damaged) {
		t.Errorf("not reached: got %v, want ErrUnavailable", err)
	}
	v.cfg.Keys = away{ring, errors.New("the ciphertext was changed")}
	if _, err := v.Resolve(t.Context(), ann, named("A")); !errors.As(err, &damaged) {
		t.Errorf("refused: got %v, want an *UnreadableError", err)
	}
	v.cfg.Keys = ring
	p.wants(v, ann, named("A"), value)
}

// TestWhoUsesASecretIsTold: a client that was made with the value of before is another's.
func TestWhoUsesASecretIsTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var told []string
	v, err := OpenWith(t.Context(), p.keys, Config{Store: p.store, Changed: func(workspace, name string) { told = append(told, workspace+"/"+name) }})
	if err != nil {
		t.Fatal(err)
	}
	p.set(v, ann, protocol.SecretWorkspace, "A", value)
	p.set(v, ann, protocol.SecretUser, "B", value)
	p.set(v, ann, protocol.SecretWorkspace, "A", value+" again")
	for range 2 { // the second finds none
		if err := v.Delete(t.Context(), ann, protocol.SecretWorkspace, "A"); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"default/A", "default/A", "default/A"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q: set, replaced, deleted", told, want)
	}
}
