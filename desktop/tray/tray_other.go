//go:build !linux && !windows && !darwin

package tray

import (
	"context"
	"fmt"
	"runtime"
)

func available(context.Context) error {
	return fmt.Errorf("%w: %s is not supported", ErrNoHost, runtime.GOOS)
}

func run(ctx context.Context, _ Config) error { return available(ctx) }
