package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// Values of secrets that were never in use; those of one's own have quotes and signs
// that URLs and JSON escape.
const (
	firstToken  = `tok-first-Qm8x2Lk0VvT5rN7pZs4HcYw1BdGj6FaEu9+Io3/Rt5Ky=XbWqMnPzLd8CvSgHj2TeUfAi`
	secondToken = `tok-second-Zp4k7Wd1RtX9mJ3vQb6LhSy0NcGf2HaKe5+Ui8/Om1Bw=VqTjYxPzRn7DvCgLk3EsFuIa`
	ownToken    = `own & "quoted" 100% Hd7s0Kq3Xw9Tz1Rm5Vb8Lp2Yc6Nj4Gf+Ae/Ui=Oo?Bt;Ek:Sx,Wy<Zv>Qd{Mr}Cn|Fh`
)

// leakSecrets prints the secrets in every way that a shell has, and writes them into
// files; what it had is proved by their sums.
const leakSecrets = `
printf %s "$TOKEN" | sha256sum > sums
printf %s "$OWN" | sha256sum >> sums
for k in "$TOKEN" "$OWN"; do
	echo "plain $k"
	echo "to stderr $k" >&2
	printf %s "$(printf %s "$k" | cut -c1-30)"; printf '%s\n' "$(printf %s "$k" | cut -c31-)"
	printf %s "$k" | base64
	printf 'export KEY=%s\n' "$k" | base64 -w0; echo
	K="$k" python3 -c 'import json, os, urllib.parse as u; k = os.environ["K"]; print(u.quote(k, safe="")); print(u.quote_plus(k)); print(json.dumps({"k": k})); print(k.encode().hex())'
	echo "KEY=$k" >> .env
	{ printf '\000\001'; printf %s "$k"; } > core.bin
done
env
cat .env
`

// notes collects a log that several goroutines write.
type notes struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notes) bytes() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return bytes.Clone(n.b.Bytes())
}

