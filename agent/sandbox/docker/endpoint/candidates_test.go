package endpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// mapFiles is a file system in memory. What lies below a path in denied may not be looked at.
type mapFiles struct {
	fstest.MapFS
	denied string
}

func (m mapFiles) name(op, name string) (string, error) {
	if m.denied != "" && strings.HasPrefix(name, m.denied) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission}
	}
	return strings.TrimPrefix(name, "/"), nil
}

func (m mapFiles) Stat(name string) (fs.FileInfo, error) {
	n, err := m.name("stat", name)
	if err != nil {
		return nil, err
	}
	return fs.Stat(m.MapFS, n)
}

func (m mapFiles) ReadFile(name string) ([]byte, error) {
	n, err := m.name("open", name)
	if err != nil {
		return nil, err
	}
	return fs.ReadFile(m.MapFS, n)
}

// machine describes a System for a table.
type machine struct {
	os      string
	uid     int
	env     string // NAME=value, separated by spaces
	sockets string // paths, separated by spaces
	files   map[string]string
	denied  string
}

func (m machine) system() System {
	all := fstest.MapFS{}
	for _, s := range strings.Fields(m.sockets) {
		all[strings.TrimPrefix(s, "/")] = &fstest.MapFile{Mode: fs.ModeSocket | 0o660}
	}
	for name, content := range m.files {
		all[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(content), Mode: 0o600}
	}
	env := strings.Fields(m.env)
	s := System{OS: orElse(m.os, "linux"), UID: orUID(m.uid), Home: "/home/u", Files: mapFiles{all, m.denied},
		Getenv: func(name string) string { return lookup(env, name) }}
	return s
}

func orUID(uid int) int {
	if uid == 0 {
		return 1000
	}
	return uid
}

func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// contextFile is the meta.json of a context, and where it lies.
func contextFile(dir, name, host string) (path, content string) {
	return dir + "/contexts/meta/" + digest(name) + "/meta.json",
		fmt.Sprintf(`{"Name":%q,"Metadata":{},"Endpoints":{"docker":{"Host":%q,"SkipTLSVerify":false}}}`, name, host)
}

func contexts(pairs ...string) map[string]string {
	files := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		p, c := contextFile("/home/u/.docker", pairs[i], pairs[i+1])
		files[p] = c
	}
	return files
}

func with(files map[string]string, more ...string) map[string]string {
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return files
}

const (
	defaultSocket = "unix:///var/run/docker.sock"
	configFile    = "/home/u/.docker/config.json"
)

