package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Place is where an engine is, and why it is looked for there.
type Place struct {
	Host string // "unix:///var/run/docker.sock"
	Why  string // "DOCKER_HOST", "context colima (docker context use)", ...
}

// Find says where the engine is, as the docker CLI would: DOCKER_HOST, then DOCKER_CONTEXT, then the current context of
// the CLI's configuration, then the default socket. Where the default socket does not exist it looks further than the CLI,
// at the sockets of rootless Docker, Docker Desktop, Colima and Podman. It looks at files only; nothing is dialled. getenv is
// os.Getenv but in tests.
func Find(getenv func(string) string) (Place, error) {
	if host := getenv("DOCKER_HOST"); host != "" {
		return Place{Host: host, Why: "DOCKER_HOST"}, nil
	}
	home := getenv("HOME")
	if home == "" {
		home = getenv("USERPROFILE")
	}
	dir := getenv("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(home, ".docker")
	}
	name, why := getenv("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
	if name == "" {
		var config struct {
			CurrentContext string `json:"currentContext"`
		}
		if err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Place{}, fmt.Errorf("docker: the CLI's configuration: %w", err)
		}
		name, why = config.CurrentContext, "docker context use"
	}
	if name != "" && name != "default" {
		host, err := contextHost(dir, name)
		if err != nil {
			return Place{}, fmt.Errorf("docker: context %s (%s): %w", name, why, err)
		}
		return Place{Host: host, Why: fmt.Sprintf("context %s (%s)", name, why)}, nil
	}
	if runtime.GOOS == "windows" {
		return Place{Host: "npipe:////./pipe/docker_engine", Why: "the default pipe"}, nil
	}
	const standard = "/var/run/docker.sock"
	if isSocket(standard) {
		return Place{Host: "unix://" + standard, Why: "the default socket"}, nil
	}
	run := getenv("XDG_RUNTIME_DIR")
	for _, s := range []struct{ base, path, why string }{
		{run, "docker.sock", "rootless Docker"},
		{home, ".docker/run/docker.sock", "Docker Desktop"},
		{home, ".docker/desktop/docker.sock", "Docker Desktop"},
		{home, ".colima/default/docker.sock", "Colima"},
		{home, ".orbstack/run/docker.sock", "OrbStack"},
		{run, "podman/podman.sock", "Podman"},
		{"/run", "podman/podman.sock", "Podman"},
	} {
		if path := filepath.Join(s.base, filepath.FromSlash(s.path)); s.base != "" && isSocket(path) {
			return Place{Host: "unix://" + path, Why: s.why + "'s socket; the default one does not exist"}, nil
		}
	}
	return Place{Host: "unix://" + standard, Why: "the default socket, which does not exist"}, nil
}

// contextHost reads where a context of the CLI leads. Its folder is named by the digest of its name.
func contextHost(dir, name string) (string, error) {
	sum := sha256.Sum256([]byte(name))
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	path := filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json")
	if err := readJSON(path, &meta); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", errors.New("there is no such context")
		}
		return "", err
	}
	host := meta.Endpoints["docker"].Host
	if host == "" {
		return "", errors.New("it names no docker endpoint")
	}
	if strings.HasPrefix(host, "ssh://") {
		return "", fmt.Errorf("%s: engines over ssh are not supported: workspaces must be on the engine's machine", host)
	}
	return host, nil
}

func isSocket(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&fs.ModeSocket != 0
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}
