//go:build !linux

package vault

import (
	"context"
	"runtime"
)

// usable: these systems have a keyring, and open it with the session.
func usable(context.Context) error {
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		return nil
	}
	return ErrUnavailable
}
