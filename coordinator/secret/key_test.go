package secret

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	key := GenerateKey()
	text := key.Encode()
	url := base64.RawURLEncoding.EncodeToString(key.bytes)
	for name, form := range map[string]string{"as it is written": text, "with a line end": text + "\n", "for URLs, without padding": url} {
		if got, err := ParseKey(form); err != nil || got.ID() != key.ID() || got.Encode() != text {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, key)
		}
	}
	for name, form := range map[string]string{
		"nothing": "", "hexadecimal": fmt.Sprintf("%x", key.bytes), "31 bytes": base64.StdEncoding.EncodeToString(key.bytes[1:]),
		"33 bytes": base64.StdEncoding.EncodeToString(append(key.bytes, 0)), "two lines": text[:20] + "\n" + text[20:], "words": "correct horse battery staple",
		"loose bits": text[:42] + "B=",
	} {
		if got, err := ParseKey(form); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		} else if form != "" && strings.Contains(err.Error(), form) {
			t.Errorf("%s: the error repeats the key: %v", name, err)
		}
	}
	for _, shown := range []string{fmt.Sprint(key), fmt.Sprintf("%+v", key), fmt.Sprintf("%#v", key), key.ID()} {
		if shown != key.ID() || !strings.HasPrefix(shown, "kek_") {
			t.Errorf("a key prints as %q, want its id", shown)
		}
	}
}

// TestTheKeyFile: it is made once, for its owner, and one that others may read is
// refused.
func TestTheKeyFile(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.set(p.vault(), ann, protocol.SecretWorkspace, "A", value)
	first := p.keyFile()
	if _, err := ParseKey(first); err != nil { // so that a variable can name the file
		t.Errorf("the key file is not a key alone: %v", err)
	}
	p.wants(p.vault(), ann, named("A"), value)
	if got := p.keyFile(); got != first {
		t.Error("the second start has changed the key file")
	}
	for _, mode := range []fs.FileMode{0o644, 0o640, 0o602} {
		if err := os.Chmod(p.keys.File, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := p.open(); err == nil || !strings.Contains(err.Error(), "chmod 600") || !strings.Contains(err.Error(), p.keys.File) {
			t.Errorf("mode %o: got %v, want a refusal that says what to do", mode, err)
		}
	}
	if err := os.Chmod(p.keys.File, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty": "", "a comment": "# nothing\n", "no key": first + "correct horse\n"} {
		if err := os.WriteFile(p.keys.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.open(); err == nil || strings.Contains(err.Error(), "correct horse") {
			t.Errorf("%s: got %v, want an error that quotes nothing", name, err)
		}
	}
}

// TestP15_AWrongKeyChangesNothing: a start without the key that the secrets need says
// which one that is, and leaves every row and file alone.
func TestP15_AWrongKeyChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	right, wrong := GenerateKey(), GenerateKey()
	p.keys.Current = right.Encode()
	p.set(p.vault(), ann, protocol.SecretWorkspace, "A", value)
	before := fmt.Sprint(p.rows())
	for name, keys := range map[string]Keys{
		"another key": {Current: wrong.Encode(), File: p.keys.File},
		"no key":      {File: p.keys.File},
	} {
		p.keys = keys
		var e *WrongKeyError
		says := "the key given is " + wrong.ID()
		if keys.Current == "" {
			says = "no key is given"
		}
		if _, err := p.open(); !errors.As(err, &e) || !strings.Contains(err.Error(), right.ID()+", and "+says) {
			t.Errorf("%s: got %v, want it to name %s, and that %s", name, err, right.ID(), says)
		}
		if got := fmt.Sprint(p.rows()); got != before || p.keyFile() != "" {
			t.Errorf("%s: a row was changed, or a key file made", name)
		}
	}
	p.keys = Keys{Current: right.Encode(), File: p.keys.File}
	p.wants(p.vault(), ann, named("A"), value)
}

// TestANewKeyBesideTheOldOne: at the start everything is sealed by the new key, after
// which the old one is not needed.
func TestANewKeyBesideTheOldOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	old, next := GenerateKey(), GenerateKey()
	p.keys.Current = old.Encode()
	v := p.vault()
	p.set(v, ann, protocol.SecretWorkspace, "A", value)
	p.set(v, bob, protocol.SecretUser, "B", "bob's own value")
	listed, err := v.List(t.Context(), ann, protocol.SecretWorkspace)
	if err != nil {
		t.Fatal(err)
	}
	p.keys = Keys{Current: next.Encode(), Old: []string{GenerateKey().Encode(), old.Encode()}, File: p.keys.File}
	p.vault()
	if ids := p.keyIDs(); ids != next.ID() {
		t.Errorf("the secrets need the keys %s, want %s alone", ids, next.ID())
	}
	p.keys.Old = nil
	v = p.vault()
	p.wants(v, ann, named("A"), value)
	p.wants(v, bob, named("B"), "bob's own value")
	if again, err := v.List(t.Context(), ann, protocol.SecretWorkspace); err != nil || again[0] != listed[0] {
		t.Errorf("listed %+v, %v after the change of the key, want %+v", again, err, listed)
	}
	p.keys.Old = []string{"no key"}
	if _, err := p.open(); err == nil || !strings.Contains(err.Error(), "old key 1") {
		t.Errorf("an old key that is none: %v", err)
	}
}

