package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Check says whether a connection, by unix socket or by loopback, is not with a process of this user.
func Check(c net.Conn) error {
	var uid int
	var err error
	switch c := c.(type) {
	case *net.UnixConn:
		uid, err = unixUser(c)
	case *net.TCPConn:
		local, remote := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
		uid, err = tcpUser(remote.AddrPort(), local.AddrPort())
		if errors.Is(err, errUntold) {
			return nil
		}
	default:
		return fmt.Errorf("peer: nobody knows who is at a %T", c)
	}
	if err == nil && uid != os.Getuid() {
		err = &strangerError{uid}
	}
	return err
}

func unixUser(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return int(cred.Uid), nil
}

// errUntold: the kernel's table of sockets cannot be read here.
var errUntold = errors.New("peer: the kernel does not tell")

// lookups is how often the table is read: one that changes meanwhile can leave a socket out.
const lookups = 3

// tcpUser is who has the socket that is bound to local and connected with remote.
func tcpUser(local, remote netip.AddrPort) (int, error) {
	local, remote = unmapped(local), unmapped(remote)
	for range lookups {
		for table, mapped := range map[string]bool{"/proc/net/tcp": false, "/proc/net/tcp6": true} {
			f, err := os.Open(table)
			if err != nil {
				if mapped {
					continue // a machine without IPv6
				}
				return 0, errUntold
			}
			uid, found := find(bufio.NewScanner(f), entry(local, mapped), entry(remote, mapped))
			_ = f.Close() // it was only read
			if found {
				return uid, nil
			}
		}
	}
	return 0, fmt.Errorf("peer: no socket is at %s any more", local)
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// find looks for a socket in a table of proc(5): "sl local_address rem_address st queues timer retransmits uid ...".
func find(lines *bufio.Scanner, local, remote string) (uid int, found bool) {
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 8 || field[1] != local || field[2] != remote {
			continue
		}
		uid, err := strconv.Atoi(field[7])
		return uid, err == nil
	}
	return 0, false
}

// entry is an address as the tables have it: words of four bytes in the order of the machine, in hexadecimal. In the one of
// IPv6 an IPv4 address is mapped.
func entry(a netip.AddrPort, mapped bool) string {
	b := a.Addr().AsSlice()
	if mapped {
		full := a.Addr().As16()
		b = full[:]
	}
	var s strings.Builder
	for i := 0; i+4 <= len(b); i += 4 {
		fmt.Fprintf(&s, "%08X", binary.NativeEndian.Uint32(b[i:]))
	}
	return fmt.Sprintf("%s:%04X", s.String(), a.Port())
}
