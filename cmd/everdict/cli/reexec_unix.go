//go:build unix

package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// reexec replaces this process by a fresh image of the program that gets the
// token on a file descriptor: neither its arguments nor its environment, which
// /proc shows as they were at its start, hold it. It returns only on an error.
func reexec(token string, t tokenSetting) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	// A token is far below a pipe's capacity, so that this does not block.
	if len(token) > 4000 {
		return fmt.Errorf("the token is %d bytes long: that is none", len(token))
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
	err = syscall.Exec(self, withoutToken(os.Args, t.flag, fd), withoutVariables(os.Environ()))
	return fmt.Errorf("hide the token: %w", err)
}

// withoutToken is argv with FLAG fd:N in place of FLAG TOKEN.
func withoutToken(argv []string, flag string, fd int) []string {
	out := make([]string, 0, len(argv)+2)
	for i := 0; i < len(argv); i++ {
		switch {
		case argv[i] == flag && i+1 < len(argv):
			i++
		case strings.HasPrefix(argv[i], flag+"="):
		default:
			out = append(out, argv[i])
		}
	}
	return append(out, fmt.Sprintf("%s=fd:%d", flag, fd))
}

// withoutVariables is an environment without those that can hold a token.
func withoutVariables(env []string) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !slices.ContainsFunc(tokenSettings, func(t tokenSetting) bool { return t.variable == name }) {
			out = append(out, e)
		}
	}
	return out
}
