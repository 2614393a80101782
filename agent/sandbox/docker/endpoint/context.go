package endpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// configDir is the docker command's own directory; empty for a user without a home.
func (s System) configDir() string { return orElse(s.Getenv("DOCKER_CONFIG"), s.under(".docker")) }

// currentContext is the context that `docker context use` chose. A config.json that cannot be read chooses none; the
// docker command warns then and goes on, and so does problem.
func (s System) currentContext() (name, problem string) {
	dir := s.configDir()
	if dir == "" {
		return "", ""
	}
	file := s.join(dir, "config.json")
	b, err := s.Files.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", ""
	case err != nil:
		return "", fmt.Sprintf("%s is ignored: %v", file, pathless(err))
	}
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if err := json.Unmarshal(b, &config); err != nil {
		return "", fmt.Sprintf("%s is ignored: %v", file, err)
	}
	return config.CurrentContext, ""
}

// context is the candidate that a docker context names.
func (s System) context(source Source, name string) Candidate {
	c := Candidate{Source: source, Context: name, State: Passed, Mend: "docker context use default, or start the engine of that context"}
	if source == FromContextVariable {
		c.Mend = "unset DOCKER_CONTEXT, or start the engine of that context"
	}
	dir := s.configDir()
	if dir == "" {
		c.Reason = "there is no such context: this user has no home directory"
		return c
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:])
	b, err := s.Files.ReadFile(s.join(dir, "contexts", "meta", digest, "meta.json"))
	if err != nil {
		c.Mend = "docker context ls shows those that there are"
		c.Reason = fmt.Sprintf("the context %q cannot be read: %v", name, pathless(err))
		if errors.Is(err, fs.ErrNotExist) {
			c.Reason = fmt.Sprintf("there is no context %q", name)
		}
		return c
	}
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		c.Reason = fmt.Sprintf("the context %q cannot be read: %v", name, err)
		return c
	}
	docker, ok := meta.Endpoints["docker"]
	if !ok || docker.Host == "" {
		c.Reason = fmt.Sprintf("the context %q names no docker engine", name)
		return c
	}
	return s.named(c, docker.Host, func() (*material, error) {
		return s.contextTLS(s.join(dir, "contexts", "tls", digest, "docker"), docker.SkipTLSVerify)
	})
}

// contextTLS reads what a context keeps for its TLS connection; none of the files has to be there.
func (s System) contextTLS(dir string, skipVerify bool) (*material, error) {
	m := &material{skipVerify: skipVerify}
	for name, to := range map[string]*[]byte{"ca.pem": &m.ca, "cert.pem": &m.cert, "key.pem": &m.key} {
		var err error
		if *to, err = s.Files.ReadFile(s.join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if m.ca == nil && m.cert == nil && m.key == nil && !skipVerify {
		return nil, nil
	}
	return m, nil
}
