package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// upHouse is a real "everdict up", or another command that serves, with a home of its own.
type upHouse struct {
	*house.House
	*house.Process
	home string
}

func serving(t *testing.T, args ...string) *upHouse {
	t.Helper()
	home, err := os.MkdirTemp("", "up-") // as short as a home is: there are sockets below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	bin, u := binary(t), &upHouse{home: home}
	u.House = &house.House{T: t, Address: house.FreeAddress(t)}
	args = append(args, "--listen", u.Address, "--data-dir", filepath.Join(u.home, "data"))
	u.Process = house.NewProcess(t, args[0], func() *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.home, "TMPDIR=" + os.TempDir(), "DOCKER_HOST=" + os.Getenv("DOCKER_HOST")}
		return cmd
	})
	if u.Client, err = client.New(client.Config{BaseURL: u.URL(), Retries: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range u.keepers() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	house.Eventually(t, "it is ready", func() bool { _, err := u.Client.Runners(t.Context()); return err == nil })
	return u
}

// keepers are the processes of this house's units.
func (u *upHouse) keepers() (pids []int) {
	found, _ := filepath.Glob(filepath.Join(u.home, "data", "units", "*", "*", "keeper.json"))
	for _, file := range found {
		var k struct{ PID int }
		if b, err := os.ReadFile(file); err != nil || json.Unmarshal(b, &k) != nil || k.PID <= 1 {
			continue
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", k.PID))
		if err == nil && strings.Contains(string(args), filepath.Dir(file)) {
			pids = append(pids, k.PID)
		}
	}
	return pids
}

func (u *upHouse) register(spec string) error {
	_, err := u.Client.RegisterRuntime(u.T.Context(), []byte(spec))
	return err
}

func here(script string) *protocol.RunRequest {
	r := house.Scripted(script)
	r.Runtime = "here"
	return r
}

// seen is a run for the runtime "here" whose workspace has to satisfy a shell command.
func seen(script, check string) *protocol.RunRequest {
	r := here(script)
	r.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}}
	config, err := json.Marshal(map[string]string{"cmd": check})
	if err != nil {
		panic(err) // a string
	}
	r.Case.Graders = []protocol.GraderSpec{{ID: "tests-pass", Config: config}}
	return r
}

// waiting is a script that goes on until a file is there.
func waiting(file string) string {
	return "run while [ ! -e " + file + " ]; do sleep 0.02; done"
}

// TestP4_UnitsOfThisMachine: the runs of a registered local runtime have runners of their
// own, as many as it says, which a coordinator that is killed finds again.
func TestP4_UnitsOfThisMachine(t *testing.T) {
	t.Parallel()
	u := serving(t, "up")
	if err := u.register(`{"kind":"local","id":"here","version":"1.0.0","maxConcurrent":2}`); err != nil {
		t.Fatal(err)
	}
	if p, err := u.Client.ProbeRuntime(t.Context(), []byte(`{"id":"here"}`)); err != nil || !p.Reachable || !strings.Contains(p.Detail, "the coordinator's own machine") {
		t.Errorf("probe: %+v, %v", p, err)
	}
	gate := filepath.Join(t.TempDir(), "gate")
	var ids []string
	for range 3 {
		ids = append(ids, u.Submit(here(waiting(gate))))
	}
	u.House.Running(ids[0])
	u.House.Running(ids[1])
	u.Until(ids[2], "the last waits", func(r protocol.Run) bool {
		return r.Placement != nil && strings.Contains(r.Placement.BlockedReason, "waits for a slot: 2 of 2 in use")
	})
	// The runner in the process itself takes what names no runtime, meanwhile.
	if r := u.Settled(u.Submit(house.Scripted("say here"))); r.Status != protocol.StatusSucceeded || r.Provenance.RunnerLabel != "in this process" {
		t.Errorf("without a runtime the run is %s on %q, want it in the process", r.Status, r.Provenance.RunnerLabel)
	}
	u.Process.Kill()
	u.Process.Start()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		r := u.Settled(id)
		if r.Status != protocol.StatusSucceeded || r.Attempt != 1 || r.Provenance.RunnerLabel != fleet.UnitName(id, 1) {
			t.Errorf("%s: %s, attempt %d, on %+v, %+v; want it done at once by its own runner", id, r.Status, r.Attempt, r.Provenance, r.Failure)
		}
	}
	house.Eventually(t, "no unit is left", func() bool {
		left, err := filepath.Glob(filepath.Join(u.home, "data", "units", "*", "*"))
		return err == nil && len(left) == 0 && len(u.keepers()) == 0
	})
}

