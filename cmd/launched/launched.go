// Package launched is the runner of a launched unit: what job-runner does in a container or
// on a machine of a cluster, and everdict itself on the coordinator's own. All its settings
// are variables, which cmd/job-runner lists.
package launched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/harness/builtin"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/agent/sandbox/unit"
	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// deliver is how long the runner tries to hand its result over, a restart of the
// coordinator included.
const deliver = 10 * time.Minute

// Config of a runner, beside what its variables say.
type Config struct {
	Version string
	// Agent is what the runner is made with; what the variables say goes before.
	Agent agent.Config
	// Sandboxes are what encloses the jobs of a unit that is no container of its own; nil:
	// processes alone. They are made anew for each job.
	Sandboxes func(ctx context.Context, stateDir, workDir string) Sandboxes
	// Getenv looks up the variables. Default os.Getenv.
	Getenv func(string) string
	// Stdout is where a result goes that is printed, and Stderr what people are told.
	// Default os.Stdout and os.Stderr.
	Stdout, Stderr io.Writer
}

// Sandboxes are those of a machine.
type Sandboxes struct {
	// Plain is for jobs that name no image, Images for the others; nil: they are refused.
	Plain, Images sandbox.Driver
	// Capabilities are what the machine offers, and Evidence what was seen of each.
	Capabilities []string
	Evidence     map[string]string
}

// Run is the life of the runner, until it has had its runs or ctx ends.
func Run(ctx context.Context, c Config) error {
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	getenv := c.Getenv
	log, err := logger(getenv("EVERDICT_LOG_LEVEL"), c.Stderr)
	if err != nil {
		return err
	}
	drain, err := duration(getenv, "EVERDICT_DRAIN_TIMEOUT", 15*time.Second)
	if err != nil {
		return err
	}
	joining, err := duration(getenv, "EVERDICT_JOIN_TIMEOUT", 5*time.Minute)
	if err != nil {
		return err
	}
	deliver, err := duration(getenv, "EVERDICT_DELIVER_TIMEOUT", deliver)
	if err != nil {
		return err
	}
	turns, err := readTurns(getenv)
	if err != nil {
		return err
	}
	url := getenv("EVERDICT_API_URL")
	dir := cmp.Or(getenv("EVERDICT_RUNNER_DIR"), "/everdict")
	cfg := c.Agent
	cfg.URL, cfg.CAFile, cfg.Version = url, cmp.Or(getenv("EVERDICT_CA_FILE"), cfg.CAFile), c.Version
	cfg.Slots, cfg.Once, cfg.DrainTimeout, cfg.DeliverTimeout = 1, true, drain, deliver
	cfg.StateDir, cfg.WorkDir = filepath.Join(dir, "state"), filepath.Join(dir, "work")
	cfg.Lookup, cfg.Environ, cfg.Log = builtin.Lookup, environ(os.Environ()), log
	for _, hide := range filepath.SplitList(getenv("EVERDICT_HIDE")) {
		if hide != "" {
			cfg.Hide = append(cfg.Hide, hide)
		}
	}
	payload, token := getenv("EVERDICT_PAYLOAD_FILE"), getenv("EVERDICT_JOIN_TOKEN_FILE")
	shared := getenv("EVERDICT_SHARED_MACHINE") == "true"
	switch {
	case turns.idle > 0 && shared:
		return errors.New("EVERDICT_IDLE_TIMEOUT with EVERDICT_SHARED_MACHINE: what a run leaves on a shared machine cannot be removed for certain; set one of them")
	case turns.idle > 0 && payload != "":
		return errors.New("EVERDICT_IDLE_TIMEOUT with EVERDICT_PAYLOAD_FILE: a payload is one run; set one of them")
	case payload != "" && token != "":
		return errors.New("EVERDICT_PAYLOAD_FILE and EVERDICT_JOIN_TOKEN_FILE are two ways to get a run: set one of them")
	case payload != "":
		err := given(&cfg, payload, getenv)
		if errors.Is(err, os.ErrNotExist) {
			if used := readUsed(cfg.StateDir, payload); used != nil {
				return used.again(&cfg, c.Stdout, c.Stderr)
			}
		}
		if err != nil {
			return err
		}
	case url == "":
		return errors.New("EVERDICT_API_URL is not set: it is the address of the coordinator; where that cannot be reached, set EVERDICT_PAYLOAD_FILE")
	default:
		secret, err := agent.ReadCredential("file:"+token, nil)
		if err != nil {
			return err
		}
		joined, err := join(ctx, joining, member.Config{URL: url, CAFile: cfg.CAFile, Token: secret, Version: c.Version, Log: log})
		if err != nil {
			return err
		}
		cfg.Credential = link.Secret(joined.Token)
	}
	if err := process.HideSelf(); err != nil {
		log.Warn("other programs of this user can look into the runner", "err", err)
	}
	w := worker{
		agent: cfg, shared: shared, image: getenv("EVERDICT_IMAGE"), noNetwork: getenv("EVERDICT_NETWORK") == protocol.NetworkNone,
		dirs: []string{dir, os.TempDir()}, turns: turns, stdout: c.Stdout,
	}
	if shared {
		w.sandboxes = c.Sandboxes
	}
	err = w.run(ctx)
	if g := cfg.Given; g != nil && err == nil && w.printed == 0 {
		fmt.Fprintf(c.Stderr, "the result of attempt %d of %s is delivered to %s: nothing is printed\n", g.Epoch, g.Run, url)
	}
	return err
}

