package agent

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// peer is the process that has made a connection to a unix socket.
func peer(conn net.Conn) (pid int, ok bool) {
	_ = control(conn, func(fd int) {
		if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid, ok = int(cred.Pid), true
		}
	})
	return pid, ok
}

// peerCheck is how often it is looked whether an asker is still there.
const peerCheck = time.Second

// awaitClose returns when the other end of a connection is closed, or ctx ends. Who has only said that nothing more
// comes, as some programs do behind their one line, still waits for the answer.
func awaitClose(ctx context.Context, conn net.Conn) {
	tick := time.NewTicker(peerCheck)
	defer tick.Stop()
	for closed := false; !closed; {
		err := control(conn, func(fd int) {
			p := []unix.PollFd{{Fd: int32(fd)}}
			n, err := unix.Poll(p, 0)
			closed = err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
		})
		if err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func control(conn net.Conn, f func(fd int)) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return net.ErrClosed
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}
