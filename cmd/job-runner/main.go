// Command job-runner is the runner of a launched unit, for images that a cluster starts.
// It joins with the token of its unit, pulls its run, carries it out as processes in its
// own container, delivers the evidence, and ends.
//
//	job-runner               works; all settings are variables, see below
//	job-runner install PATH  copies itself to PATH, for containers of other images
//	job-runner copy FROM TO  moves a payload to where the runner can remove it
//	job-runner ask QUESTION  asks a person; jobs find it on their PATH as everdict
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
// one after the other.
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
//	EVERDICT_HIDE             directories that no job may see, with a colon between each two
//	EVERDICT_NETWORK          "none" if the cluster lets this container reach the coordinator alone
//	EVERDICT_DRAIN_TIMEOUT    how long the run may go on after SIGTERM; default 15s
//	EVERDICT_JOIN_TIMEOUT     how long to try to reach the coordinator; default 5m
//	EVERDICT_DELIVER_TIMEOUT  how long to try to deliver the result; default 10m. After SIGTERM it
//	                          is printed 3 s after the drain timeout at the latest
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
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/cmd/ask"
	"github.com/everdict/everdict/cmd/launched"
	"github.com/everdict/everdict/cmd/member"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(os.Args) > 1 || filepath.Base(os.Args[0]) == "everdict" {
		os.Exit(command(ctx, os.Args[1:]))
	}
	self, err := os.Executable()
	if err != nil {
		self = "" // then jobs have no everdict
	}
	err = launched.Run(ctx, launched.Config{Version: version, Agent: agent.Config{Executable: self}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "job-runner:", err)
	}
	os.Exit(member.ExitCode(err))
}

func command(ctx context.Context, args []string) int {
	switch {
	case filepath.Base(os.Args[0]) == "everdict", args[0] == "ask":
		return ask.Command(ctx, args, os.Getenv, os.Stdout, os.Stderr)
	case args[0] == "version":
		fmt.Println(version)
		return 0
	case args[0] == "install" && len(args) == 2:
		if err := install(args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "job-runner:", err)
			return member.ExitFailed
		}
		return 0
	case args[0] == "copy" && len(args) == 3:
		if err := launched.MovePayload(args[1], args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "job-runner:", err)
			return member.ExitFailed
		}
		return 0
	}
	fmt.Fprintln(os.Stderr, "usage: job-runner | job-runner install PATH | job-runner copy FROM TO | job-runner ask QUESTION | job-runner version")
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
