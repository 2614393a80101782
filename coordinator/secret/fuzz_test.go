package secret

import (
	"bytes"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// FuzzKeyFile: what is read is keys that write and read the same, and an error quotes
// nothing.
func FuzzKeyFile(f *testing.F) {
	key := "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="
	f.Add(key)
	f.Add("# comment\n\n" + key + "\r\n" + key)
	f.Add("no key")
	f.Add("-_" + key[2:43])
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeyFile(text)
		if err != nil {
			if long := strings.TrimSpace(text); len(long) > 30 && strings.Contains(err.Error(), long) {
				t.Fatalf("the error %v quotes the file %q", err, text)
			}
			return
		}
		var again strings.Builder
		for _, k := range keys {
			if len(k.bytes) != keyBytes {
				t.Fatalf("%q has a key of %d bytes", text, len(k.bytes))
			}
			again.WriteString(k.Encode() + "\n")
		}
		same, err := parseKeyFile(again.String())
		if err != nil || len(same) != len(keys) || same[0].ID() != keys[0].ID() {
			t.Fatalf("%q reads as %v, and what that writes as %v, %v", text, keys, same, err)
		}
	})
}

// FuzzOpen: whatever stands in a row, it opens as what was sealed for it or not at
// all.
func FuzzOpen(f *testing.F) {
	ring, err := NewKeyring(newKey(bytes.Repeat([]byte{7}, keyBytes)))
	if err != nil {
		f.Fatal(err)
	}
	k := store.SecretKey{Workspace: "w", Scope: protocol.SecretUser, Owner: "ann", Name: "A"}
	good, err := seal(f.Context(), ring, k, "the value")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.KeyID, good.DataKey, good.Sealed, "w", "ann", "A")
	f.Add(good.KeyID, good.DataKey, good.Sealed, "wA", "ann", "")
	f.Add("kek_0", []byte{}, []byte{}, "", "", "")
	f.Add(good.KeyID, good.DataKey, []byte{1}, "w", "ann", "A")
	f.Fuzz(func(t *testing.T, id string, dataKey, sealed []byte, workspace, owner, name string) {
		r := store.SecretRecord{KeyID: id, DataKey: dataKey, Sealed: sealed,
			SecretKey: store.SecretKey{Workspace: workspace, Scope: protocol.SecretUser, Owner: owner, Name: name}}
		got, err := open(t.Context(), ring, r)
		if err == nil && (got != "the value" || r.SecretKey != k) {
			t.Fatalf("%+v opens as %q", r, got)
		}
		if err != nil && got != "" {
			t.Fatalf("%+v: %q beside %v", r, got, err)
		}
	})
}

// FuzzAssociated: two names that differ are bound differently.
func FuzzAssociated(f *testing.F) {
	f.Add("w", "o", "n", "wo", "", "n")
	f.Add("a\x01b", "", "", "a", "b", "")
	f.Fuzz(func(t *testing.T, w1, o1, n1, w2, o2, n2 string) {
		a := store.SecretKey{Workspace: w1, Scope: protocol.SecretUser, Owner: o1, Name: n1}
		b := store.SecretKey{Workspace: w2, Scope: protocol.SecretUser, Owner: o2, Name: n2}
		if (a == b) != bytes.Equal(associated(a), associated(b)) {
			t.Fatalf("%+v and %+v are bound to %q and %q", a, b, associated(a), associated(b))
		}
	})
}
