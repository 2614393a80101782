//go:build !linux && !windows && !darwin

package notify

import "context"

func notify(context.Context, string, string) error { return ErrUnavailable }
