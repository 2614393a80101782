package auth

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// Proxies are the addresses of reverse proxies whose X-Forwarded headers are
// believed.
type Proxies []netip.Prefix

func (p Proxies) contains(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// HTTPS says whether a request came over TLS, to us or to a proxy that is trusted.
func (p Proxies) HTTPS(r *http.Request) bool {
	return r.TLS != nil || p.contains(peer(r)) && strings.EqualFold(last(r.Header.Values("X-Forwarded-Proto")), "https")
}

// last is the last value of a header: what the nearest proxy has added.
func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	list := values[len(values)-1]
	return strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])
}

// Client is the address that a request came from, as far as trusted proxies say it.
func (p Proxies) Client(r *http.Request) netip.Addr {
	addr := peer(r)
	var hops []string
	for _, v := range r.Header.Values("X-Forwarded-For") {
		hops = append(hops, strings.Split(v, ",")...)
	}
	for _, hop := range slices.Backward(hops) {
		if !p.contains(addr) {
			return addr
		}
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			return addr
		}
		addr = next.Unmap().WithZone("")
	}
	return addr
}

// CheckOrigin is a 403 for a request that another site's page makes. A browser says
// where a request comes from; cookie says that this is one, so that one which changes
// something and says nothing is refused as well.
func (a *Authenticator) CheckOrigin(r *http.Request, cookie bool) error {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	switch {
	case site == "same-origin", site == "none":
		return nil
	case site != "":
		return crossOrigin()
	case origin != "":
		u, err := url.Parse(origin)
		if err != nil || !a.isHost(r, u.Host) {
			return crossOrigin()
		}
		return nil
	case cookie && (changes(r.Method) || r.Header.Get("Upgrade") != ""):
		return crossOrigin()
	}
	return nil
}

// CheckProgram is a 403 for a request that a page of another site makes where no
// credential is needed. In the development mode that is also a page whose own name
// resolves to this machine.
func (a *Authenticator) CheckProgram(r *http.Request) error {
	if a.CheckOrigin(r, false) != nil {
		return protocol.Forbidden("a page of another site may not do this").WithHint("it is for programs, and for pages of this coordinator")
	}
	if a.cfg.Required {
		return nil
	}
	return a.sameOrigin(r)
}

// isHost says whether host is where the client reached us.
func (a *Authenticator) isHost(r *http.Request, host string) bool {
	return host != "" && (strings.EqualFold(host, r.Host) ||
		a.cfg.Proxies.contains(peer(r)) && strings.EqualFold(host, last(r.Header.Values("X-Forwarded-Host"))))
}

func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

func crossOrigin() error {
	return protocol.Forbidden("a session is for pages of this coordinator, and this request is not one of theirs").
		WithHint("behind a proxy: pass the Host header on; for a program: use the header Authorization: Bearer ak_...")
}
