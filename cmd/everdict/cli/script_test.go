package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everdict/everdict/cmd/everdict/cli/clitest"
	"github.com/everdict/everdict/protocol"
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
			return show(map[string]any{"coordinator": coordinator(o.Coordinator), "slots": o.MaxConcurrent, "workDir": o.WorkDir, "sandbox": o.Sandbox, "drain": o.DrainTimeout.String(), "passProxy": o.PassProxy, "passCA": o.PassCA, "caFile": o.CAFile})
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
				"api": o.APIURL, "slots": o.MaxConcurrent, "offers": o.Capabilities, "drain": o.DrainTimeout.String(),
				"passProxy": o.PassProxy, "passCA": o.PassCA, "caFile": o.CAFile,
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
				Cmds: scriptCommands(),
			})
		})
	}
}

// scriptCommands are those of every script and what only the fake can do.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	commands := maps.Clone(clitest.Commands)
	// away PATH N: the next N requests of the path are answered 503.
	commands["away"] = func(ts *testscript.TestScript, neg bool, args []string) {
		f := ts.Value("fake").(*fake)
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.bad[args[0]] = n
	}
	// roster ID OWNER: the workspace has such a runner.
	commands["roster"] = func(ts *testscript.TestScript, neg bool, args []string) {
		f := ts.Value("fake").(*fake)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rows = append(f.rows, protocol.Runner{ID: args[0], Label: "of " + args[1], Owner: args[1], Online: true, Capabilities: []string{}})
	}
	return commands
}
