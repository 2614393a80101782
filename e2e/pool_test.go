package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// TestP4_P9_APoolByHand: two runner processes join a pool with one token. Runs
// that name the runtime go there only, the limit holds over both, who waits is told
// so, and a restart of the coordinator changes none of it.
func TestP4_P9_APoolByHand(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Lasting)
	bystander := h.Runner("mac")
	h.Online(bystander.ID)
	h.Runtime("prod", 3)
	lonely := h.Submit(house.Scripted("say done"))
	if run := h.Settled(lonely); run.Provenance.Runner != bystander.ID {
		t.Errorf("a run without a runtime ran on %+v, want the paired machine", run.Provenance)
	}
	req := func(script string) *protocol.RunRequest {
		r := house.Scripted(script)
		r.Runtime = "prod"
		return r
	}
	dir := t.TempDir()
	// Each says how many it sees at work, itself included, and waits for the gate.
	script := fmt.Sprintf("run cd %s; mkdir at.$EVERDICT_RUN_ID; ls -d at.* | wc -l >> peak; while [ ! -e gate ]; do sleep 0.02; done; rmdir at.$EVERDICT_RUN_ID", dir)
	var ids []string
	for range 8 {
		ids = append(ids, h.Submit(req(script)))
	}
	why := func(id, want string) {
		t.Helper()
		h.Until(id, id+" waits: "+want, func(r protocol.Run) bool {
			return r.Placement != nil && strings.Contains(r.Placement.BlockedReason, want)
		})
	}
	why(ids[0], "runtime prod has no runner online: start some with everdict runner --pool-token")
	token := h.PoolToken("prod", 3600)
	for range 2 {
		house.PoolRunner(t, binary(t), h.URL(), token.Token, "--max-concurrent=4")
	}
	full := func(what string) {
		t.Helper()
		house.Eventually(t, what+": both are online and three runs run", func() bool {
			p := h.Pool("prod")
			if p.Running > 3 {
				t.Fatalf("%s: %d runs at a time, want at most 3", what, p.Running)
			}
			return p.Running == 3 && p.Online == 2 && p.Slots == 8
		})
	}
	full("before the restart")
	h.Stop()
	h.Start()
	full("after the restart")
	// Both have free slots that wait, and only the limit keeps this one.
	last := h.Submit(req(script))
	why(last, "runtime prod: waits for a slot: pool default/runtime prod has 3 of 3 in use")
	ids = append(ids, last)
	house.Eventually(t, "the three have counted", func() bool {
		peak, err := os.ReadFile(filepath.Join(dir, "peak"))
		return err == nil && len(strings.Fields(string(peak))) == 3
	})
	if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var members []string
	for _, r := range h.Pool("prod").Runners {
		members = append(members, r.ID)
	}
	if len(members) != 2 {
		t.Errorf("the pool shows the runners %q, want two", members)
	}
	for _, id := range ids {
		run := h.Settled(id)
		if run.Status != protocol.StatusSucceeded || run.Attempt != 1 || !slices.Contains(members, run.Provenance.Runner) {
			t.Errorf("%s: %s, attempt %d, on %+v; want it done at once by one of %q", id, run.Status, run.Attempt, run.Provenance, members)
		}
	}
	peak, err := os.ReadFile(filepath.Join(dir, "peak"))
	if err != nil {
		t.Fatal(err)
	}
	seen := strings.Fields(string(peak))
	slices.Sort(seen)
	if len(seen) != len(ids) || seen[len(seen)-1] != "3" {
		t.Errorf("runs at work together, as each saw it: %v; want never more than 3", seen)
	}
}

