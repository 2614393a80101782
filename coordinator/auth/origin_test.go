package auth_test

import (
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/everdict/everdict/coordinator/auth"
)

// What a proxy says counts if it is trusted, and of a chain of them as far as each is.
func TestProxies(t *testing.T) {
	t.Parallel()
	proxies := auth.Proxies{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.0.0.0/8")}
	for _, row := range []struct {
		peer, forwardedFor, proto string
		client                    string
		https                     bool
	}{
		{"192.0.2.1:99", "", "", "192.0.2.1", false},
		{"192.0.2.1:99", "198.51.100.1", "https", "192.0.2.1", false},
		{"127.0.0.1:99", "198.51.100.1", "https", "198.51.100.1", true},
		{"127.0.0.1:99", "203.0.113.9, 198.51.100.1", "http, https", "198.51.100.1", true},
		{"127.0.0.1:99", "198.51.100.1", "https, http", "198.51.100.1", false},
		{"127.0.0.1:99", "198.51.100.1, 10.1.2.3", "HTTPS", "198.51.100.1", true},
		{"127.0.0.1:99", "198.51.100.1, nonsense", "", "127.0.0.1", false},
		{"127.0.0.1:99", "", "", "127.0.0.1", false},
		{"[::1]:99", "2001:db8::1", "https", "2001:db8::1", true},
		{"[::ffff:10.0.0.1]:99", "192.0.2.1", "https", "192.0.2.1", true},
	} {
		r := httptest.NewRequest("GET", "http://everdict.example/", nil)
		r.RemoteAddr = row.peer
		if row.forwardedFor != "" {
			r.Header.Set("X-Forwarded-For", row.forwardedFor)
		}
		if row.proto != "" {
			r.Header.Set("X-Forwarded-Proto", row.proto)
		}
		if got := proxies.Client(r).String(); got != row.client {
			t.Errorf("%+v: client %s", row, got)
		}
		if got := proxies.HTTPS(r); got != row.https {
			t.Errorf("%+v: https %t", row, got)
		}
	}
}

// An address that tries keys does not hold up its neighbours, and one that has the
// whole of a network counts once.
func TestThrottle(t *testing.T) {
	t.Parallel()
	th := auth.NewThrottle[netip.Prefix](auth.WrongKeys(nil))
	one, neighbour := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	for range 10 {
		if err := th.Check(auth.Network(one)); err != nil {
			t.Fatalf("within the allowance: %v", err)
		}
		th.Count(auth.Network(one))
	}
	if status(th.Check(auth.Network(one))) != 429 || status(th.Check(auth.Network(neighbour))) != 429 {
		t.Errorf("after ten: %v, %v; want both of the /64 refused", th.Check(auth.Network(one)), th.Check(auth.Network(neighbour)))
	}
	if err := th.Check(auth.Network(netip.MustParseAddr("2001:db8:1::1"))); err != nil {
		t.Errorf("another network: %v", err)
	}
}
