// Command job-runner is the runner of a launched unit, for images that a cluster starts.
// It joins with the token of its unit, pulls its run, carries it out as processes in its
// own container, delivers the evidence, and ends.
//
//	job-runner               works; all settings are variables, see below
//	job-runner install PATH  copies itself to PATH, for containers of other images
//	job-runner version
//
// A result that it cannot deliver it prints as one line after the sentinel
// __EVERDICT_RESULT__, where the coordinator finds it when it is back.
//
// Where the coordinator cannot be reached, the run comes from a payload instead: a file
// that the coordinator wrote when it handed the run's attempt out. It is removed before
// anything of the run begins. With EVERDICT_API_URL the coordinator is told what
// happens as soon as it can be reached; without, or if it never can, the result is
// printed, which is no error.
//
// A runner that is kept ready waits for its first run, and one that is used again takes
// one after the other; see reuse.go.
//
// Variables:
//
//	EVERDICT_API_URL          address of the coordinator
//	EVERDICT_JOIN_TOKEN_FILE  file of the token, which is good once
//	EVERDICT_PAYLOAD_FILE     in place of a token: file of the payload
//	EVERDICT_SECRET_<NAME>    with a payload: value of the workspace's secret NAME, if the harness
//	                          names it; EVERDICT_USER_SECRET_<NAME>: of the submitter's own
//	EVERDICT_CA_FILE          PEM file of certificates to trust beside the system's
//	EVERDICT_RUNNER_DIR       directory for the outbox and the workspaces; default /everdict
//	EVERDICT_IMAGE            image of this container, if it is the run's own
//	EVERDICT_SHARED_MACHINE   true: this is no container, and others' work is beside it
//	EVERDICT_NETWORK          "none" if the cluster lets this container reach the coordinator alone
//	EVERDICT_DRAIN_TIMEOUT    how long the run may go on after SIGTERM; default 15s
//	EVERDICT_JOIN_TIMEOUT     how long to try to reach the coordinator; default 5m
//	EVERDICT_DELIVER_TIMEOUT  how long to try to deliver the result; default 10m
//	EVERDICT_FIRST_TIMEOUT    how long to wait for the first run; default 2m
//	EVERDICT_IDLE_TIMEOUT     how long to wait for each further one; default 0: it takes one
//	EVERDICT_LIFE             the age at which it takes no more; default: none
//	EVERDICT_LOG_LEVEL        debug, info, warn or error; default info
//
// The exit codes are those of "everdict runner": 0 done, whatever came of the run; 3 the run
// was given back, 4 the token is not good, 5 another process has the identity, 6 too old
// for the coordinator, 2 anything else: there is no result.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/harness/builtin"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/agent/sandbox/unit"
	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// version is set by the build.
var version = "dev"

// deliver is how long the runner tries to hand its result over, a restart of the
// coordinator included.
const deliver = 10 * time.Minute

func main() {
	if len(os.Args) > 1 {
		os.Exit(command(os.Args[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "job-runner:", err)
	}
	os.Exit(member.ExitCode(err))
}

func command(args []string) int {
	switch {
	case args[0] == "version":
		fmt.Println(version)
		return 0
	case args[0] == "install" && len(args) == 2:
		if err := install(args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "job-runner:", err)
			return member.ExitFailed
		}
		return 0
	}
	fmt.Fprintln(os.Stderr, "usage: job-runner | job-runner install PATH | job-runner version")
	return member.ExitFailed
}

// install copies this program.
func install(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	in, err := os.Open(self)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// run is the life of the runner.
func run(ctx context.Context, getenv func(string) string) error {
	log, err := logger(getenv("EVERDICT_LOG_LEVEL"))
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
	url, caFile := getenv("EVERDICT_API_URL"), getenv("EVERDICT_CA_FILE")
	dir := cmp.Or(getenv("EVERDICT_RUNNER_DIR"), "/everdict")
	cfg := agent.Config{
		URL: url, CAFile: caFile, Version: version,
		Slots: 1, Once: true, DrainTimeout: drain, DeliverTimeout: deliver,
		StateDir: filepath.Join(dir, "state"), WorkDir: filepath.Join(dir, "work"),
		Lookup: builtin.Lookup, Environ: environ(os.Environ()), Log: log,
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
		if err := given(&cfg, payload, getenv); err != nil {
			return err
		}
	case url == "":
		return errors.New("EVERDICT_API_URL is not set: it is the address of the coordinator; where that cannot be reached, set EVERDICT_PAYLOAD_FILE")
	default:
		secret, err := agent.ReadCredential("file:"+token, nil)
		if err != nil {
			return err
		}
		joined, err := join(ctx, joining, member.Config{URL: url, CAFile: caFile, Token: secret, Version: version, Log: log})
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
		dirs: []string{dir, os.TempDir()}, turns: turns,
	}
	return w.run(ctx)
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
}

// one takes one run, if one comes in time, and delivers its result.
func (w *worker) one(ctx context.Context, wait time.Duration) (took bool, err error) {
	// In a container that is the enclosure, there is nothing of others to hide.
	processes := process.New(process.Config{NoMask: !w.shared})
	defer func() { err = errors.Join(err, processes.Close()) }()
	cfg := w.agent
	cfg.Driver = processes
	if !w.shared {
		container := &unit.Driver{Driver: processes, Image: w.image, By: "the cluster", NoNetwork: w.noNetwork}
		cfg.Driver, cfg.Images = container, container
	}
	var printed error
	cfg.Undelivered = func(run string, _ int64, result []byte) {
		fmt.Printf("%s%s\n", protocol.ResultSentinel, oneLine(result))
		if cfg.Given == nil {
			printed = fmt.Errorf("the result of %s could not be delivered within %v and was printed", run, cfg.DeliverTimeout)
		}
	}
	cfg.ExitWhenIdle = wait
	cfg.Capabilities, cfg.CapabilityEvidence = capabilities(ctx, w.image)
	r := agent.New(cfg)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-ctx.Done():
			r.Drain()
		case <-over:
		}
	}()
	err = r.Run(context.WithoutCancel(ctx))
	return r.Taken() > 0, errors.Join(err, printed)
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

func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(cmp.Or(level, "info"))); err != nil {
		return nil, fmt.Errorf("EVERDICT_LOG_LEVEL: %w", err)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
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
