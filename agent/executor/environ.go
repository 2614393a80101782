package executor

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What a job inherits of the runner's environment; everything else must be declared by the harness.
var (
	// hostVariables are of use on the host only: the machine's own logins work by them.
	hostVariables = []string{
		"HOME", "USER", "LOGNAME", "SHELL", "PATH", "SSH_AUTH_SOCK",
		"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
		// Windows cannot start a process without these.
		"SystemRoot", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PATHEXT", "COMSPEC",
	}
	// jobVariables mean the same in a container.
	jobVariables = []string{
		"LANG", "LC_ALL", "TZ",
		// Keys and endpoints of model providers (the closed list that existing clients know).
		"CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL",
		"OPENAI_API_KEY", "OPENAI_BASE_URL",
	}
	// proxyVariables are the way out of the network. They may hold a password, and can be withheld (F37).
	proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}
)

// defaultPath is used where the runner itself has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// HostEnviron picks from a runner's environment what its jobs inherit in the process sandbox.
func HostEnviron(environ []string) []string {
	return pick(environ, hostVariables, jobVariables, proxyVariables)
}

// ContainerEnviron picks from a runner's environment what its jobs inherit in a container, where the host's paths and
// names mean nothing.
func ContainerEnviron(environ []string) []string { return pick(environ, jobVariables, proxyVariables) }

// WithoutProxy takes the proxy's variables out of an environment.
func WithoutProxy(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return named(kv, proxyVariables) })
}

// ProxyLogin names the first proxy variable of an environment that holds a user or a password; empty: none does.
func ProxyLogin(environ []string) string {
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !named(kv, proxyVariables) {
			continue
		}
		if !strings.Contains(value, "://") {
			value = "http://" + value
		}
		if u, err := url.Parse(value); err == nil && u.User != nil {
			return name
		}
	}
	return ""
}

func named(kv string, names []string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return slices.Contains(names, name)
}

func pick(environ []string, lists ...[]string) []string {
	var out []string
	for _, kv := range environ {
		if slices.ContainsFunc(lists, func(names []string) bool { return named(kv, names) }) {
			out = append(out, kv)
		}
	}
	return out
}

// environ is the base environment of the attempt's commands: what its lane
// inherits, and the attempt's own places. In a container the image's own PATH and
// home count, unless the job runs as a user that the image does not know.
func (x *execution) environ() []string {
	env := slices.Clone(x.cfg.Certificates.environ(x.in.Environ, x.root))
	env = append(env, "TMPDIR="+filepath.Join(x.root, tmpDir))
	if x.in.Container {
		if os.Getuid() > 0 {
			env = append(env, "HOME="+filepath.Join(x.root, homeDir))
		}
		return env
	}
	path := defaultPath
	env = slices.DeleteFunc(env, func(kv string) bool {
		v, ok := strings.CutPrefix(kv, "PATH=")
		if ok {
			path = v
		}
		return ok
	})
	if x.cfg.Program != "" {
		path = filepath.Join(x.root, binDir) + string(os.PathListSeparator) + path
	}
	return append(env, "PATH="+path)
}
