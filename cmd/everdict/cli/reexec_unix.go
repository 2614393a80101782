//go:build unix

package cli

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/cmd/everdict/config"
)

// reexec replaces this process by a fresh image of the program that gets the
// token on a file descriptor: neither its arguments nor its environment, which
// /proc shows as they were at its start, hold it. It returns only on an error.
func reexec(token string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	// A token is far below a pipe's capacity, so that this does not block.
	if len(token) > 4000 {
		return fmt.Errorf("the pairing token is %d bytes long: that is none", len(token))
	}
	if _, err := w.WriteString(token + "\n"); err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	w.Close()
	fd := int(r.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	err = syscall.Exec(self, withoutToken(os.Args, fd), withoutVariable(os.Environ()))
	return fmt.Errorf("hide the token: %w", err)
}

// withoutToken is argv with --pair fd:N in place of --pair TOKEN.
func withoutToken(argv []string, fd int) []string {
	out := make([]string, 0, len(argv)+2)
	for i := 0; i < len(argv); i++ {
		switch {
		case argv[i] == "--pair" && i+1 < len(argv):
			i++
		case strings.HasPrefix(argv[i], "--pair="):
		default:
			out = append(out, argv[i])
		}
	}
	return append(out, fmt.Sprintf("--pair=fd:%d", fd))
}

func withoutVariable(env []string) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		if !strings.HasPrefix(e, config.PairEnv+"=") {
			out = append(out, e)
		}
	}
	return out
}