// TestF35_ARevokedPoolTokenEndsItsProcesses: both end with the exit code of a
// revoked runner, their jobs end, and their runs go elsewhere after the leases have
// run out. Who comes with such a token, or an expired one, is told so.
func TestF35_ARevokedPoolTokenEndsItsProcesses(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	h.Runtime("prod", 10)
	token, next, short := h.PoolToken("prod", 3600), h.PoolToken("prod", 3600), h.PoolToken("prod", 1)
	if list, err := h.Client.PoolTokens(context.Background()); err != nil || len(list) != 3 {
		t.Errorf("tokens %+v, %v; want three", list, err)
	}
	var runners []*house.Process
	for range 2 {
		runners = append(runners, house.PoolRunner(t, binary(t), h.URL(), token.Token))
	}
	file := filepath.Join(t.TempDir(), "tick")
	req := house.Scripted("run while [ ! -e " + file + ".enough ]; do echo x >> " + file + ".$EVERDICT_RUN_ID.$EVERDICT_ATTEMPT; sleep 0.05; done")
	req.Runtime = "prod"
	ids := []string{h.Submit(req), h.Submit(req)}
	for _, id := range ids {
		h.Running(id)
	}
	if err := h.Client.RevokePoolToken(context.Background(), token.PoolToken.ID); err != nil {
		t.Fatal(err)
	}
	for _, p := range runners {
		if code := p.Wait(); code != 4 || !strings.Contains(p.Tail(4000), "everdict pools token create") {
			t.Errorf("a runner ended with %d, want 4 and what to do:\n%s", code, p.Tail(2000))
		}
	}
	if p := h.Pool("prod"); p.Online != 0 || len(p.Runners) != 0 {
		t.Errorf("the pool after the revocation: %+v, want nobody", p)
	}
	// Nothing of theirs goes on: the job of attempt 1 has ended with its runner.
	for _, id := range ids {
		standsStill(t, file+"."+id+".1")
	}
	if err := os.WriteFile(file+".enough", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	house.PoolRunner(t, binary(t), h.URL(), next.Token)
	for _, id := range ids {
		if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 2 {
			t.Errorf("%s: %s in attempt %d, want it done by another runner in attempt 2", id, run.Status, run.Attempt)
		}
	}

	c, err := client.New(client.Config{BaseURL: h.URL(), Token: short.Token})
	if err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the short token has expired", func() bool {
		var p *protocol.Problem
		_, err := c.Join(context.Background(), &protocol.JoinRequest{})
		return errors.As(err, &p) && p.Data["reason"] == "expired"
	})
	for word, secret := range map[string]string{"was revoked": token.Token, "expired at": short.Token, "not known": token.Token + "x"} {
		p := house.PoolRunner(t, binary(t), h.URL(), secret)
		if code := p.Wait(); code != 4 || !strings.Contains(p.Tail(4000), word) || !strings.Contains(p.Tail(4000), "everdict pools token create") {
			t.Errorf("a token that %s: code %d, want 4 and what to do:\n%s", word, code, p.Tail(2000))
		}
		if strings.Contains(p.Tail(4000), secret) {
			t.Errorf("a token that %s: the runner printed it", word)
		}
	}
}

// TestF18_APoolScalesToZero: a runner of a pool that is up before its coordinator
// waits for it, does what there is, and ends by itself with code 0; its next start
// with the same state directory is the same runner.
func TestF18_APoolScalesToZero(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	h.Runtime("prod", 10)
	token := h.PoolToken("prod", 3600)
	req := house.Scripted("say done")
	req.Runtime = "prod"
	long := house.Scripted("run sleep 3") // longer than the runner waits when it is idle
	long.Runtime = "prod"
	ids := []string{h.Submit(req), h.Submit(long)}
	h.Stop()
	state := filepath.Join(t.TempDir(), "state")
	p := house.PoolRunner(t, binary(t), h.URL(), token.Token, "--exit-when-idle=2s", "--state-dir="+state)
	house.Eventually(t, "the runner finds nobody", func() bool { return strings.Contains(p.Tail(4000), "could not join the pool") })
	h.Start()
	if code := p.Wait(); code != 0 {
		t.Errorf("the idle runner ended with %d, want 0:\n%s", code, p.Tail(4000))
	}
	runner := ""
	for _, id := range ids {
		run := h.Settled(id)
		if run.Status != protocol.StatusSucceeded {
			t.Errorf("%s: %s %+v", id, run.Status, run.Failure)
		}
		runner = run.Provenance.Runner
	}
	id := h.Submit(req)
	p.Start()
	if code := p.Wait(); code != 0 {
		t.Errorf("the second start ended with %d, want 0:\n%s", code, p.Tail(4000))
	}
	if run := h.Settled(id); run.Provenance.Runner != runner {
		t.Errorf("the second start ran as %s, want %s as before", run.Provenance.Runner, runner)
	}

	// An identity that is not known any more is replaced.
	kept, err := filepath.Glob(filepath.Join(state, "member-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept identities: %q, %v; want one", kept, err)
	}
	if err := os.WriteFile(kept[0], []byte(protocol.NewCredential(protocol.RunnerTokenPrefix)), 0o600); err != nil {
		t.Fatal(err)
	}
	id = h.Submit(req)
	p.Start()
	if code := p.Wait(); code != 0 || !strings.Contains(p.Tail(4000), "joining anew") {
		t.Errorf("the forgotten runner ended with %d, want 0 after it has joined anew:\n%s", code, p.Tail(4000))
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Provenance.Runner == runner {
		t.Errorf("the forgotten runner's run: %s as %s, want another than %s", run.Status, run.Provenance.Runner, runner)
	}

	// Asked to end, it lets its run finish and takes no other.
	gate := filepath.Join(t.TempDir(), "gate")
	req = house.Scripted("run while [ ! -e " + gate + " ]; do sleep 0.02; done")
	req.Runtime = "prod"
	running, waiting := h.Submit(req), h.Submit(req)
	p.Start()
	h.Running(running)
	drains := func() int { return strings.Count(p.Tail(1<<20), "draining: no new runs") }
	before := drains()
	p.Signal(syscall.SIGTERM)
	house.Eventually(t, "the runner drains", func() bool { return drains() > before })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(); code != 0 {
		t.Errorf("the drained runner ended with %d, want 0:\n%s", code, p.Tail(4000))
	}
	if run := h.Settled(running); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("the run that it had: %s in attempt %d", run.Status, run.Attempt)
	}
	if run := h.Run(waiting); run.Status != protocol.StatusQueued || !strings.Contains(run.Placement.BlockedReason, "runtime prod has no runner online") {
		t.Errorf("the run that waits: %s, %q", run.Status, run.Placement.BlockedReason)
	}
}

