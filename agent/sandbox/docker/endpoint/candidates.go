package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// defaultContext is the context that is no context: the variables and the default socket.
const defaultContext = "default"

// place is a socket that some engine uses when nobody says otherwise.
type place struct {
	source Source
	host   string
	// start is the command that brings the engine up.
	start string
}

// Candidates lists every place, in the order in which the engine is looked for. At most those with State Open are worth
// asking: exactly one when DOCKER_HOST or a context decides, else each of the known sockets that exists.
func (s System) Candidates() []Candidate {
	var out []Candidate
	decided := "" // what decided before anything else could
	explicit := func(c Candidate) {
		if decided != "" {
			c.State, c.Reason, c.Mend, c.Warning = Passed, decided+" comes first, as for the docker command", "", ""
		} else {
			decided = string(c.Source)
			if c.Context != "" {
				decided += " " + c.Context
			}
		}
		out = append(out, c)
	}

	if host := s.Getenv("DOCKER_HOST"); host != "" {
		explicit(s.named(Candidate{Source: FromHostVariable, Mend: "unset DOCKER_HOST, or start the engine that it names"}, host, s.variableTLS))
	}
	chosen := s.Getenv("DOCKER_CONTEXT")
	if chosen != "" && chosen != defaultContext {
		explicit(s.context(FromContextVariable, chosen))
	}
	current, problem := s.currentContext()
	if current != "" && current != defaultContext {
		c := s.context(FromCurrentContext, current)
		if chosen == defaultContext && decided == "" {
			c.State, c.Reason, c.Mend = Passed, "DOCKER_CONTEXT is "+defaultContext, ""
			out = append(out, c)
		} else {
			explicit(c)
		}
	}

	for _, p := range s.places() {
		c := Candidate{Source: p.source, Host: p.host, Mend: p.start}
		if decided != "" {
			c.State, c.Reason, c.Mend = Passed, decided+" decides", ""
		} else {
			c = s.look(c)
			if problem != "" && p.source == FromDefault {
				c.Warning = problem
			}
		}
		out = append(out, c)
	}
	return out
}

// named is a candidate whose address somebody wrote down. security gives its TLS material.
func (s System) named(c Candidate, host string, security func() (*material, error)) Candidate {
	refuse := func(format string, args ...any) Candidate {
		c.State, c.Reason = Passed, fmt.Sprintf(format, args...)
		return c
	}
	material, err := security()
	if err != nil {
		c.Host = redact(host)
		return refuse("its TLS material cannot be used: %v", err)
	}
	if material == nil && strings.HasPrefix(host, "https://") {
		material = systemRoots
	}
	address, err := parseHost(host, s.OS, material != nil)
	c.Host = redact(orElse(address, host))
	switch {
	case errors.Is(err, errSSH):
		c.Mend = "start a runner on that machine instead"
		return refuse("an engine behind ssh is not used: it is on another machine, where the workspaces, which are directories of this one, are not")
	case err != nil:
		return refuse("%v", err)
	}
	if strings.HasPrefix(address, "tcp://") { // on a socket of this machine there is nothing to encrypt
		c.tls = material
		if material != nil && material.skipVerify {
			c.Warning = "the engine's certificate is not verified: " + s.skipReason(c)
		}
	}
	if c.Remote() {
		c.Warning = join(c.Warning, "the engine is on another machine: runs fail unless it sees the work directory under the same path")
	}
	return s.look(c)
}

func (s System) skipReason(c Candidate) string {
	if c.Source == FromHostVariable {
		return "DOCKER_TLS is set and DOCKER_TLS_VERIFY is not"
	}
	return "the context says so"
}

// look sees whether there is something behind the address of c, as far as files tell.
func (s System) look(c Candidate) Candidate {
	socket, isUnix := strings.CutPrefix(c.Host, "unix://")
	if !isUnix {
		c.State, c.Reason = Open, "named by "+string(c.Source)
		return c
	}
	info, err := s.Files.Stat(socket)
	c.State = Passed
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Reason = noSocket
	case errors.Is(err, fs.ErrPermission):
		c.Reason = "this user may not look there"
	case err != nil:
		c.Reason = fmt.Sprintf("it cannot be looked at: %v", pathless(err))
	case info.Mode()&fs.ModeSocket == 0:
		c.Reason = "it is not a socket"
	default:
		c.State, c.Reason = Open, "the socket is there"
	}
	return c
}

