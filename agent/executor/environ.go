package executor

import (
	"os"
	"slices"
	"strings"
)

// hostVariables of the runner are part of every job's environment in the process
// sandbox: the machine's own logins work by them. Everything else must be
// declared by the harness.
var hostVariables = []string{
	"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "TZ", "SSH_AUTH_SOCK",
	"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
	// Keys and endpoints of model providers (the closed list that existing clients know).
	"CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL",
	"OPENAI_API_KEY", "OPENAI_BASE_URL",
	// The way out of the network.
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
	// Windows cannot start a process without these.
	"SystemRoot", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PATHEXT", "COMSPEC",
}

// defaultPath is used where the runner itself has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// HostEnviron picks from a runner's environment what its jobs inherit.
func HostEnviron(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(hostVariables, name) {
			out = append(out, kv)
		}
	}
	return out
}

// jobEnviron lays the attempt's own places over the base.
func jobEnviron(base []string, binDir, tmp string) []string {
	path := defaultPath
	env := make([]string, 0, len(base)+2)
	for _, kv := range base {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
			continue
		}
		env = append(env, kv)
	}
	if binDir != "" {
		path = binDir + string(os.PathListSeparator) + path
	}
	return append(env, "PATH="+path, "TMPDIR="+tmp)
}
