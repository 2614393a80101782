package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/everdict/everdict/agent/private"
	"github.com/everdict/everdict/protocol/link"
)

// maxCredential bounds what is read as a credential.
const maxCredential = 4096

// LockedError is a credential that another process of this machine uses.
type LockedError struct{ Holder string }

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("agent: this credential is in use by another runner on this machine (%s): stop that one, or pair this one anew", e.Holder)
}

// ReadCredential reads a token from where source says: "-" is stdin, "file:PATH"
// a file, "fd:N" an inherited file descriptor, which is closed; anything else is
// the token itself. One that is not there or empty is fs.ErrNotExist.
func ReadCredential(source string, stdin io.Reader) (link.Secret, error) {
	read := func(r io.Reader) (link.Secret, error) {
		line, err := bufio.NewReader(io.LimitReader(r, maxCredential)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("agent: read the credential: %w", err)
		}
		return checkCredential(line)
	}
	if source == "-" {
		return read(stdin)
	}
	if path, ok := strings.CutPrefix(source, "file:"); ok {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("agent: read the credential: %w", err)
		}
		defer f.Close()
		return read(f)
	}
	if n, ok := strings.CutPrefix(source, "fd:"); ok {
		fd, err := strconv.Atoi(n)
		if err != nil || fd < 0 {
			return "", fmt.Errorf("agent: %q is not fd:N", source)
		}
		f := os.NewFile(uintptr(fd), "credential")
		defer f.Close()
		return read(f)
	}
	return checkCredential(source)
}

func checkCredential(s string) (link.Secret, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "{") {
		return "", errors.New("agent: this is the credential of a device, not a token: it is good where it is kept alone")
	}
	if s == "" {
		return "", emptyError{}
	}
	for _, r := range s {
		if r <= 0x20 || r >= 0x7f {
			return "", errors.New("agent: the credential holds a character that no credential has")
		}
	}
	return link.Secret(s), nil
}

// emptyError is a credential that is empty. It counts as one that is not there: a power cut
// can leave such a file.
type emptyError struct{}

func (emptyError) Error() string {
	return "agent: the credential is empty: pair this machine first (everdict runners pair)"
}

// Is matches fs.ErrNotExist.
func (emptyError) Is(target error) bool { return target == fs.ErrNotExist }

// StoreCredential keeps the token in path for later starts, readable by its
// owner alone. It is durable when this returns: what it was bought with may be
// good once.
func StoreCredential(path string, token link.Secret) error {
	return storeSecret(path, string(token))
}

func storeSecret(path, line string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("agent: store the credential: %w", err)
	}
	if err := private.WriteFile(path, []byte(line+"\n")); err != nil {
		return fmt.Errorf("agent: store the credential: %w", err)
	}
	return nil
}

// lockCredential holds the credential for this process. The lock lies in one
// place for the whole machine, named by its Identity, so that two state
// directories with copies of one credential meet (F52). Jobs do not see that place: one
// that held a lock would keep its runner from starting again.
func lockCredential(credential link.Credential) (release func(), err error) {
	dir, err := private.Dir()
	if err != nil {
		return nil, fmt.Errorf("agent: lock the credential: %w", err)
	}
	identity := ""
	if credential != nil {
		identity = credential.Identity()
	}
	path := filepath.Join(dir, "runner-"+identity+".lock")
	lock := flock.New(path)
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("agent: lock the credential: %w", err)
	}
	if !held {
		holder := "unknown process"
		if b, err := os.ReadFile(path + ".holder"); err == nil {
			holder = strings.TrimSpace(string(b))
		}
		return nil, &LockedError{Holder: holder}
	}
	// Only for the message above; the lock itself is the kernel's.
	_ = os.WriteFile(path+".holder", fmt.Appendf(nil, "pid %d\n", os.Getpid()), 0o600)
	return func() { _ = lock.Unlock() }, nil
}
