// Package sessionbus connects to the D-Bus of the desktop's session, on which tray and
// notifications are. It never starts a bus: on one of our own there would be nobody else.
package sessionbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"
)

// ErrNone says that there is no session bus that takes us.
var ErrNone = errors.New("no session bus")

// Connect opens a connection of the caller's own, which it closes; it ends with ctx. The
// bus is the one that DBUS_SESSION_BUS_ADDRESS names, else the one of the user's runtime
// directory; its address is in that variable afterwards.
func Connect(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.SessionBusPrivateNoAutoStartup(dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	if err := conn.Auth(nil); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w: it refuses us: %w", ErrNone, err)
	}
	if err := conn.Hello(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w: it does not greet us: %w", ErrNone, err)
	}
	return conn, nil
}