// TestF36_Choice is the matrix of F36: what is asked, in this order, on which machine.
func TestF36_Choice(t *testing.T) {
	t.Parallel()
	const current = `{"auths":{},"currentContext":"colima"}`
	colima := contexts("colima", "unix:///home/u/.colima/default/docker.sock")
	for _, tt := range []struct {
		name string
		machine
		open   string // "source host" of those that are asked, separated by ", "
		passed string // "source: reason" of one that is not
	}{
		{name: "a machine without anything", passed: "default: there is no such socket"},
		{name: "the default socket", machine: machine{sockets: "/var/run/docker.sock"}, open: "default " + defaultSocket},
		{name: "the default socket before all others",
			machine: machine{env: "XDG_RUNTIME_DIR=/run/user/7", sockets: "/run/user/7/docker.sock /var/run/docker.sock /home/u/.docker/desktop/docker.sock"},
			open:    "default " + defaultSocket + ", rootless docker unix:///run/user/7/docker.sock, docker desktop unix:///home/u/.docker/desktop/docker.sock"},
		{name: "a file where the socket should be", machine: machine{files: map[string]string{"/var/run/docker.sock": ""}}, passed: "default: it is not a socket"},
		{name: "a directory that may not be looked into", machine: machine{sockets: "/var/run/docker.sock", denied: "/var/run"}, passed: "default: this user may not look there"},

		{name: "DOCKER_HOST", machine: machine{env: "DOCKER_HOST=unix:///srv/d.sock", sockets: "/srv/d.sock /var/run/docker.sock"},
			open: "DOCKER_HOST unix:///srv/d.sock", passed: "default: DOCKER_HOST decides"},
		{name: "DOCKER_HOST that is not there is not replaced", machine: machine{env: "DOCKER_HOST=unix:///srv/d.sock", sockets: "/var/run/docker.sock"},
			passed: "DOCKER_HOST: there is no such socket"},
		{name: "DOCKER_HOST before DOCKER_CONTEXT",
			machine: machine{env: "DOCKER_HOST=tcp://127.0.0.1:2375 DOCKER_CONTEXT=colima", files: colima},
			open:    "DOCKER_HOST tcp://127.0.0.1:2375", passed: "DOCKER_CONTEXT: DOCKER_HOST comes first, as for the docker command"},
		{name: "DOCKER_HOST before the current context",
			machine: machine{env: "DOCKER_HOST=unix:///var/run/docker.sock", sockets: "/var/run/docker.sock", files: with(contexts("colima", "unix:///c.sock"), configFile, current)},
			open:    "DOCKER_HOST " + defaultSocket, passed: "current context: DOCKER_HOST comes first, as for the docker command"},
		{name: "DOCKER_HOST without a scheme", machine: machine{env: "DOCKER_HOST=127.0.0.1"}, open: "DOCKER_HOST tcp://127.0.0.1:2375"},
		{name: "DOCKER_HOST with a port only", machine: machine{env: "DOCKER_HOST=:4000"}, open: "DOCKER_HOST tcp://localhost:4000"},
		{name: "DOCKER_HOST with a scheme only", machine: machine{env: "DOCKER_HOST=unix://", sockets: "/var/run/docker.sock"}, open: "DOCKER_HOST " + defaultSocket},
		{name: "DOCKER_HOST with IPv6", machine: machine{env: "DOCKER_HOST=tcp://[::1]"}, open: "DOCKER_HOST tcp://[::1]:2375"},
		{name: "DOCKER_HOST by ssh", machine: machine{env: "DOCKER_HOST=ssh://u@build-7", sockets: "/var/run/docker.sock"},
			passed: "DOCKER_HOST: an engine behind ssh is not used: it is on another machine, where the workspaces, which are directories of this one, are not"},
		{name: "DOCKER_HOST by fd", machine: machine{env: "DOCKER_HOST=fd://3"}, passed: `DOCKER_HOST: there is no engine behind the scheme "fd": want unix, tcp or npipe`},
		{name: "DOCKER_HOST with a relative path", machine: machine{env: "DOCKER_HOST=unix://d.sock"}, passed: "DOCKER_HOST: unix://d.sock is no absolute path"},
		{name: "DOCKER_HOST with a password", machine: machine{env: "DOCKER_HOST=tcp://u:p4ss@h:1"}, passed: "DOCKER_HOST: an address with user and password is not used"},
		{name: "DOCKER_HOST is a pipe", machine: machine{env: "DOCKER_HOST=npipe:////./pipe/d"}, passed: "DOCKER_HOST: named pipes exist on Windows only"},
		{name: "DOCKER_HOST with TLS without certificates", machine: machine{env: "DOCKER_HOST=tcp://h:1 DOCKER_TLS_VERIFY=1"},
			passed: "DOCKER_HOST: its TLS material cannot be used: open home/u/.docker/ca.pem: file does not exist"},
		{name: "DOCKER_HOST with TLS has another port",
			machine: machine{env: "DOCKER_HOST=tcp://127.0.0.1 DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=/certs", files: map[string]string{"/certs/ca.pem": "pem"}},
			open:    "DOCKER_HOST tcp://127.0.0.1:2376"},

		{name: "DOCKER_CONTEXT", machine: machine{env: "DOCKER_CONTEXT=colima", sockets: "/home/u/.colima/default/docker.sock /var/run/docker.sock", files: colima},
			open: "DOCKER_CONTEXT unix:///home/u/.colima/default/docker.sock", passed: "default: DOCKER_CONTEXT colima decides"},
		{name: "DOCKER_CONTEXT before the current context",
			machine: machine{env: "DOCKER_CONTEXT=b", sockets: "/b.sock /c.sock", files: with(contexts("b", "unix:///b.sock", "colima", "unix:///c.sock"), configFile, current)},
			open:    "DOCKER_CONTEXT unix:///b.sock", passed: "current context: DOCKER_CONTEXT b comes first, as for the docker command"},
		{name: "DOCKER_CONTEXT that there is not", machine: machine{env: "DOCKER_CONTEXT=gone", sockets: "/var/run/docker.sock"}, passed: `DOCKER_CONTEXT: there is no context "gone"`},
		{name: "DOCKER_CONTEXT default undoes the current one",
			machine: machine{env: "DOCKER_CONTEXT=default", sockets: "/var/run/docker.sock /c.sock", files: with(contexts("colima", "unix:///c.sock"), configFile, current)},
			open:    "default " + defaultSocket, passed: "current context: DOCKER_CONTEXT is default"},
		{name: "the current context", machine: machine{sockets: "/c.sock /var/run/docker.sock", files: with(contexts("colima", "unix:///c.sock"), configFile, current)},
			open: "current context unix:///c.sock", passed: "default: current context colima decides"},
		{name: "the current context by ssh", machine: machine{sockets: "/var/run/docker.sock", files: with(contexts("colima", "ssh://root@far"), configFile, current)},
			passed: "current context: an engine behind ssh is not used: it is on another machine, where the workspaces, which are directories of this one, are not"},
		{name: "the current context that there is not", machine: machine{sockets: "/var/run/docker.sock", files: map[string]string{configFile: current}},
			passed: `current context: there is no context "colima"`},
		{name: "a context for Kubernetes only",
			machine: machine{files: map[string]string{configFile: current, "/home/u/.docker/contexts/meta/" + digest("colima") + "/meta.json": `{"Name":"colima","Endpoints":{"kubernetes":{}}}`}},
			passed:  `current context: the context "colima" names no docker engine`},
		{name: "a context that is no JSON",
			machine: machine{files: map[string]string{configFile: current, "/home/u/.docker/contexts/meta/" + digest("colima") + "/meta.json": `{`}},
			passed:  `current context: the context "colima" cannot be read: unexpected end of JSON input`},
		{name: "the current context is the default", machine: machine{sockets: "/var/run/docker.sock", files: map[string]string{configFile: `{"currentContext":"default"}`}},
			open: "default " + defaultSocket},
		{name: "a config.json that is no JSON", machine: machine{sockets: "/var/run/docker.sock", files: map[string]string{configFile: "{"}}, open: "default " + defaultSocket},
		{name: "DOCKER_CONFIG is elsewhere",
			machine: machine{env: "DOCKER_CONFIG=/etc/d", sockets: "/x.sock", files: map[string]string{"/etc/d/config.json": `{"currentContext":"x"}`,
				"/etc/d/contexts/meta/" + digest("x") + "/meta.json": `{"Name":"x","Endpoints":{"docker":{"Host":"unix:///x.sock"}}}`}},
			open: "current context unix:///x.sock"},

		{name: "rootless", machine: machine{env: "XDG_RUNTIME_DIR=/run/user/1000", sockets: "/run/user/1000/docker.sock"},
			open: "rootless docker unix:///run/user/1000/docker.sock", passed: "default: there is no such socket"},
		{name: "rootless without XDG_RUNTIME_DIR", machine: machine{uid: 7, sockets: "/run/user/7/docker.sock"}, open: "rootless docker unix:///run/user/7/docker.sock"},
		{name: "Docker Desktop on Linux", machine: machine{sockets: "/home/u/.docker/desktop/docker.sock"}, open: "docker desktop unix:///home/u/.docker/desktop/docker.sock"},
		{name: "Docker Desktop on a Mac", machine: machine{os: "darwin", sockets: "/home/u/.docker/run/docker.sock"}, open: "docker desktop unix:///home/u/.docker/run/docker.sock"},
		{name: "Colima", machine: machine{os: "darwin", sockets: "/home/u/.colima/default/docker.sock"}, open: "colima unix:///home/u/.colima/default/docker.sock"},
		{name: "Colima elsewhere", machine: machine{os: "darwin", env: "COLIMA_HOME=/c", sockets: "/c/default/docker.sock /home/u/.colima/default/docker.sock"},
			open: "colima unix:///c/default/docker.sock"},
		{name: "Colima in the configuration directory", machine: machine{os: "darwin", sockets: "/home/u/.config/colima/default/docker.sock"},
			open: "colima unix:///home/u/.config/colima/default/docker.sock"},
		{name: "OrbStack", machine: machine{os: "darwin", sockets: "/home/u/.orbstack/run/docker.sock"}, open: "orbstack unix:///home/u/.orbstack/run/docker.sock"},
		{name: "Rancher Desktop", machine: machine{sockets: "/home/u/.rd/docker.sock"}, open: "rancher desktop unix:///home/u/.rd/docker.sock"},
		{name: "Podman rootless before Podman as root", machine: machine{sockets: "/run/podman/podman.sock /run/user/1000/podman/podman.sock"},
			open: "podman unix:///run/user/1000/podman/podman.sock, podman unix:///run/podman/podman.sock"},
		{name: "Podman machine on a Mac", machine: machine{os: "darwin", env: "TMPDIR=/t", sockets: "/t/podman/podman-machine-default-api.sock"},
			open: "podman unix:///t/podman/podman-machine-default-api.sock"},
		{name: "Windows", machine: machine{os: "windows"},
			open: "default npipe:////./pipe/docker_engine, docker desktop npipe:////./pipe/dockerDesktopLinuxEngine, podman npipe:////./pipe/podman-machine-default"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var open, passed []string
			for _, c := range tt.system().Candidates() {
				switch c.State {
				case Open:
					open = append(open, string(c.Source)+" "+c.Host)
				case Passed:
					passed = append(passed, string(c.Source)+": "+c.Reason)
				default:
					t.Errorf("%s has state %q before anybody was asked", c, c.State)
				}
				if c.Reason == "" {
					t.Errorf("%s has no reason", c)
				}
			}
			if got := strings.Join(open, ", "); got != tt.open {
				t.Errorf("asked are\n  %s, want\n  %s", got, tt.open)
			}
			if tt.passed != "" && !strings.Contains("\n"+strings.Join(passed, "\n")+"\n", "\n"+tt.passed+"\n") {
				t.Errorf("passed over are\n  %s\nwant among them\n  %s", strings.Join(passed, "\n  "), tt.passed)
			}
		})
	}
}

