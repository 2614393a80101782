// Package endpoint finds the container engine of this machine as the docker command does, and says why it took the one
// and not the other.
//
// The order is that of the docker command: DOCKER_HOST, DOCKER_CONTEXT, the current context of its config.json, the
// default socket. Who named an engine in one of the first three means that one: nothing else is tried when it does not
// answer. Where only the default is left, and nobody listens there, the docker command gives up; here the places follow
// where rootless Docker, Docker Desktop, Colima, OrbStack, Rancher Desktop and Podman put their sockets.
//
// System.Candidates is a pure function of environment and files. Find asks the candidates it yields, all at once, each
// for at most ProbeTimeout, and takes the first in order that answered.
package endpoint

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"runtime"
	"strings"
)

// Source says where a candidate comes from.
type Source string

// The sources, in the order in which they are looked at.
const (
	FromHostVariable    Source = "DOCKER_HOST"
	FromContextVariable Source = "DOCKER_CONTEXT"
	FromCurrentContext  Source = "current context"
	FromDefault         Source = "default"
	FromRootless        Source = "rootless docker"
	FromDesktop         Source = "docker desktop"
	FromColima          Source = "colima"
	FromOrbStack        Source = "orbstack"
	FromRancher         Source = "rancher desktop"
	FromPodman          Source = "podman"
)

// State says what became of a candidate.
type State string

// States of a Candidate.
const (
	// Open: nothing speaks against it, and it has not been asked yet.
	Open State = "open"
	// Passed: it was passed over, for its Reason.
	Passed State = "passed over"
	// Chosen: it answered, and nothing before it did.
	Chosen State = "chosen"
)

// Files is how the file system is looked at.
type Files interface {
	Stat(name string) (fs.FileInfo, error)
	ReadFile(name string) ([]byte, error)
}

// System is everything that the choice depends on.
type System struct {
	// OS is a GOOS.
	OS string
	// UID numbers the user, for the runtime directory of systems that do not name it in XDG_RUNTIME_DIR; negative: none.
	UID int
	// Home is the user's home directory; empty: there is none.
	Home   string
	Getenv func(string) string
	Files  Files
}

// This is the machine and user of this process, with the given environment ("K=V"), nil for the process's own.
func This(environ []string) System {
	s := System{OS: runtime.GOOS, UID: os.Getuid(), Getenv: os.Getenv, Files: osFiles{}}
	if environ != nil {
		s.Getenv = func(name string) string { return lookup(environ, name) }
	}
	s.Home = s.Getenv("HOME")
	if s.OS == "windows" {
		s.Home = s.Getenv("USERPROFILE")
	}
	return s
}

// lookup takes the last value of a variable, as execve's readers do.
func lookup(environ []string, name string) (value string) {
	for _, kv := range environ {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			value = v
		}
	}
	return value
}

type osFiles struct{}

func (osFiles) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }
func (osFiles) ReadFile(name string) ([]byte, error)  { return os.ReadFile(name) }

// Candidate is a place where an engine may be.
type Candidate struct {
	Source Source `json:"source"`
	// Context is the name of the docker context, if one named the place.
	Context string `json:"context,omitempty"`
	// Host is unix:///path, npipe:////./pipe/name or tcp://host:port, without a password. It is empty when what should
	// have named it is not there.
	Host  string `json:"host,omitempty"`
	State State  `json:"state"`
	// Reason is a sentence without its full stop: why it was chosen or passed over.
	Reason string `json:"reason"`
	// Mend is a command, or what else helps; empty when nothing is to be mended.
	Mend string `json:"mend,omitempty"`
	// Warning is what speaks against the engine although it is chosen.
	Warning string `json:"warning,omitempty"`

	tls *material
}

// material is what a TLS connection needs. The key stays in here.
type material struct {
	ca, cert, key []byte
	skipVerify    bool
}

// systemRoots is TLS with nothing of its own.
var systemRoots = &material{}

// String keeps %v from printing the key.
func (m *material) String() string { return "[TLS material]" }

// GoString keeps %#v from printing the key.
func (m *material) GoString() string { return m.String() }

// TLS reports whether the connection is encrypted.
func (c Candidate) TLS() bool { return c.tls != nil }

// TLSConfig is the configuration of the connection; nil for one without TLS.
func (c Candidate) TLSConfig() (*tls.Config, error) {
	if c.tls == nil {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.tls.skipVerify}
	if len(c.tls.ca) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(c.tls.ca) {
			return nil, errors.New("endpoint: ca.pem holds no certificate")
		}
	}
	if len(c.tls.cert) > 0 || len(c.tls.key) > 0 {
		pair, err := tls.X509KeyPair(c.tls.cert, c.tls.key)
		if err != nil {
			return nil, fmt.Errorf("endpoint: cert.pem and key.pem: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// Remote reports whether the engine is, as far as its address tells, on another machine.
func (c Candidate) Remote() bool {
	u, err := url.Parse(c.Host)
	if err != nil || u.Scheme == "unix" || u.Scheme == "npipe" {
		return false
	}
	return !loopback(u.Hostname())
}

// String names the candidate to a person.
func (c Candidate) String() string {
	s := string(c.Source)
	if c.Context != "" {
		s += " " + c.Context
	}
	if c.Host != "" {
		s += " (" + c.Host + ")"
	}
	return s
}