// TestF27_P12_TheJobCannotSeeThePoolToken: however it was given, and though its file
// stays where a cluster has mounted it.
func TestF27_P12_TheJobCannotSeeThePoolToken(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	for _, way := range []string{"stdin", "file", "variable", "env", "argument"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := house.New(t)
			h.Runtime("prod", 1)
			token := h.PoolToken("prod", 3600).Token
			dir := t.TempDir()
			state, file := filepath.Join(dir, "state"), filepath.Join(dir, "token")
			p := house.NewProcess(t, "pool runner", func() *exec.Cmd {
				args := []string{"runner", "--api-url=" + h.URL(), "--state-dir=" + state, "--work-dir=" + filepath.Join(dir, "work")}
				env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
				var stdin io.Reader
				switch way {
				case "stdin":
					args, stdin = append(args, "--pool-token=-"), strings.NewReader(token+"\n")
				case "file":
					if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
						t.Error(err)
					}
					args = append(args, "--pool-token=file:"+file)
				case "variable":
					env = append(env, "EVERDICT_POOL_TOKEN="+token)
				case "env":
					args, env = append(args, "--pool-token=env"), append(env, "EVERDICT_POOL_TOKEN="+token)
				case "argument":
					args = append(args, "--pool-token", token)
				}
				cmd := exec.Command(bin, args...)
				cmd.Env, cmd.Stdin = env, stdin
				return cmd
			})
			seen := filepath.Join(t.TempDir(), "seen")
			req := house.Scripted("run env > " + seen + "; cat /proc/*/environ /proc/*/cmdline >> " + seen + " 2>/dev/null; cat " + file + " >> " + seen + " 2>/dev/null; grep -rs '' " + state + " >> " + seen + "; true")
			req.Runtime = "prod"
			if run := h.Settled(h.Submit(req)); run.Status != protocol.StatusSucceeded {
				t.Fatalf("run: got %s %+v", run.Status, run.Failure)
			}
			found, err := os.ReadFile(seen)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(found), "EVERDICT_RUN_ID") {
				t.Errorf("the job saw nothing of its own: %d bytes", len(found))
			}
			if strings.Contains(string(found), token) || strings.Contains(string(found), "\nrnr_") {
				t.Error("the job saw a token of the runner")
			}
			if strings.Contains(p.Tail(1<<20), token) {
				t.Error("the runner printed the token")
			}
		})
	}
}

// TestP15_AMemberWhoseIdentityIsEmptyJoinsAnew: as after a power cut that has come before the
// disk had what was written.
func TestP15_AMemberWhoseIdentityIsEmptyJoinsAnew(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Lasting)
	h.Runtime("prod", 1)
	state := t.TempDir()
	p := house.PoolRunner(t, binary(t), h.URL(), h.PoolToken("prod", 3600).Token, "--state-dir="+state)
	online := func(n int) func() bool { return func() bool { return h.Pool("prod").Online == n } }
	house.Eventually(t, "it is online", online(1))
	p.Kill()
	house.Eventually(t, "it is gone", online(0))
	kept, err := filepath.Glob(filepath.Join(state, "member-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("identities: %v, %v; want one", kept, err)
	}
	if err := os.Truncate(kept[0], 0); err != nil {
		t.Fatal(err)
	}
	p.Start()
	house.Eventually(t, "it is online again", online(1))
	if size(kept[0]) == 0 {
		t.Error("the new identity is not kept")
	}
}
