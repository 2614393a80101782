package docker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/registry"
)

// credentials are what the docker CLI would send to the registry of an image: from its configuration or from the helper
// that this names. Empty means none. They go to the engine with the pull, and nowhere else.
func credentials(ref reference.Named) string {
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".docker")
	}
	var config struct {
		Auths       map[string]struct{ Auth, IdentityToken string }
		CredHelpers map[string]string
		CredsStore  string
	}
	if readJSON(filepath.Join(dir, "config.json"), &config) != nil {
		return ""
	}
	at := reference.Domain(ref)
	if at == "docker.io" {
		at = "https://index.docker.io/v1/"
	}
	helper := config.CredHelpers[at]
	if helper == "" {
		helper = config.CredsStore
	}
	found := registry.AuthConfig{ServerAddress: at}
	if helper != "" {
		found.Username, found.Password = askHelper(helper, at)
		if found.Username == "<token>" { // the helpers' way of saying that it is no password
			found.Username, found.IdentityToken, found.Password = "", found.Password, ""
		}
	} else if a, ok := config.Auths[at]; ok {
		found.IdentityToken = a.IdentityToken
		if pair, err := base64.StdEncoding.DecodeString(a.Auth); err == nil {
			found.Username, found.Password, _ = strings.Cut(string(pair), ":")
		}
	}
	if found.Username == "" && found.IdentityToken == "" {
		return ""
	}
	encoded, err := registry.EncodeAuthConfig(found)
	if err != nil {
		return ""
	}
	return encoded
}

// askHelper asks docker-credential-<name> as the CLI does: the address on stdin, the answer in JSON.
func askHelper(name, at string) (user, secret string) {
	ctx, cancel := context.WithTimeout(context.Background(), probeWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker-credential-"+filepath.Base(name), "get")
	cmd.Stdin = strings.NewReader(at)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", ""
	}
	var answer struct{ Username, Secret string }
	if json.NewDecoder(bytes.NewReader(out)).Decode(&answer) != nil {
		return "", ""
	}
	return answer.Username, answer.Secret
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}