// logger writes everything that a program has to say.
func (n *notes) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(n, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func setSecret(t *testing.T, c *client.Client, name, scope, value string) {
	t.Helper()
	if err := c.SetSecret(context.Background(), name, protocol.SecretRequest{Value: value, Scope: scope}); err != nil {
		t.Fatalf("set %s: %v", name, err)
	}
}

// register registers a command line that needs the secrets TOKEN and OWN.
func register(t *testing.T, c *client.Client, id, command string) {
	t.Helper()
	spec, err := json.Marshal(protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: id, Version: "1", Command: command, Env: map[string]protocol.EnvValue{
		"TOKEN": {Secret: &protocol.SecretRef{SecretRef: "DEPLOY_TOKEN"}},
		"OWN":   {Secret: &protocol.SecretRef{SecretRef: "OWN_TOKEN", Scope: protocol.SecretUser}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterHarness(context.Background(), spec); err != nil {
		t.Fatal(err)
	}
}

func secretive(harness, target string, graders ...protocol.GraderSpec) *protocol.RunRequest {
	return &protocol.RunRequest{Harness: protocol.HarnessRef{ID: harness}, Runtime: target, Case: protocol.Case{ID: "c1", Task: "Deploy", TimeoutSec: 120, Graders: graders,
		Env: protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"leak.sh": leakSecrets}}}}}
}

// TestP12_F26_TheValuesOfSecretsStayWithTheJob: jobs that are given secrets print them
// in every way, write them into files and fail over them. Between submit and lease the
// coordinator is restarted, its key replaced and a value changed; the job has the new
// one. No answer of the API, no file of the coordinator or the runner, no log of
// either and no command line has a piece of any.
func TestP12_F26_TheValuesOfSecretsStayWithTheJob(t *testing.T) {
	t.Parallel()
	var coordinatorLog, runnerLog notes
	h := house.New(t, func(c *coordinator.Config) { c.Log = coordinatorLog.logger() })
	paired := h.Pair("laptop", protocol.CapGit)
	values := []string{firstToken, secondToken, ownToken}
	look := func(where string, content []byte) {
		t.Helper()
		for _, v := range values {
			searchFor(t, v, where, content)
		}
	}
	lookInto := func(what, dir string) (files int) {
		t.Helper()
		for _, v := range values {
			files = searchDirFor(t, v, what, dir)
		}
		return files
	}

	setSecret(t, h.Client, "DEPLOY_TOKEN", protocol.SecretWorkspace, firstToken)
	setSecret(t, h.Client, "OWN_TOKEN", protocol.SecretUser, ownToken)
	register(t, h.Client, "leaks", `sh leak.sh && everdict ask "May I go on?" && cat .env`)
	register(t, h.Client, "crashes", `echo "dying of $TOKEN and $OWN" >&2; kill -SEGV $$`)
	done := h.Submit(secretive("leaks", paired.Runner.Target, protocol.GraderSpec{ID: "tests-pass", Config: []byte(`{"cmd":"cat .env core.bin; echo $TOKEN; false"}`)}))
	crashed := h.Submit(secretive("crashes", paired.Runner.Target))

	h.Stop()
	lookInto("the coordinator's data, while a run waits", h.Config.DataDir)
	rotated, err := coordinator.RotateSecretsKey(context.Background(), h.Config)
	if err != nil || rotated.Secrets != 2 {
		t.Fatalf("replace the key: %+v, %v", rotated, err)
	}
	h.Start()
	setSecret(t, h.Client, "DEPLOY_TOKEN", protocol.SecretWorkspace, secondToken)

	r := h.RunnerFor(paired, func(c *agent.Config) {
		c.Executable, c.Log = binary(t), runnerLog.logger()
		c.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	})
	asked := h.Until(done, "the run asks", func(r protocol.Run) bool { return r.Status == protocol.StatusSuspended || r.Status.Terminal() })
	if asked.Status != protocol.StatusSuspended {
		t.Fatalf("the run asks: got %s %+v", asked.Status, asked.Failure)
	}
	// Now, while the job has them.
	lookInto("the runner's state, while the job runs", r.Config.StateDir)
	lookInto("the coordinator's data, while the job runs", h.Config.DataDir)
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if content, err := os.ReadFile(line); err == nil { // else it has ended
			look(line, content)
		}
	}
	if _, err := h.Client.Approve(context.Background(), done, protocol.Decision{}); err != nil {
		t.Fatal(err)
	}

	for id, want := range map[string]protocol.Status{done: protocol.StatusSucceeded, crashed: protocol.StatusFailed} {
		run := h.Settled(id)
		if run.Status != want {
			t.Fatalf("%s: got %s %+v, want %s", id, run.Status, run.Failure, want)
		}
		if f := run.Failure; f != nil && (!strings.Contains(f.LogTail, "[redacted:TOKEN]") || !strings.Contains(f.LogTail, "[redacted:OWN]")) {
			t.Errorf("%s: its failure shows nothing of what was masked: %+v", id, f)
		}
		for _, path := range []string{"", "/logs", "/logs?stream=stderr", "/logs?raw=1", "/logs/stream", "/trace", "/trajectory", "/trajectory/live",
			"/live/stream", "/diff", "/events", "/attempts", "/placement"} {
			look("GET /runs/{id}"+path, fetch(t, h, "/runs/"+id+path))
		}
	}
	for _, path := range []string{"/runs", "/secrets", "/secrets/usage", "/harnesses/leaks/1", "/metrics", "/openapi.json"} {
		look("GET "+path, fetch(t, h, path))
	}
	// Each stream by itself: together, what masking holds back of one may come after the beginning of the other's line.
	for stream, wants := range map[string][]string{
		"stdout": {"plain [redacted:TOKEN]", "plain [redacted:OWN]", "TOKEN=[redacted:TOKEN]", `{"k": "[redacted:OWN]"}`},
		"stderr": {"to stderr [redacted:OWN]"},
	} {
		log := fetch(t, h, "/runs/"+done+"/logs?raw=1&stream="+stream)
		for _, want := range wants {
			if !bytes.Contains(log, []byte(want)) {
				t.Errorf("the log of %s lacks %q:\n%s", stream, want, log)
			}
		}
	}
	provesIt(t, h, done)

	if err := r.Drain(); err != nil {
		t.Fatal(err)
	}
	h.Stop()
	if n := lookInto("the coordinator's data", h.Config.DataDir); n < 4 {
		t.Errorf("looked into %d files of the coordinator", n)
	}
	lookInto("the runner's state", r.Config.StateDir)
	lookInto("the runner's workspaces", r.Config.WorkDir)
	for who, n := range map[string]*notes{"coordinator": &coordinatorLog, "runner": &runnerLog} {
		if log := n.bytes(); len(log) == 0 {
			t.Errorf("the %s has no log", who)
		} else {
			look("the log of the "+who, log)
		}
	}
}

