package notify

import (
	"context"
	"fmt"
	"html"
	"slices"
	"sync"

	"github.com/godbus/dbus/v5"

	"github.com/everdict/everdict/desktop/sessionbus"
)

const (
	name  = "org.freedesktop.Notifications"
	path  = "/org/freedesktop/Notifications"
	icon  = "everdict"
	asSet = int32(-1) // the server decides how long it is shown
)

// server is kept: GNOME takes the notifications of an app away with its connection.
var server struct {
	sync.Mutex
	conn *dbus.Conn
}

func notify(ctx context.Context, title, body string) error {
	server.Lock()
	defer server.Unlock()
	if server.conn == nil || !server.conn.Connected() {
		conn, err := sessionbus.Connect(context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		server.conn = conn
	}
	object := server.conn.Object(name, path)
	// Each time: another server can have taken the name.
	var can []string
	if err := object.CallWithContext(ctx, name+".GetCapabilities", 0).Store(&can); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if slices.Contains(can, "body-markup") {
		body = html.EscapeString(body)
	}
	hints := map[string]dbus.Variant{"desktop-entry": dbus.MakeVariant(AppID)}
	return object.CallWithContext(ctx, name+".Notify", 0, "Everdict", uint32(0), icon, title, body, []string{}, hints, asSet).Err
}