// TestF36_Warnings checks what speaks against a choice that is the user's own.
func TestF36_Warnings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		machine
		want string
	}{
		{"an engine elsewhere", machine{env: "DOCKER_HOST=tcp://build-7:2375"}, "on another machine"},
		{"nothing to say", machine{env: "DOCKER_HOST=tcp://localhost:2375"}, ""},
		{"a certificate that is not verified", machine{env: "DOCKER_HOST=tcp://localhost DOCKER_TLS=1 DOCKER_CERT_PATH=/c", files: map[string]string{"/c/ca.pem": "x"}},
			"not verified: DOCKER_TLS is set and DOCKER_TLS_VERIFY is not"},
		{"a config.json that is ignored", machine{sockets: "/var/run/docker.sock", files: map[string]string{configFile: "{"}}, configFile + " is ignored"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := tt.system().Candidates()[0]
			if c.State != Open || !strings.Contains(c.Warning, tt.want) || tt.want == "" && c.Warning != "" {
				t.Errorf("%s: state %s, warning %q, want %q", c, c.State, c.Warning, tt.want)
			}
		})
	}
}

// TestF36_ContextTLS checks that a context's certificates are used, and that no key is printed.
func TestF36_ContextTLS(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificates(t)
	dir := "/home/u/.docker/contexts/tls/" + digest("far") + "/docker/"
	files := with(contexts("far", "tcp://127.0.0.1:2376"), dir+"ca.pem", ca, dir+"cert.pem", cert, dir+"key.pem", key)
	c := machine{env: "DOCKER_CONTEXT=far", files: files}.system().Candidates()[0]
	config, err := c.TLSConfig()
	if err != nil || config == nil || len(config.Certificates) != 1 || config.RootCAs == nil || config.InsecureSkipVerify {
		t.Fatalf("TLSConfig: got %+v, %v", config, err)
	}
	if !c.TLS() || c.URL() != "https://127.0.0.1:2376" {
		t.Errorf("URL: got %s, TLS %t", c.URL(), c.TLS())
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, c); strings.Contains(s, "PRIVATE") || strings.Contains(s, fmt.Sprint([]byte(key)[:8])) {
			t.Errorf("Sprintf(%s) shows the key: %s", format, s)
		}
	}

	files[dir+"key.pem"] = "no key"
	if _, err := (machine{env: "DOCKER_CONTEXT=far", files: files}).system().Candidates()[0].TLSConfig(); err == nil || strings.Contains(err.Error(), "no key") {
		t.Errorf("TLSConfig with a broken key: got %v", err)
	}
}

// FuzzHost checks that no address makes the parser fail otherwise than with an error, and that what it accepts it
// accepts again unchanged.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"", "unix://", "tcp://:1", "[::1]:2375", "ssh://u@h", "npipe://", "tcp://u:p@h", "tcp://h/p", "://", "unix://a"} {
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, host string, withTLS bool) {
		a, err := parseHost(host, "windows", withTLS)
		if err != nil {
			return
		}
		b, err := parseHost(a, "windows", withTLS)
		if err != nil || a != b {
			t.Errorf("parseHost(%q) = %q, and again %q, %v", host, a, b, err)
		}
	})
}
