package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/everdict/everdict/coordinator/store"
)

// Keys says where the keys come from.
type Keys struct {
	// Service seals in place of Current and of File, neither of which is read then; nil:
	// there is none.
	Service KeyService
	// Current seals, in the form that ParseKey reads. Empty: the first key in File,
	// which is made if it is not there.
	Current string
	// Old keys only open. What they sealed is sealed anew at the start.
	Old []string
	// File holds a key per line, the current one first; lines that begin with # are
	// comments. Only its owner may read it.
	File string
}

// errTwoKeys says that two places name the key that seals.
var errTwoKeys = errors.New("secret: a key service and a current key are given: the service has the key that seals, and one that it follows is an old key")

// ErrKeyFromOutside says that a key which is not in the key file cannot be replaced
// there.
var ErrKeyFromOutside = errors.New("secret: the key is not kept in the key file")

// maxKeyFile is far above what a key file with all its old keys has.
const maxKeyFile = 64 << 10

// loaded are keys that were read.
type loaded struct {
	// own are the key that was given as current, or those of the file.
	own, old []Key
	// fresh says that own was made just now and is nowhere but here.
	fresh bool
}

func (k Keys) load() (l loaded, err error) {
	if k.Service != nil {
		if k.Current != "" {
			return l, errTwoKeys
		}
	} else if k.Current != "" {
		key, err := ParseKey(k.Current)
		if err != nil {
			return l, fmt.Errorf("secret: read the current key: %w", err)
		}
		l.own = []Key{key}
	} else if l.own, err = readKeyFile(k.File); errors.Is(err, fs.ErrNotExist) {
		l.own, l.fresh = []Key{GenerateKey()}, true
	} else if err != nil {
		return l, err
	}
	for i, text := range k.Old {
		key, err := ParseKey(text)
		if err != nil {
			return l, fmt.Errorf("secret: read old key %d: %w", i+1, err)
		}
		l.old = append(l.old, key)
	}
	return l, nil
}

// OpenWith is Open with the keys that k names, where a key file that is not there
// is made: after an error there is none.
func OpenWith(ctx context.Context, k Keys, cfg Config) (*Vault, error) {
	keys, err := k.load()
	if err != nil {
		return nil, err
	}
	if k.Service != nil {
		if cfg.Keys, err = succeed(k.Service, keys.old); err != nil {
			return nil, err
		}
		return Open(ctx, cfg)
	}
	ring, err := NewKeyring(keys.own[0], append(keys.own[1:], keys.old...)...)
	if err != nil {
		return nil, err
	}
	if keys.fresh {
		// Before anything is sealed by it: a key that is lost opens nothing.
		ids, err := cfg.Store.SecretKeyIDs(ctx)
		if err == nil {
			err = check(ring, ids)
		}
		var wrong *WrongKeyError
		if errors.As(err, &wrong) {
			wrong.Given = "" // nobody has given the new one
		}
		if err == nil {
			err = writeKeyFile(k.File, keys.own)
		}
		if err != nil {
			return nil, err
		}
	}
	cfg.Keys = ring
	return Open(ctx, cfg)
}

// Rotation is what Rotate has done.
type Rotation struct {
	// Secrets is how many were sealed anew: all there are.
	Secrets int `json:"secrets"`
	// KeyID names the key that seals them now, Before the one that did.
	KeyID  string `json:"keyId"`
	Before string `json:"before"`
}

// Rotate puts a new key into the key file and seals every secret by it. If it is cut
// off, the file has both keys, and the next start ends what was begun; after an
// error the file is as it was. A key from elsewhere is ErrKeyFromOutside.
func (k Keys) Rotate(ctx context.Context, st *store.Store, log *slog.Logger) (Rotation, error) {
	if k.Service != nil || k.Current != "" {
		return Rotation{}, ErrKeyFromOutside
	}
	keys, err := k.load()
	if err != nil {
		return Rotation{}, err
	}
	if keys.fresh {
		return Rotation{}, fmt.Errorf("secret: there is no key file %s whose key could be replaced", k.File)
	}
	ids, err := st.SecretKeyIDs(ctx)
	if err != nil {
		return Rotation{}, err
	}
	before := slices.Concat(keys.own, keys.old)
	known, err := NewKeyring(before[0], before[1:]...)
	if err != nil {
		return Rotation{}, err
	}
	if err := check(known, ids); err != nil {
		return Rotation{}, err
	}
	next := GenerateKey()
	ring, err := NewKeyring(next, before...)
	if err != nil {
		return Rotation{}, err
	}
	if err := writeKeyFile(k.File, append([]Key{next}, keys.own...)); err != nil {
		return Rotation{}, err
	}
	v := &Vault{cfg: Config{Store: st, Keys: ring, Log: log}}
	n, err := v.reseal(ctx)
	if err != nil {
		return Rotation{}, errors.Join(err, writeKeyFile(k.File, keys.own))
	}
	return Rotation{Secrets: n, KeyID: next.ID(), Before: before[0].ID()}, writeKeyFile(k.File, []Key{next})
}

// readKeyFile reads a key file. One that others than its owner may read is refused:
// its key is known to whoever looked.
func readKeyFile(path string) ([]Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("secret: read the key file: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("secret: read the key file: %w", err)
	}
	if mode := st.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return nil, fmt.Errorf("secret: the key file %s is open to others (mode %04o): chmod 600 it, and replace the key if somebody may have read it", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("secret: read the key file: %w", err)
	}
	keys, err := parseKeyFile(string(text))
	if err != nil {
		return nil, fmt.Errorf("secret: the key file %s: %w", path, err)
	}
	return keys, nil
}

func parseKeyFile(text string) ([]Key, error) {
	var keys []Key
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := ParseKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d is no key: %w", n, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key")
	}
	return keys, nil
}

// writeKeyFile replaces a key file. When it returns, the disk has the new one whole;
// until then, the old one.
func writeKeyFile(path string, keys []Key) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("secret: write the key file: %w", err)
		}
	}()
	text := ""
	for _, k := range keys {
		text += k.Encode() + "\n"
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // for its owner only
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename durable. Windows cannot, and need not.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
