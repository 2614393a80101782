package launched

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/private"
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
	if err := (used{File: absolute(file), Run: p.Job.RunID, Attempt: p.Attempt}).write(cfg.StateDir); err != nil {
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

// MovePayload puts a payload where the runner that follows can remove it. What a cluster has
// mounted may have to stay where it was, where that runner does not see it.
func MovePayload(from, to string) error {
	doc, err := readPayload(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("read the payload: %w", err)
	}
	if err := os.WriteFile(to, doc, info.Mode().Perm()); err != nil {
		return fmt.Errorf("put the payload where its runner finds it: %w", err)
	}
	_ = os.Remove(from) // what can be removed is not left to be found
	return nil
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

// used says that a payload was run, for somebody who runs it again: it is not there any
// more, and where its result was meant for a file, that may be empty by now.
type used struct {
	File    string `json:"file"`
	Run     string `json:"run"`
	Attempt int64  `json:"attempt"`
}

// usedFile is where it is written down, in the state directory.
const usedFile = "payload-used.json"

func (u used) write(stateDir string) error {
	doc, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return private.WriteFile(filepath.Join(stateDir, usedFile), doc) // durable before the payload is removed
}

// readUsed is what became of the payload that was in a file; nil: that is not known here.
func readUsed(stateDir, file string) *used {
	doc, err := os.ReadFile(filepath.Join(stateDir, usedFile))
	u := new(used)
	if err != nil || json.Unmarshal(doc, u) != nil || u.File != absolute(file) {
		return nil
	}
	return u
}

// again prints the result once more, as long as it is here: it is until it is delivered
// over a connection.
func (u *used) again(cfg *agent.Config, stdout, stderr io.Writer) error {
	printed := 0
	err := agent.Undelivered(cfg.StateDir, func(run string, epoch int64, result []byte) {
		if run == u.Run && epoch == u.Attempt {
			printResult(stdout, result)
			printed++
		}
	})
	const was = "the payload in %s was used: attempt %d of %s ran from it"
	switch {
	case err != nil:
		return fmt.Errorf(was+", and its result cannot be read: %w", u.File, u.Attempt, u.Run, err)
	case printed == 0:
		return fmt.Errorf(was+", and it has no result here that was not delivered: everdict runs get %s says how it ended", u.File, u.Attempt, u.Run, u.Run)
	}
	fmt.Fprintf(stderr, was+". Its result is printed again; nothing was run\n", u.File, u.Attempt, u.Run)
	return nil
}

// absolute is a path that means the same from everywhere; as it is where that is not known.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