// worker takes runs, one at a time.
type worker struct {
	agent agent.Config // without what each run has anew
	// shared says that this is no container, and others' work is beside it.
	shared bool
	image  string // of the container, if it is the run's own
	// noNetwork says that the cluster holds the container to "network: none".
	noNetwork bool
	dirs      []string // all that a run may write
	turns     turns
	// sandboxes are those of the machine; nil: processes.
	sandboxes func(ctx context.Context, stateDir, workDir string) Sandboxes
	stdout    io.Writer
	printed   int // results that were not delivered
}

// one takes one run, if one comes in time, and delivers its result.
func (w *worker) one(ctx context.Context, wait time.Duration) (took bool, err error) {
	cfg := w.agent
	release := w.enclose(ctx, &cfg)
	defer func() { err = errors.Join(err, release()) }()
	var printed error
	cfg.Undelivered = func(run string, _ int64, result []byte) {
		printResult(w.stdout, result)
		w.printed++
		if cfg.Given == nil {
			printed = fmt.Errorf("the result of %s could not be delivered in time and was printed", run)
		}
	}
	cfg.ExitWhenIdle = wait
	r := agent.New(cfg)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-ctx.Done():
			r.Leave()
		case <-over:
		}
	}()
	err = r.Run(context.WithoutCancel(ctx))
	return r.Taken() > 0, errors.Join(err, printed)
}

// enclose gives a runner the sandboxes of one run.
func (w *worker) enclose(ctx context.Context, cfg *agent.Config) (release func() error) {
	if w.sandboxes != nil {
		s := w.sandboxes(ctx, cfg.StateDir, cfg.WorkDir)
		cfg.Driver, cfg.Images, cfg.Capabilities, cfg.CapabilityEvidence = s.Plain, s.Images, s.Capabilities, s.Evidence
		return func() error {
			err := s.Plain.Close()
			if s.Images != nil && s.Images != s.Plain {
				err = errors.Join(err, s.Images.Close())
			}
			return err
		}
	}
	// In a container that is the enclosure, there is nothing of others to hide.
	processes := process.New(process.Config{NoMask: !w.shared})
	cfg.Driver = processes
	if !w.shared {
		container := &unit.Driver{Driver: processes, Image: w.image, By: "the cluster", NoNetwork: w.noNetwork}
		cfg.Driver, cfg.Images = container, container
	}
	cfg.Capabilities, cfg.CapabilityEvidence = capabilities(ctx, w.image)
	return processes.Close
}

// printResult prints a result where the coordinator, or a person, finds it.
func printResult(to io.Writer, result []byte) {
	fmt.Fprintf(to, "%s%s\n", protocol.ResultSentinel, oneLine(result))
}

// join tries for a while: a unit whose coordinator is gone is not to wait for ever.
func join(ctx context.Context, most time.Duration, cfg member.Config) (*protocol.Joined, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the coordinator at %s did not answer within %v", cfg.URL, most))
	defer cancel()
	joined, err := member.Join(bounded, cfg)
	if err != nil && bounded.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(bounded), err)
	}
	return joined, err
}

// capabilities are what the container offers. A run that names an image needs docker,
// which this is where the container is of that image.
func capabilities(ctx context.Context, image string) ([]string, map[string]string) {
	found, evidence := agent.DetectCapabilities(ctx, nil)
	if image != "" {
		found = append(found, protocol.CapDocker)
		evidence[protocol.CapDocker] = "this container is of image " + image
	}
	return found, evidence
}

func logger(level string, to io.Writer) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(cmp.Or(level, "info"))); err != nil {
		return nil, fmt.Errorf("EVERDICT_LOG_LEVEL: %w", err)
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: l})), nil
}

func duration(getenv func(string) string, name string, byDefault time.Duration) (time.Duration, error) {
	s := getenv(name)
	if s == "" {
		return byDefault, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s is %q: want a duration such as 15s", name, s)
	}
	return d, nil
}
