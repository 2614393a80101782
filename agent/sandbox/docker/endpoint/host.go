package endpoint

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Ports of an engine that listens on TCP, without and with TLS.
const (
	plainPort = "2375"
	tlsPort   = "2376"
)

var errSSH = errors.New("ssh")

// parseHost is the address of an engine as the docker command understands it: a scheme that is left out is tcp, parts
// that are left out have defaults.
func parseHost(host, system string, withTLS bool) (string, error) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(host), "://")
	if !ok {
		scheme, rest = "tcp", scheme
	}
	switch scheme {
	case "unix":
		rest = orElse(rest, "/var/run/docker.sock")
		if !strings.HasPrefix(rest, "/") {
			return "", fmt.Errorf("unix://%s is no absolute path", rest)
		}
		return "unix://" + rest, nil
	case "npipe":
		if system != "windows" {
			return "", fmt.Errorf("named pipes exist on Windows only")
		}
		return "npipe://" + orElse(rest, "//./pipe/docker_engine"), nil
	case "tcp", "http", "https":
		u, err := url.Parse("tcp://" + rest)
		if err != nil || u.RawQuery != "" || u.Fragment != "" {
			return "", errors.New("the address cannot be understood")
		}
		if u.User != nil {
			return "", errors.New("an address with user and password is not used")
		}
		port := plainPort
		if withTLS {
			port = tlsPort
		}
		u.Host = net.JoinHostPort(orElse(u.Hostname(), "localhost"), orElse(u.Port(), port))
		if again, err := url.Parse(u.String()); err != nil || again.Host != u.Host {
			return "", errors.New("the address cannot be understood")
		}
		return u.String(), nil
	case "ssh":
		return "", errSSH
	}
	return "", fmt.Errorf("there is no engine behind the scheme %q: want unix, tcp or npipe", scheme)
}

// redact takes a password out of an address that may hold one.
func redact(host string) string {
	u, err := url.Parse(host)
	if err != nil {
		scheme, _, _ := strings.Cut(host, "://")
		return scheme + "://..."
	}
	return u.Redacted()
}

// loopback reports whether only this machine answers under the name.
func loopback(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
