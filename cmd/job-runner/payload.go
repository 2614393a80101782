package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Variables that hold the values of secrets begin with one of these.
const (
	workspaceSecret = "EVERDICT_SECRET_"
	userSecret      = "EVERDICT_USER_SECRET_"
)

// given makes a payload's attempt the runner's. The payload is removed when it is sure to
// be run: the job must not find the credentials and the hidden parts of its case in it,
// and a container that is started again must not find the run.
func given(cfg *agent.Config, file string, getenv func(string) string) error {
	doc, err := readPayload(file)
	if err != nil {
		return err
	}
	p, err := protocol.DecodePayload(doc)
	if err != nil {
		return err
	}
	if p.Job.Env, err = secrets(&p.Job.Harness, getenv); err != nil {
		return err
	}
	job, err := json.Marshal(&p.Job)
	if err != nil {
		return err
	}
	// What would fail later fails while the payload is still there.
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("the payload has to be removed before its run begins: %w: put it where it can be", err)
	}
	cfg.Credential = link.Secret(p.RunnerToken)
	cfg.Given = &agent.Given{Job: job, AttemptRef: link.AttemptRef{
		Run: p.Job.RunID, Job: p.Job.RunID, Epoch: p.Attempt, Token: link.Secret(p.LeaseToken),
	}}
	return nil
}

// readPayload reads the file, of which no more than a payload can have is read.
func readPayload(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	defer f.Close()
	doc, err := io.ReadAll(io.LimitReader(f, protocol.MaxBodyBytes+1))
	if err == nil && len(doc) == 0 {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	return doc, nil
}

// secrets are the values of the secrets that a harness names, from the environment, which
// the job does not inherit.
func secrets(h *protocol.HarnessSpec, getenv func(string) string) (map[string]string, error) {
	var env map[string]string
	var missing []string
	for variable, ref := range h.SecretEnv() {
		from := workspaceSecret + ref.SecretRef
		if ref.Scope == protocol.SecretUser {
			from = userSecret + ref.SecretRef
		}
		value := getenv(from)
		if value == "" {
			missing = append(missing, from)
			continue
		}
		if env == nil {
			env = map[string]string{}
		}
		env[variable] = value
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("harness %s@%s needs secrets, which a payload does not hold: set %s", h.ID, h.Version, strings.Join(missing, ", "))
	}
	return env, nil
}
