package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

func TestDeviceOnDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state", "credential")
	d := Device{Coordinator: "https://everdict.example", Runner: "rnr_01", Account: protocol.Account{Subject: "ann", Workspace: "team"}, Key: protocol.NewDeviceKey()}
	if err := StoreDevice(path, d); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v; want 0600", info.Mode(), err)
	}
	c, got, err := LoadCredential(path)
	if err != nil || got == nil {
		t.Fatalf("load: %v, %v", got, err)
	}
	if got.String() != d.String() || got.Account != d.Account || !got.Key.Equal(d.Key) || c.Identity() != d.Credential().Identity() {
		t.Errorf("loaded %v as %s, want %v", got, c.Identity(), d)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%v %+v %#v", d, d, d); strings.Contains(s, string(d.Key)) || strings.Contains(s, "Key:") {
		t.Errorf("a device prints as %s", s)
	}
	if _, err := ReadCredential("file:"+path, nil); err == nil || strings.Contains(err.Error(), got.Runner) {
		t.Errorf("as a token: %v, want to be refused and not repeated", err)
	}
	for name, text := range map[string]string{
		"cut off": string(b[:len(b)/2]), "no key": `{"device":{"runner":"rnr_01"}}`, "a short key": `{"device":{"runner":"rnr_01","seed":"AAAA"}}`,
		"no runner": strings.Replace(string(b), "rnr_01", "", 1), "empty": "", "a sentence": "this is no token",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := LoadCredential(path)
		if err == nil {
			t.Errorf("%s: loaded", name)
		}
		_, tokenErr := ReadCredential("file:"+path, nil)
		if empty := name == "empty"; errors.Is(err, fs.ErrNotExist) != empty || errors.Is(tokenErr, fs.ErrNotExist) != empty {
			t.Errorf("%s: %v, as a token %v; only what is empty counts as not there", name, err, tokenErr)
		}
	}
	if err := StoreCredential(path, "rnr_token"); err != nil {
		t.Fatal(err)
	}
	if c, device, err := LoadCredential(path); err != nil || device != nil || c != link.Secret("rnr_token") {
		t.Errorf("a token: %v, %v, %v", c, device, err)
	}
}

func FuzzParseDevice(f *testing.F) {
	f.Add([]byte(`{"device":{"coordinator":"https://a","runner":"rnr_01","account":{"subject":"a","workspace":"b"},"seed":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDevice(b)
		if err == nil && d.Credential().Identity() == "" {
			t.Errorf("%q gives a device without an identity", b)
		}
	})
}
