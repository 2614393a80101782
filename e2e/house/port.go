package house

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
)

// reserve is a loopback address that is this test's until it ends. Its port is bound and not listened on, so that whoever
// names it can listen, and nobody is given it by chance: not while the one who listened is away, either.
func reserve(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	// Both sides have to allow it; package net always does.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	loopback := syscall.SockaddrInet4{Addr: netip.MustParseAddr("127.0.0.1").As4()}
	if err := syscall.Bind(fd, &loopback); err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	name, err := syscall.Getsockname(fd)
	bound, ok := name.(*syscall.SockaddrInet4)
	if err != nil || !ok {
		t.Fatalf("reserve a port: %v, %v", name, err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.Port)
}
