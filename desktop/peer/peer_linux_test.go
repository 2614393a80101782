package peer

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// pair connects two ends of a network.
func pair(t *testing.T, network, listen, dial string) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen(network, listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if strings.HasPrefix(dial, ":") {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		dial = "127.0.0.1:" + port
	} else {
		dial = l.Addr().String()
	}
	client, err = net.Dial(l.Addr().Network(), dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func TestOwnConnectionsAreTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ network, listen, dial string }{
		"unix socket":                     {"unix", filepath.Join(t.TempDir(), "s"), ""},
		"loopback":                        {"tcp4", "127.0.0.1:0", ""},
		"a socket of both IPv4 and IPv6s": {"tcp", ":0", ":"},
	} {
		client, server := pair(t, c.network, c.listen, c.dial)
		if err := Check(server); err != nil {
			t.Errorf("%s: %v, want our own process taken", name, err)
		}
		if err := Check(client); err != nil {
			t.Errorf("%s, the other way: %v", name, err)
		}
	}
}

// A table as the kernel writes it, of a machine on which user 1001 connects to a port of user 1000.
func TestStrangersAreSeen(t *testing.T) {
	t.Parallel()
	local, remote := netip.MustParseAddrPort("127.0.0.1:50000"), netip.MustParseAddrPort("127.0.0.1:40000")
	table := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: " + entry(remote, false) + " 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1\n" +
		"   1: " + entry(remote, false) + " " + entry(local, false) + " 01 00000000:00000000 00:00000000 00000000  1000        0 2\n" +
		"   2: " + entry(local, false) + " " + entry(remote, false) + " 01 00000000:00000000 00:00000000 00000000  1001        0 3\n"
	uid, found := find(bufio.NewScanner(strings.NewReader(table)), entry(local, false), entry(remote, false))
	if !found || uid != 1001 {
		t.Errorf("user %d, %v; want the one who connects, 1001", uid, found)
	}
	if _, err := tcpUser(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")); err == nil || errors.Is(err, errUntold) {
		t.Errorf("a connection that is not there: %v, want it refused", err)
	}
}

func TestListenerClosesStrangers(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listener(inner)
	defer l.Close()
	// Gone before it is looked at: nobody can say whose it was. The one behind it is taken.
	gone, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	gone.Close()
	if os.Getuid() == 0 { // who can be somebody else is somebody else as well
		_, port, _ := net.SplitHostPort(l.Addr().String())
		other := exec.Command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port+" && read -u 3")
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		other.Dir = "/"
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = other.Wait() // its connection was closed
		}()
	}
	here, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer inner.Close() // the stranger's is in its queue, if it came later
	if c.RemoteAddr().String() != here.LocalAddr().String() {
		t.Errorf("took %s, want %s: the other one is of nobody", c.RemoteAddr(), here.LocalAddr())
	}
}