// TestP12_UnitsOfThisMachineSeeNoSecretOfTheCoordinator: a job has the user's rights,
// and not what the coordinator keeps, nor the token of its unit.
func TestP12_UnitsOfThisMachineSeeNoSecretOfTheCoordinator(t *testing.T) {
	t.Parallel()
	u := serving(t, "up")
	if err := u.register(`{"kind":"local","id":"here","version":"1.0.0"}`); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(u.home, "data")
	if _, err := os.Stat(filepath.Join(data, "secrets.key")); err != nil {
		t.Fatal(err)
	}
	r := u.Settled(u.Submit(seen("run ls -A "+data+" > listed; env > env", `[ -e listed ] && [ ! -s listed ] && ! grep -E "EVERDICT_(JOIN|HIDE|RUNNER|API)" env`)))
	if r.Verdict == nil || !*r.Verdict {
		t.Errorf("the run is %s, scores %+v, %+v; want that it sees nothing of the coordinator's", r.Status, r.Scores, r.Failure)
	}
}

// TestP6_UpEndsItsUnits: everdict up that is told to end takes its units along, and their
// runs are tried again when it is back.
func TestP6_UpEndsItsUnits(t *testing.T) {
	t.Parallel()
	u := serving(t, "up", "--drain-timeout", "0s")
	if err := u.register(`{"kind":"local","id":"here","version":"1.0.0","warm":1}`); err != nil {
		t.Fatal(err)
	}
	gate := filepath.Join(t.TempDir(), "gate")
	id := u.Submit(here(waiting(gate)))
	u.House.Running(id)
	if code := u.Process.Terminate(); code != 0 {
		t.Errorf("up ended with %d", code)
	}
	if left := u.keepers(); len(left) != 0 {
		t.Errorf("after up has ended, %v are left", left)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	u.Process.Start()
	if r := u.Settled(id); r.Status != protocol.StatusSucceeded || r.Attempt < 2 {
		t.Errorf("the run is %s, attempt %d, %+v; want it done by a later attempt", r.Status, r.Attempt, r.Failure)
	}
}

// TestUnitsOfThisMachineAreAskedFor: a coordinator that is not told to runs no job as its
// own user, says so, and refuses what only launched runners do.
func TestUnitsOfThisMachineAreAskedFor(t *testing.T) {
	t.Parallel()
	u := serving(t, "coordinator")
	for _, field := range []string{`"warm":1`, `"idleSeconds":60`, `"payload":true`} {
		err := u.register(`{"kind":"local","id":"here","version":"1.0.0",` + field + `}`)
		if err == nil || !strings.Contains(err.Error(), "launches none on its own machine: everdict coordinator runs no jobs as its own user; --local-units on allows it") {
			t.Errorf("%s: %v, want it refused with the reason", field, err)
		}
	}
	if err := u.register(`{"kind":"local","id":"here","version":"1.0.0"}`); err != nil {
		t.Fatal(err)
	}
	if p, err := u.Client.ProbeRuntime(t.Context(), []byte(`{"id":"here"}`)); err != nil || !strings.Contains(p.Detail, "none are launched: everdict coordinator runs no jobs as its own user") {
		t.Errorf("probe: %+v, %v; want the reason", p, err)
	}
	told := serving(t, "coordinator", "--local-units", "on")
	if err := told.register(`{"kind":"local","id":"here","version":"1.0.0"}`); err != nil {
		t.Fatal(err)
	}
	if err := told.register(`{"kind":"local","id":"again","version":"1.0.0","idleSeconds":60}`); err == nil || !strings.Contains(err.Error(), "cannot be removed for certain") {
		t.Errorf("idleSeconds: %v, want it refused with the reason", err)
	}
	id := told.Submit(here("say done"))
	if r := told.Settled(id); r.Status != protocol.StatusSucceeded || r.Provenance.RunnerLabel != fleet.UnitName(id, 1) {
		t.Errorf("told to, the run is %s on %+v, %+v", r.Status, r.Provenance, r.Failure)
	}
}

// TestUnitsOfThisMachineAskAPerson: a job in a unit can ask, wherever the home is.
func TestUnitsOfThisMachineAskAPerson(t *testing.T) {
	t.Parallel()
	u := serving(t, "up")
	if err := u.register(`{"kind":"local","id":"here","version":"1.0.0"}`); err != nil {
		t.Fatal(err)
	}
	id := u.Submit(here("ask Is it so?"))
	u.Until(id, "it asks", suspended)
	if _, err := u.Client.Approve(t.Context(), id, protocol.Decision{}); err != nil {
		t.Fatal(err)
	}
	if r := u.Settled(id); r.Status != protocol.StatusSucceeded {
		t.Errorf("answered, the run is %s, %+v", r.Status, r.Failure)
	}
}

// TestUnitsOfThisMachineRunImages: a run that names an image has a container, and no
// network where it declares none.
func TestUnitsOfThisMachineRunImages(t *testing.T) {
	t.Parallel()
	u := serving(t, "up")
	if err := u.register(`{"kind":"local","id":"here","version":"1.0.0"}`); err != nil {
		t.Fatal(err)
	}
	req := seen("run ls /sys/class/net > nets", `[ "$(cat nets)" = lo ]`)
	req.Case.Image, req.Case.Network = busybox, &protocol.Network{Mode: protocol.NetworkNone}
	if r := u.Settled(u.Submit(req)); r.Verdict == nil || !*r.Verdict {
		t.Errorf("the run is %s, scores %+v, %+v; want it done without a network", r.Status, r.Scores, r.Failure)
	}
}