// TestTheKeyMoves: from a variable into the key file, and back.
func TestTheKeyMoves(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	outside := GenerateKey()
	p.keys.Current = outside.Encode()
	p.set(p.vault(), ann, protocol.SecretWorkspace, "A", value)
	p.keys = Keys{Old: []string{outside.Encode()}, File: p.keys.File}
	p.wants(p.vault(), ann, named("A"), value)
	p.keys.Old = nil
	p.wants(p.vault(), ann, named("A"), value)
	p.keys = Keys{Current: outside.Encode(), Old: []string{p.keyFile()}, File: p.keys.File}
	p.wants(p.vault(), ann, named("A"), value)
	if ids := p.keyIDs(); ids != outside.ID() {
		t.Errorf("the secrets need %s, want %s", ids, outside.ID())
	}
}

// TestRotate: a new key in the key file seals everything.
func TestRotate(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if _, err := p.keys.Rotate(t.Context(), p.store, slog.Default()); err == nil || p.keyFile() != "" {
		t.Errorf("without a key file: %v", err)
	}
	v := p.vault()
	p.set(v, ann, protocol.SecretWorkspace, "A", value)
	p.set(v, ann, protocol.SecretUser, "A", "ann's")
	before, file := p.keyIDs(), p.keyFile()
	done, err := p.keys.Rotate(t.Context(), p.store, slog.Default())
	if err != nil || done.Secrets != 2 || done.Before != before || done.KeyID != p.keyIDs() || done.KeyID == before {
		t.Errorf("rotated %+v, %v; before, the key was %s, now it is %s", done, err, before, p.keyIDs())
	}
	if now := p.keyFile(); now == file || strings.Count(now, "\n") != 1 {
		t.Errorf("the key file has %d lines, want the new key alone", strings.Count(now, "\n"))
	}
	v = p.vault()
	p.wants(v, ann, named("A"), value)
	p.wants(v, ann, named("A", protocol.SecretUser), "ann's")
	outside := p.keys
	outside.Current = GenerateKey().Encode()
	if _, err := outside.Rotate(t.Context(), p.store, slog.Default()); !errors.Is(err, ErrKeyFromOutside) {
		t.Errorf("a key from outside: %v", err)
	}
}

// TestARotationThatIsCutOff: whatever was done of it, the next start goes on.
func TestARotationThatIsCutOff(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.set(p.vault(), ann, protocol.SecretWorkspace, "A", value)
	keys, err := readKeyFile(p.keys.File)
	if err != nil {
		t.Fatal(err)
	}
	next := GenerateKey()
	if err := writeKeyFile(p.keys.File, append([]Key{next}, keys...)); err != nil { // the file was written, and no row
		t.Fatal(err)
	}
	p.wants(p.vault(), ann, named("A"), value)
	if ids := p.keyIDs(); ids != next.ID() {
		t.Errorf("the secrets need %s, want %s", ids, next.ID())
	}
	p.wants(p.vault(), ann, named("A"), value) // the rows, and not the end of the file
}

// TestARotationThatFails: one secret that does not open leaves all as they were.
func TestARotationThatFails(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v := p.vault()
	p.set(v, ann, protocol.SecretWorkspace, "A", value)
	p.set(v, ann, protocol.SecretWorkspace, "B", value)
	b, err := p.store.Secret(t.Context(), ann.key(protocol.SecretWorkspace, "B"))
	if err != nil {
		t.Fatal(err)
	}
	b.Sealed[len(b.Sealed)-1] ^= 1
	if err := p.store.PutSecret(t.Context(), *b); err != nil {
		t.Fatal(err)
	}
	before, file := fmt.Sprint(p.rows()), p.keyFile()
	var unreadable *UnreadableError
	if _, err := p.keys.Rotate(t.Context(), p.store, slog.Default()); !errors.As(err, &unreadable) || unreadable.Name != "B" {
		t.Errorf("got %v, want B to be named", err)
	}
	if fmt.Sprint(p.rows()) != before || p.keyFile() != file {
		t.Error("a row or the key file was changed")
	}
	p.wants(p.vault(), ann, named("A"), value)
}
