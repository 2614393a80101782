// Package peer asks the kernel which user is at the other end of a connection within this machine. A port on loopback is
// open to everybody who has an account here, and so is what is in the arguments of a browser: the address of the app's page,
// or of the page on which a pairing is approved. Where the kernel tells, nobody else can do anything with them.
package peer

import (
	"fmt"
	"net"
)

// strangerError: somebody else is at the other end.
type strangerError struct{ uid int }

func (e *strangerError) Error() string { return fmt.Sprintf("peer: a process of user %d", e.uid) }

// Listener takes the connections of this user alone. Those of others are closed. Where the kernel does not tell, it takes all.
func Listener(l net.Listener) net.Listener { return &listener{l} }

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if Check(c) == nil {
			return c, nil
		}
		_ = c.Close() // somebody else's
	}
}
