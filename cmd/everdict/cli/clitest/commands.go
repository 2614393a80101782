// Package clitest has the commands that scripts of the command line use beside
// those of testscript, so that the same scripts run against any coordinator.
package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// Commands are for testscript.Params.Cmds.
var Commands = map[string]func(*testscript.TestScript, bool, []string){
	// exits CODE COMMAND...: the command ends with exactly this code.
	"exits": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: exits CODE COMMAND...")
		}
		want, err := strconv.Atoi(args[0])
		ts.Check(err)
		if got := ExitCode(ts.Exec(args[1], args[2:]...)); got != want {
			ts.Fatalf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args[1:], " "), got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	},
	// until PATTERN COMMAND...: the command is repeated until its stdout matches.
	"until": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: until PATTERN COMMAND...")
		}
		pattern := regexp.MustCompile(args[0])
		deadline := time.After(60 * time.Second)
		for {
			err := ts.Exec(args[1], args[2:]...)
			if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
				return
			}
			select {
			case <-deadline:
				ts.Fatalf("%s: never printed %s; last:\n%s%s", strings.Join(args[1:], " "), args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
			case <-time.After(20 * time.Millisecond):
			}
		}
	},
	// field NAME KEY: sets the variable to a member of the JSON on stdout.
	"field": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 {
			ts.Fatalf("usage: field VARIABLE KEY")
		}
		var object map[string]any
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &object))
		ts.Setenv(args[0], fmt.Sprint(object[args[1]]))
	},
	// isjson: stdout is one JSON document and nothing else.
	"isjson": func(ts *testscript.TestScript, neg bool, _ []string) {
		if json.Valid([]byte(ts.ReadFile("stdout"))) == neg {
			ts.Fatalf("stdout is JSON: %t; it is:\n%s", !neg, ts.ReadFile("stdout"))
		}
	},
}

// ExitCode is the exit code behind what running a process returned, -1 when it
// has none.
func ExitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}