// provesIt checks that the job had the values, by their sums in the diff, and that the
// files with them are in the diff with markers or not at all.
func provesIt(t *testing.T, h *house.House, id string) {
	t.Helper()
	rc, err := h.Client.Diff(context.Background(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	patch, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{secondToken, ownToken} {
		if sum := fmt.Sprintf("+%x  -", sha256.Sum256([]byte(v))); !bytes.Contains(patch, []byte(sum)) {
			t.Errorf("the job did not have %s...; its diff:\n%s", v[:10], patch)
		}
	}
	if !bytes.Contains(patch, []byte("+KEY=[redacted:TOKEN]\n+KEY=[redacted:OWN]\n")) {
		t.Errorf("the diff has no .env with markers:\n%s", patch)
	}
	run := h.Run(id)
	if run.Result == nil || !slices.ContainsFunc(run.Result.Snapshot.Omitted, func(o protocol.OmittedFile) bool { return o.Path == "core.bin" && o.Reason == "secret" }) {
		t.Errorf("core.bin was not omitted for its secret: %+v", run.Result)
	}
	if len(run.Scores) != 1 || !strings.Contains(run.Scores[0].Detail, "[redacted:") {
		t.Errorf("scores: %+v", run.Scores)
	}
}

// TestP8_ADeletedSecretEndsTheRunOnce: a run whose secret was deleted while it waited
// ends as a failure of its configuration that names it, after one attempt, and the
// runner goes on with the next run.
func TestP8_ADeletedSecretEndsTheRunOnce(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	paired := h.Pair("laptop", protocol.CapGit)
	setSecret(t, h.Client, "DEPLOY_TOKEN", protocol.SecretWorkspace, firstToken)
	setSecret(t, h.Client, "OWN_TOKEN", protocol.SecretUser, ownToken)
	register(t, h.Client, "deploys", "true")
	poor := h.Submit(secretive("deploys", paired.Runner.Target))
	if err := h.Client.DeleteSecret(context.Background(), "OWN_TOKEN", protocol.SecretUser); err != nil {
		t.Fatal(err)
	}
	h.Stop()
	h.Start()
	next := house.Scripted("say hello")
	next.Runtime = paired.Runner.Target
	after := h.Submit(next)
	h.RunnerFor(paired)
	run := h.Settled(poor)
	if f := run.Failure; run.Status != protocol.StatusFailed || f == nil || f.Class != protocol.ClassConfig || f.Reason != protocol.ReasonSecret || f.Retryable ||
		!strings.Contains(f.Message, "user:OWN_TOKEN") {
		t.Errorf("the run: %s %+v", run.Status, run.Failure)
	}
	if run := h.Settled(after); run.Status != protocol.StatusSucceeded {
		t.Errorf("the run after it: %s %+v", run.Status, run.Failure)
	}
	attempts, err := h.Client.Attempts(context.Background(), poor)
	if err != nil || len(attempts) != 1 || attempts[0].StartedAt != nil {
		t.Errorf("attempts: %+v, %v, want one that never started", attempts, err)
	}
	_, err = h.Client.Submit(context.Background(), secretive("deploys", paired.Runner.Target))
	if err == nil || !strings.Contains(err.Error(), "user:OWN_TOKEN") {
		t.Errorf("submitted again: %v, want it refused", err)
	}
}

// TestP15_TheProgramAndItsKey: the coordinator's program refuses a key that is not the
// one, names the one that is, and changes nothing; the key is replaced by a variable
// beside the old one, or in the key file by a command.
func TestP15_TheProgramAndItsKey(t *testing.T) {
	t.Parallel()
	bin, address, dir, home := binary(t), house.FreeAddress(t), t.TempDir(), t.TempDir()
	everdict := func(env []string, args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+home, "EVERDICT_DATA_DIR="+dir, "EVERDICT_LISTEN="+address, "EVERDICT_API_URL=http://"+address)
		return cmd
	}
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	serve := func(variables ...string) *house.Process {
		t.Helper()
		env = variables
		p := house.NewProcess(t, "coordinator", func() *exec.Cmd { return everdict(env, "coordinator") })
		house.Eventually(t, "the coordinator is ready", func() bool { return c.Ready(context.Background()) == nil })
		return p
	}
	names := func() string {
		t.Helper()
		list, err := c.Secrets(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(len(list))
	}
	fails := func(want string, env []string, args ...string) {
		t.Helper()
		out, err := everdict(env, args...).CombinedOutput()
		if err == nil || !regexp.MustCompile(want).Match(out) || !bytes.Contains(out, []byte("next:")) {
			t.Errorf("everdict %v: %v, want it to fail and to say %q:\n%s", args, err, want, out)
		}
	}
	one, two := newSecretsKey(t), newSecretsKey(t)
	database := filepath.Join(dir, "everdict.db")

	fails("is not the data directory of a coordinator", nil, "coordinator", "rotate-secrets-key")
	fails(`\$EVERDICT_SECRETS_KEY: coordinator.secrets_key is no key`, []string{"EVERDICT_SECRETS_KEY=" + one[:20]}, "coordinator")
	p := serve("EVERDICT_SECRETS_KEY=" + one)
	set := everdict(nil, "secrets", "set", "DEPLOY_TOKEN")
	set.Stdin = strings.NewReader(firstToken + "\n")
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("secrets set: %v: %s", err, out)
	}
	fails("uses this data directory", nil, "coordinator", "rotate-secrets-key")
	if code := p.Terminate(); code != 0 {
		t.Fatalf("the coordinator ended with %d", code)
	}

	before, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range [][]string{{"EVERDICT_SECRETS_KEY=" + two}, nil} {
		fails(`sealed by the key kek_[0-9a-f]{16}, and (no key|the key given) is`, env, "coordinator")
	}
	after, err := os.ReadFile(database)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a start with a wrong key has changed the database (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "secrets.key")); err == nil {
		t.Error("a start without the key has made a key file")
	}

	oldKey := filepath.Join(home, "old-key")
	if err := os.WriteFile(oldKey, []byte(one+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve("EVERDICT_SECRETS_KEY="+two, "EVERDICT_SECRETS_OLD_KEYS=file:"+oldKey).Terminate()
	fails(`the key comes from \$EVERDICT_SECRETS_KEY`, []string{"EVERDICT_SECRETS_KEY=" + two}, "coordinator", "rotate-secrets-key")
	fails("sealed by the key kek_", []string{"EVERDICT_SECRETS_KEY=" + one}, "coordinator") // the old one is of no use any more
	if err := os.WriteFile(filepath.Join(dir, "secrets.key"), []byte(two+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := everdict(nil, "coordinator", "rotate-secrets-key", "-o", "json").Output()
	if err != nil || !bytes.Contains(out, []byte(`"secrets": 1`)) {
		t.Errorf("rotate-secrets-key: %v: %s", err, out)
	}
	fails("sealed by the key kek_", []string{"EVERDICT_SECRETS_KEY=" + two}, "coordinator")
	p = serve()
	if got := names(); got != "1" {
		t.Errorf("afterwards there are %s secrets, want 1", got)
	}
	p.Terminate()
	// From the file to the variable.
	p = serve("EVERDICT_SECRETS_KEY="+one, "EVERDICT_SECRETS_OLD_KEYS=file:"+filepath.Join(dir, "secrets.key"))
	p.Terminate()
	p = serve("EVERDICT_SECRETS_KEY=" + one)
	p.Terminate()
	searchDirFor(t, firstToken, "the data directory", dir)
	searchFor(t, firstToken, "what the coordinator printed", []byte(p.Tail(1<<20)))
}

func newSecretsKey(t *testing.T) string {
	t.Helper()
	b := make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}