// pathless is err without the path, which stands beside it.
func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// variableTLS is the TLS material that DOCKER_TLS and DOCKER_TLS_VERIFY ask for.
func (s System) variableTLS() (*material, error) {
	verify := s.Getenv("DOCKER_TLS_VERIFY") != ""
	if !verify && s.Getenv("DOCKER_TLS") == "" {
		return nil, nil
	}
	dir := orElse(s.Getenv("DOCKER_CERT_PATH"), s.configDir())
	m := &material{skipVerify: !verify}
	var err error
	if m.ca, err = s.Files.ReadFile(s.join(dir, "ca.pem")); err != nil {
		return nil, err
	}
	for name, to := range map[string]*[]byte{"cert.pem": &m.cert, "key.pem": &m.key} {
		// An engine that asks its clients for no certificate needs none.
		if *to, err = s.Files.ReadFile(s.join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return m, nil
}

// places are the sockets that engines use when nobody says otherwise; the first is the docker command's own default.
func (s System) places() []place {
	if s.OS == "windows" {
		return []place{
			{FromDefault, "npipe:////./pipe/docker_engine", "start Docker Desktop"},
			{FromDesktop, "npipe:////./pipe/dockerDesktopLinuxEngine", "start Docker Desktop"},
			{FromPodman, "npipe:////./pipe/podman-machine-default", "podman machine start"},
		}
	}
	start := "sudo systemctl start docker"
	if s.OS == "darwin" {
		start = "open -a Docker"
	}
	out := []place{{FromDefault, "unix:///var/run/docker.sock", start}}
	add := func(source Source, start string, elements ...string) {
		if elements[0] != "" {
			out = append(out, place{source, "unix://" + path.Join(elements...), start})
		}
	}
	run := s.Getenv("XDG_RUNTIME_DIR")
	if run == "" && s.OS == "linux" && s.UID > 0 {
		run = fmt.Sprintf("/run/user/%d", s.UID)
	}
	add(FromRootless, "systemctl --user start docker", run, "docker.sock")
	// Rootless Docker without a runtime directory listens there, too.
	add(FromDesktop, orElse(map[string]string{"darwin": start}[s.OS], "systemctl --user start docker-desktop"), s.Home, ".docker/run/docker.sock")
	if s.OS == "linux" {
		add(FromDesktop, "systemctl --user start docker-desktop", s.Home, ".docker/desktop/docker.sock")
	}
	if colima := s.Getenv("COLIMA_HOME"); colima != "" {
		add(FromColima, "colima start", colima, "default/docker.sock")
	} else {
		add(FromColima, "colima start", s.Home, ".colima/default/docker.sock")
		add(FromColima, "colima start", orElse(s.Getenv("XDG_CONFIG_HOME"), s.under(".config")), "colima/default/docker.sock")
	}
	if s.OS == "darwin" {
		add(FromOrbStack, "orb start", s.Home, ".orbstack/run/docker.sock")
	}
	add(FromRancher, "rdctl start", s.Home, ".rd/docker.sock")
	if s.OS == "darwin" {
		add(FromPodman, "podman machine start", s.Home, ".local/share/containers/podman/machine/podman.sock")
		add(FromPodman, "podman machine start", s.Getenv("TMPDIR"), "podman/podman-machine-default-api.sock")
	} else {
		add(FromPodman, "systemctl --user start podman.socket", run, "podman/podman.sock")
		add(FromPodman, "sudo systemctl start podman.socket", "/run", "podman/podman.sock")
	}
	return out
}

// under is a path below the home directory; empty when there is none.
func (s System) under(name string) string {
	if s.Home == "" {
		return ""
	}
	return s.join(s.Home, name)
}

// join is path/filepath's Join of the system that is looked at, which in a test is not the one that looks.
func (s System) join(elements ...string) string {
	if s.OS == "windows" {
		return strings.Join(elements, `\`)
	}
	return path.Join(elements...)
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
