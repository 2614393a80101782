package vault

import (
	"context"
	"fmt"
	"slices"

	"github.com/godbus/dbus/v5"
)

// Names of the Secret Service, https://specifications.freedesktop.org/secret-service/.
const (
	secretsName  = "org.freedesktop.secrets"
	secretsPath  = "/org/freedesktop/secrets"
	secretsIface = "org.freedesktop.Secret.Service"
	loginPath    = "/org/freedesktop/secrets/collection/login"
)

// usable asks the session bus, without starting one, for a Secret Service whose collection for keys is open.
func usable(ctx context.Context) error {
	conn, err := dbus.SessionBusPrivateNoAutoStartup(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("%w: there is no session bus", ErrUnavailable)
	}
	defer conn.Close() // nothing is left to lose
	if err := conn.Auth(nil); err != nil {
		return fmt.Errorf("%w: the session bus does not take us", ErrUnavailable)
	}
	if err := conn.Hello(); err != nil {
		return fmt.Errorf("%w: the session bus does not answer", ErrUnavailable)
	}
	// Asking the service itself would start it, which is right where it can be started, and an error of the bus's own
	// after 25 s where not.
	var running bool
	bus := conn.BusObject()
	if err := bus.CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, secretsName).Store(&running); err != nil {
		return fmt.Errorf("%w: the session bus does not answer", ErrUnavailable)
	}
	if !running {
		var names []string
		if err := bus.CallWithContext(ctx, "org.freedesktop.DBus.ListActivatableNames", 0).Store(&names); err != nil || !slices.Contains(names, secretsName) {
			return fmt.Errorf("%w: no Secret Service is on the session bus", ErrUnavailable)
		}
	}
	service := conn.Object(secretsName, secretsPath)
	property := func(o dbus.BusObject, iface, name string, into any) error {
		var v dbus.Variant
		if err := o.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, iface, name).Store(&v); err != nil {
			return err
		}
		return v.Store(into)
	}
	var collections []dbus.ObjectPath
	if err := property(service, secretsIface, "Collections", &collections); err != nil {
		return fmt.Errorf("%w: the Secret Service does not answer", ErrUnavailable)
	}
	// As the library chooses.
	path := dbus.ObjectPath(loginPath)
	if !slices.Contains(collections, path) {
		if err := service.CallWithContext(ctx, secretsIface+".ReadAlias", 0, "default").Store(&path); err != nil || path == "/" {
			return fmt.Errorf("%w: the Secret Service has no collection for keys", ErrUnavailable)
		}
	}
	var locked bool
	if err := property(conn.Object(secretsName, path), "org.freedesktop.Secret.Collection", "Locked", &locked); err != nil {
		return fmt.Errorf("%w: the Secret Service does not answer", ErrUnavailable)
	}
	if locked {
		return ErrLocked
	}
	return nil
}
