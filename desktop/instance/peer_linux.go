package instance

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ours asks the kernel who is at the other end: the socket's mode already keeps others away, and root can do anything.
func ours(c net.Conn) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("instance: this is no unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("instance: a process of user %d", cred.Uid)
	}
	return nil
}
