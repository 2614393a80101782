package vault

import (
	"context"
	"errors"
	"fmt"

	"github.com/zalando/go-keyring"
)

// System is the keyring of this system: the Secret Service on Linux, the Keychain on macOS, the Credential Manager on
// Windows.
type System struct{}

var _ Keyring = System{}

// Usable implements Keyring.
func (System) Usable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return usable(ctx)
}

// Get implements Keyring.
func (s System) Get(ctx context.Context, id string) (secret string, err error) {
	err = s.do(ctx, func() error {
		var err error
		secret, err = keyring.Get(Service, id)
		return err
	})
	return secret, err
}

// Set implements Keyring.
func (s System) Set(ctx context.Context, id, secret string) error {
	return s.do(ctx, func() error { return keyring.Set(Service, id, secret) })
}

// Delete implements Keyring.
func (s System) Delete(ctx context.Context, id string) error {
	return s.do(ctx, func() error { return keyring.Delete(Service, id) })
}

// do calls the keyring when it would not ask anybody, and waits for bound at most. What comes later is lost.
func (s System) do(ctx context.Context, call func() error) error {
	if err := s.Usable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		switch {
		case errors.Is(err, keyring.ErrNotFound):
			return ErrNotFound
		case errors.Is(err, keyring.ErrUnsupportedPlatform):
			return ErrUnavailable
		case err != nil:
			return fmt.Errorf("vault: keyring: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w, or waits for somebody: no answer within %s", ErrLocked, bound)
	}
}
