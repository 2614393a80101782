package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everdict/everdict/protocol/client"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestMain lets the test binary be everdict: scripts run it as a process.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"everdict": func() { os.Exit(Main(showHooks())) }})
}

// showHooks print the options that the commands were given.
func showHooks() Hooks {
	show := func(v any) error {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	coordinator := func(o CoordinatorOptions) map[string]any {
		if o.Log == nil || o.Ready == nil || o.Hurry == nil {
			panic("an option is not set")
		}
		return map[string]any{"dataDir": o.DataDir, "listen": o.Listen, "auth": o.RequireAuth, "insecure": o.InsecureListenWithoutAuth, "lease": o.Lease, "pool": o.PoolMaxConcurrent}
	}
	return Hooks{
		Version: "1.2.3-test",
		Coordinator: func(ctx context.Context, o CoordinatorOptions) error {
			o.Ready("http://" + o.Listen)
			return show(coordinator(o))
		},
		Up: func(ctx context.Context, o UpOptions) error {
			o.Coordinator.Ready("http://" + o.Coordinator.Listen)
			return show(map[string]any{"coordinator": coordinator(o.Coordinator), "slots": o.MaxConcurrent, "workDir": o.WorkDir, "sandbox": o.Sandbox, "drain": o.DrainTimeout.String()})
		},
		Runner: func(ctx context.Context, o RunnerOptions) error {
			// What a job could read of this process.
			seen := []byte(strings.Join(os.Args, " "))
			for _, name := range []string{"cmdline", "environ"} {
				b, _ := os.ReadFile("/proc/self/" + name)
				seen = append(seen, b...)
			}
			token := ""
			if n, ok := strings.CutPrefix(o.Pair, "fd:"); ok {
				fd, _ := strconv.Atoi(n)
				fmt.Fscanln(os.NewFile(uintptr(fd), "pair"), &token)
			}
			return show(map[string]any{
				"api": o.APIURL, "label": o.Label, "slots": o.MaxConcurrent, "offers": o.Capabilities, "drain": o.DrainTimeout.String(),
				"sandbox": o.Sandbox, "pair": regexp.MustCompile(`fd:\d+`).ReplaceAllString(o.Pair, "fd:N"), "token": token,
				"readable": strings.Contains(string(seen), "rnr_literal"),
			})
		},
		RunLocal: func(ctx context.Context, o RunOptions) (int, error) {
			c, err := client.New(client.Config{BaseURL: os.Getenv("EVERDICT_API_URL")})
			if err != nil {
				return 0, err
			}
			return o.Drive(ctx, c)
		},
	}
}

// TestScripts runs the command against a coordinator that behaves as the API
// says. Those of e2e/script also hold against a real one: EVERDICT_E2E_API_URL
// names it.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"testdata/script", "../../../e2e/script"} {
		t.Run(dir, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir:                 dir,
				RequireExplicitExec: true,
				UpdateScripts:       *update,
				Setup: func(env *testscript.Env) error {
					url, real := os.Getenv("EVERDICT_E2E_API_URL"), strings.Contains(dir, "e2e")
					if url == "" || !real {
						f := newFake(t)
						url = f.serve(false)
						env.Setenv("CUT_URL", f.serve(true))
						env.Values["fake"] = f
					}
					env.Setenv("EVERDICT_API_URL", url)
					env.Setenv("EVERDICT_TENANT", "default")
					return nil
				},
				Cmds: scriptCommands,
			})
		})
	}
}

var scriptCommands = map[string]func(*testscript.TestScript, bool, []string){
	// exits CODE COMMAND...: the command ends with exactly this code.
	"exits": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: exits CODE COMMAND...")
		}
		want, err := strconv.Atoi(args[0])
		ts.Check(err)
		if got := exitCode(ts.Exec(args[1], args[2:]...)); got != want {
			ts.Fatalf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args[1:], " "), got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	},
	// until PATTERN COMMAND...: the command is repeated until its stdout matches.
	"until": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: until PATTERN COMMAND...")
		}
		pattern := regexp.MustCompile(args[0])
		deadline := time.After(20 * time.Second)
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
	// away PATH N: the next N requests of the path are answered 503.
	"away": func(ts *testscript.TestScript, neg bool, args []string) {
		f := ts.Value("fake").(*fake)
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.bad[args[0]] = n
	},
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}
