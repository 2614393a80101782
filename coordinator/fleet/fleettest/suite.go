package fleettest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// Subject is a real cluster under test. Its units run a program that does what its
// token says, as Script does.
type Subject struct {
	Opener fleet.Opener
	// Spec of the runtime; the suite gives it ids.
	Spec protocol.RuntimeSpec
	// Wrong is Spec with a credential that the cluster does not take, and Names what
	// the error must name; empty: the cluster asks for none.
	Wrong protocol.RuntimeSpec
	Names string
	// Silent is Spec with an address that swallows what is sent to it; empty: none.
	Silent *protocol.RuntimeSpec
	// Processes says that units are processes of the machine: they have no image, which
	// is refused, and no limit of their memory.
	Processes bool
	// MissingImage and BadImage are an image that is nowhere and a name that is none.
	MissingImage, BadImage string
	// OtherImage is one that is there and does not have the runner in it.
	OtherImage string
	// NoRoom are the cluster's words, in lower case, where no machine has the memory.
	// Default "insufficient memory".
	NoRoom string
	// Evict takes a unit away, as a person with a right to does.
	Evict func(ctx context.Context, unit string) error
	// Patience is how long the cluster may take for what a case waits for. Default 60 s.
	Patience time.Duration
}

const oom = "memory runs out"

// Run is the suite. Cases run side by side.
func Run(t *testing.T, s Subject) {
	s.Patience = cmp.Or(s.Patience, time.Minute)
	s.NoRoom = cmp.Or(s.NoRoom, "insufficient memory")
	for _, c := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"a unit runs once and its output stays", runsOnce},
		{"an exit code is told", exitCode},
		{"launched twice is one unit", launchedTwice},
		{"a launch that was cut off is completed", cutOff},
		{"a unit without a job", standing},
		{"a unit with a payload", payload},
		{"a payload that is too large", tooLarge},
		{"P8 what units do not hold is refused", notHeld},
		{"the runner is brought into the job's image", otherImage},
		{"F16 an image that is nowhere", missingImage},
		{"F16 a name that is no image", badImage},
		{"a unit that fits nowhere", fitsNowhere},
		{oom, memoryRunsOut},
		{"the deadline passes", deadlinePasses},
		{"F17 a unit is taken away", takenAway},
		{"terminate", terminate},
		{"what is another coordinator's", anothers},
		{"probe", probe},
		{"F14 a wrong credential is named", wrongCredential},
		{"an address that answers nothing", silent},
		{"inspect", inspect},
	} {
		if s.Processes && c.name == oom {
			continue // it would be the machine's memory
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newWorld(t, s))
		})
	}
}

// world is one runtime of one coordinator on the cluster, which no other case uses.
type world struct {
	Subject
	t       *testing.T
	target  fleet.Target
	p       fleet.Provider
	changes atomic.Int64
}

var worlds atomic.Int64

func newWorld(t *testing.T, s Subject) *world {
	n := worlds.Add(1)
	spec := s.Spec
	spec.ID, spec.Version = fmt.Sprintf("suite-%d", n), "1.0.0"
	w := &world{Subject: s, t: t, target: fleet.Target{Coordinator: strings.ToLower(protocol.NewID("suite-")), Workspace: "default", Spec: &spec}}
	w.p = w.open()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		units, err := w.p.List(ctx)
		for _, u := range units {
			err = errors.Join(err, w.p.Terminate(ctx, u.Name))
		}
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return w
}

// open is a new client, as after a restart, that is watched until the test ends.
func (w *world) open() fleet.Provider {
	w.t.Helper()
	p, err := w.Opener.Open(w.t.Context(), w.target)
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := p.Watch(ctx, func() { w.changes.Add(1) }); err != nil {
			w.t.Errorf("watch: %v", err)
		}
	})
	w.t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	return p
}

// order is a unit that does what the script says.
func (w *world) order(name, script string) fleet.Order {
	run := protocol.NewID(protocol.RunPrefix)
	return fleet.Order{
		Unit: fleet.UnitName(run, 1), Job: run, Attempt: 1, URL: "http://127.0.0.1:1", MemoryMB: 64, CPU: 50, Deadline: 5 * time.Minute,
		Token: func(context.Context) (string, error) { return script, nil },
	}
}

func (w *world) launch(o fleet.Order) fleet.Order {
	w.t.Helper()
	if err := w.p.Launch(w.t.Context(), o); err != nil {
		w.t.Fatalf("launch %s: %v", o.Unit, err)
	}
	return o
}

// find is the unit as the list has it; false if it has not.
func (w *world) find(p fleet.Provider, name string) (fleet.Unit, bool) {
	w.t.Helper()
	u, there, err := w.look(p, name)
	if err != nil {
		w.t.Fatalf("list: %v", err)
	}
	return u, there
}

func (w *world) look(p fleet.Provider, name string) (u fleet.Unit, there bool, err error) {
	units, err := p.List(w.t.Context())
	for _, u := range units {
		if u.Name == name {
			return u, true, err
		}
	}
	return fleet.Unit{}, false, err
}

// until waits for a unit that satisfies ok. A busy cluster may fail to list its units once.
func (w *world) until(name, what string, ok func(fleet.Unit) bool) fleet.Unit {
	w.t.Helper()
	var last fleet.Unit
	var err error
	w.eventually(what, func() bool {
		var there bool
		last, there, err = w.look(w.p, name)
		return err == nil && there && ok(last)
	}, func() string { return fmt.Sprintf("%+v, trouble %+v, list %v", last, last.Trouble, err) })
	return last
}

func (w *world) eventually(what string, ok func() bool, state func() string) {
	w.t.Helper()
	deadline := time.NewTimer(w.Patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.t.Fatalf("waited %v in vain: %s; it is %s", w.Patience, what, state())
		}
	}
}

func ended(u fleet.Unit) bool { return u.State == fleet.Ended }

func cause(c fleet.Cause) func(fleet.Unit) bool {
	return func(u fleet.Unit) bool { return u.Trouble != nil && u.Trouble.Cause == c }
}

func runsOnce(t *testing.T, w *world) {
	before := w.changes.Load()
	o := w.launch(w.order("ok", "say hello from the unit; exit 0"))
	u := w.until(o.Unit, "it ends", ended)
	if u.Job != o.Job || u.Attempt != 1 || u.Trouble != nil {
		t.Errorf("the unit is %+v, trouble %+v; want job %s, attempt 1, no trouble", u, u.Trouble, o.Job)
	}
	w.eventually("Watch tells of a change", func() bool { return w.changes.Load() > before }, func() string { return "silent" })
	again, there := w.find(w.open(), o.Unit)
	if !there || again.Job != o.Job || again.Attempt != 1 {
		t.Errorf("a new client sees %+v, %v; want the unit", again, there)
	}
	out, err := w.p.Output(t.Context(), o.Unit, 1000)
	if err != nil || string(out) != "hello from the unit\n" {
		t.Errorf("output %q, %v", out, err)
	}
	if out, err = w.p.Output(t.Context(), o.Unit, 5); err != nil || string(out) != "unit\n" {
		t.Errorf("the last 5 bytes are %q, %v", out, err)
	}
	if out, err = w.p.Output(t.Context(), fleet.UnitName("run_none", 1), 5); err != nil || len(out) != 0 {
		t.Errorf("output of a unit that is not there: %q, %v", out, err)
	}
}

func exitCode(t *testing.T, w *world) {
	o := w.launch(w.order("exit", "exit 3"))
	u := w.until(o.Unit, "it ends in trouble", func(u fleet.Unit) bool { return ended(u) && u.Trouble != nil })
	if tr := u.Trouble; tr.Cause != fleet.CauseExited || !tr.Dead || !tr.Final || tr.ExitCode == nil || *tr.ExitCode != 3 {
		t.Errorf("trouble %+v, want exit code 3 of what is surely dead", tr)
	}
}

func launchedTwice(t *testing.T, w *world) {
	o := w.order("twice", "say once; wait")
	tokens := atomic.Int64{}
	o.Token = func(context.Context) (string, error) {
		tokens.Add(1)
		return "say once; wait", nil
	}
	w.launch(o)
	w.launch(o)
	w.until(o.Unit, "it runs", func(u fleet.Unit) bool { return u.State == fleet.Running })
	w.launch(o)
	if err := w.open().Launch(t.Context(), o); err != nil {
		t.Errorf("launch by a new client: %v", err)
	}
	units, err := w.p.List(t.Context())
	if err != nil || len(units) != 1 || tokens.Load() != 1 {
		t.Errorf("%d units, %d tokens, %v; want one of each", len(units), tokens.Load(), err)
	}
}

func cutOff(t *testing.T, w *world) {
	o := w.order("cut", "")
	broken := errors.New("the coordinator died here")
	o.Token = func(context.Context) (string, error) { return "", broken }
	if err := w.p.Launch(t.Context(), o); !errors.Is(err, broken) {
		t.Fatalf("launch: %v, want the token's error", err)
	}
	w.until(o.Unit, "it is seen as half launched", func(u fleet.Unit) bool { return u.State == fleet.Launching && u.Job == o.Job })
	o.Token = func(context.Context) (string, error) { return "say second try; exit 0", nil }
	w.p = w.open()
	w.launch(o)
	w.until(o.Unit, "it runs and ends", func(u fleet.Unit) bool { return ended(u) && u.Trouble == nil })
}

// A unit that no job has asked for is a unit like any other, and keeps its note.
func standing(t *testing.T, w *world) {
	o := w.order("standing", "say $VARIABLE; exit 0")
	o.Unit, o.Job, o.Attempt, o.Note = fleet.StandingName(), "", 0, `{"a":"b"}`
	o.Env = map[string]string{"VARIABLE": "of the runner"}
	if f, ok := w.Opener.(fleet.Featured); ok {
		o.Reused = f.Lacks(fleet.FeatureReuse) == ""
	}
	w.launch(o)
	u := w.until(o.Unit, "it ends", ended)
	if u.Job != "" || u.Attempt != 0 || u.Note != o.Note || u.Trouble != nil {
		t.Errorf("the unit is %+v, trouble %+v; want no job, its note, no trouble", u, u.Trouble)
	}
	if out, err := w.p.Output(t.Context(), o.Unit, 1000); err != nil || string(out) != "of the runner\n" {
		t.Errorf("output %q, %v; want the variable", out, err)
	}
}

// A payload takes the place of the token, survives a launch that was cut off, and once its
// unit runs it can be forgotten.
func payload(t *testing.T, w *world) {
	o := w.order("payload", "")
	o.Token, o.PayloadSize = nil, 100
	broken := errors.New("the coordinator died here")
	o.Payload = func(context.Context) ([]byte, error) { return nil, broken }
	if err := w.p.Launch(t.Context(), o); !errors.Is(err, broken) {
		t.Fatalf("launch: %v, want the payload's error", err)
	}
	w.until(o.Unit, "it is seen as half launched", func(u fleet.Unit) bool { return u.State == fleet.Launching })
	o.Payload = func(context.Context) ([]byte, error) { return []byte("say from a payload; wait"), nil }
	w.launch(o)
	w.until(o.Unit, "it runs", func(u fleet.Unit) bool { return u.State == fleet.Running })
	for range 2 {
		if err := w.p.Forget(t.Context(), o.Unit); err != nil {
			t.Errorf("forget: %v", err)
		}
	}
	w.eventually("what it says is there", func() bool {
		out, err := w.p.Output(t.Context(), o.Unit, 1000)
		return err == nil && string(out) == "from a payload\n"
	}, func() string { return "not" })
	if u, there := w.find(w.p, o.Unit); !there || u.State != fleet.Running || u.Trouble != nil {
		t.Errorf("the unit is %+v, trouble %+v; want it running as if nothing had been forgotten", u, u.Trouble)
	}
	if err := w.p.Terminate(t.Context(), o.Unit); err != nil {
		t.Errorf("terminate: %v", err)
	}
	if err := w.p.Forget(t.Context(), fleet.UnitName("run_none", 1)); err != nil {
		t.Errorf("forget what was never there: %v", err)
	}
}

func tooLarge(t *testing.T, w *world) {
	o := w.order("large", "")
	o.Token, o.PayloadSize = nil, 1<<30
	o.Payload = func(context.Context) ([]byte, error) {
		t.Error("the run was handed out all the same")
		return nil, errors.New("too large")
	}
	var refused *fleet.RefusedError
	if err := w.p.Launch(t.Context(), o); !errors.As(err, &refused) || !strings.Contains(refused.Message, "1073741824 bytes") {
		t.Errorf("launch: %v, want it refused for its size", err)
	}
	if _, there := w.find(w.p, o.Unit); there {
		t.Error("the unit is there all the same")
	}
}

func notHeld(t *testing.T, w *world) {
	for f, ask := range map[fleet.Feature]func(*fleet.Order){
		fleet.FeatureReuse:     func(o *fleet.Order) { o.Reused = true },
		fleet.FeatureNoNetwork: func(o *fleet.Order) { o.Network = protocol.NetworkNone },
	} {
		if featured, ok := w.Opener.(fleet.Featured); ok && featured.Lacks(f) == "" {
			continue
		}
		o := w.order("held", "exit 0")
		ask(&o)
		var refused *fleet.RefusedError
		if err := w.p.Launch(t.Context(), o); !errors.As(err, &refused) || refused.Cause != fleet.CausePolicy || refused.Message == "" {
			t.Errorf("%s: %v, want it refused with the reason", f, err)
		}
		if _, there := w.find(w.p, o.Unit); there {
			t.Errorf("%s: the unit is there all the same", f)
		}
	}
}

func otherImage(t *testing.T, w *world) {
	o := w.order("other", "say in another image; exit 0")
	o.Image = w.OtherImage
	if w.Processes {
		w.refusesImage(o)
		return
	}
	w.launch(o)
	if u := w.until(o.Unit, "it ends", ended); u.Trouble != nil {
		t.Errorf("trouble %+v, want none", u.Trouble)
	}
	if out, err := w.p.Output(t.Context(), o.Unit, 1000); err != nil || string(out) != "in another image\n" {
		t.Errorf("output %q, %v", out, err)
	}
}

func missingImage(t *testing.T, w *world) {
	o := w.order("missing", "exit 0")
	o.Image = w.MissingImage
	if w.Processes {
		w.refusesImage(o)
		return
	}
	w.launch(o)
	u := w.until(o.Unit, "its image is missing for good", func(u fleet.Unit) bool { return cause(fleet.CauseImage)(u) && u.Trouble.Final })
	if !strings.Contains(u.Trouble.Message, w.MissingImage) {
		t.Errorf("the cluster's words are %q, want the image in them", u.Trouble.Message)
	}
}

func (w *world) refusesImage(o fleet.Order) {
	w.t.Helper()
	var refused *fleet.RefusedError
	if err := w.p.Launch(w.t.Context(), o); !errors.As(err, &refused) || refused.Cause != fleet.CauseImage {
		w.t.Errorf("launch with an image: %v, want it refused for that", err)
	}
}

func badImage(t *testing.T, w *world) {
	o := w.order("bad", "exit 0")
	o.Image = w.BadImage
	err := w.p.Launch(t.Context(), o)
	var refused *fleet.RefusedError
	if errors.As(err, &refused) {
		if refused.Cause != fleet.CauseImage {
			t.Errorf("refused because of %s, want the image", refused.Cause)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	w.until(o.Unit, "its image has no name", func(u fleet.Unit) bool { return cause(fleet.CauseImage)(u) && u.Trouble.Final })
}

func fitsNowhere(t *testing.T, w *world) {
	o := w.order("big", "exit 0")
	o.MemoryMB = 64 << 20 // 64 TiB
	w.launch(o)
	u := w.until(o.Unit, "no node has room", cause(fleet.CauseUnschedulable))
	if u.Trouble.Final || !strings.Contains(strings.ToLower(u.Trouble.Message), w.NoRoom) {
		t.Errorf("trouble %+v, want one that may pass, in the cluster's words", u.Trouble)
	}
}

func memoryRunsOut(t *testing.T, w *world) {
	o := w.launch(w.order("oom", "oom"))
	u := w.until(o.Unit, "it is killed for its memory", cause(fleet.CauseOOM))
	if !u.Trouble.Dead || u.State != fleet.Ended {
		t.Errorf("unit %+v, trouble %+v; want it dead", u, u.Trouble)
	}
}

func deadlinePasses(t *testing.T, w *world) {
	o := w.order("late", "wait")
	o.Deadline = 2 * time.Second
	w.launch(o)
	w.until(o.Unit, "it is ended at its deadline", func(u fleet.Unit) bool { return ended(u) && cause(fleet.CauseDeadline)(u) })
}

func takenAway(t *testing.T, w *world) {
	o := w.launch(w.order("evicted", "wait"))
	w.until(o.Unit, "it runs", func(u fleet.Unit) bool { return u.State == fleet.Running })
	if err := w.Evict(t.Context(), o.Unit); err != nil {
		t.Fatalf("evict: %v", err)
	}
	w.until(o.Unit, "it is ended as evicted", func(u fleet.Unit) bool { return ended(u) && cause(fleet.CauseEvicted)(u) })
}

func terminate(t *testing.T, w *world) {
	o, other := w.launch(w.order("a", "wait")), w.launch(w.order("b", "wait"))
	for _, unit := range []string{o.Unit, other.Unit} {
		w.until(unit, "it runs", func(u fleet.Unit) bool { return u.State == fleet.Running })
	}
	for range 2 {
		if err := w.p.Terminate(t.Context(), o.Unit); err != nil {
			t.Fatalf("terminate: %v", err)
		}
	}
	w.eventually(o.Unit+" is gone", func() bool {
		_, there := w.find(w.p, o.Unit)
		return !there
	}, func() string { return "still there" })
	if u, there := w.find(w.p, other.Unit); !there || u.State != fleet.Running {
		t.Errorf("the other unit is %+v, %v; want it untouched", u, there)
	}
	if err := w.p.Terminate(t.Context(), fleet.UnitName("run_none", 1)); err != nil {
		t.Errorf("terminate what was never there: %v", err)
	}
}

func anothers(t *testing.T, w *world) {
	o := w.launch(w.order("mine", "wait"))
	for name, change := range map[string]func(*fleet.Target){
		"coordinator": func(t *fleet.Target) { t.Coordinator += "x" },
		"workspace":   func(t *fleet.Target) { t.Workspace = "another" },
		"runtime": func(t *fleet.Target) {
			spec := *t.Spec
			spec.ID += "x"
			t.Spec = &spec
		},
	} {
		target := w.target
		change(&target)
		p, err := w.Opener.Open(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		units, err := p.List(t.Context())
		if err != nil || len(units) != 0 {
			t.Errorf("another %s lists %+v, %v; want nothing", name, units, err)
		}
		if err := p.Terminate(t.Context(), o.Unit); err != nil {
			t.Errorf("another %s terminates with %v, want nothing to happen", name, err)
		}
	}
	w.until(o.Unit, "it runs all the same", func(u fleet.Unit) bool { return u.State == fleet.Running })
}

func probe(t *testing.T, w *world) {
	if detail, err := w.p.Probe(t.Context()); err != nil || detail == "" {
		t.Errorf("probe: %q, %v", detail, err)
	}
}

func wrongCredential(t *testing.T, w *world) {
	if w.Names == "" {
		return // the cluster asks for none
	}
	spec := w.Wrong
	spec.ID, spec.Version = "wrong", "1.0.0"
	target := w.target
	target.Spec = &spec
	p, err := w.Opener.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"probe":  func() error { _, err := p.Probe(t.Context()); return err },
		"list":   func() error { _, err := p.List(t.Context()); return err },
		"launch": func() error { return p.Launch(t.Context(), w.order("x", "exit 0")) },
	}
	for name, call := range calls {
		var auth *fleet.AuthError
		if err := call(); !errors.As(err, &auth) || !strings.Contains(auth.Credential, w.Names) {
			t.Errorf("%s: %v, want an AuthError that names %s", name, err, w.Names)
		}
	}
}

func silent(t *testing.T, w *world) {
	if w.Silent == nil {
		return // the cluster has no address
	}
	spec := *w.Silent
	spec.ID, spec.Version = "silent", "1.0.0"
	target := w.target
	target.Spec = &spec
	p, err := w.Opener.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := p.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("probe: %v, want the deadline", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("probe returned %v after it began, want soon after 500 ms", took)
	}
}

func inspect(t *testing.T, w *world) {
	o := w.launch(w.order("seen", "wait"))
	w.until(o.Unit, "it runs", func(u fleet.Unit) bool { return u.State == fleet.Running })
	in, err := w.p.Inspect(t.Context())
	if err != nil || !in.Reachable || len(in.Workload) != 1 || in.Workload[0].Name != o.Unit {
		t.Errorf("inspect: %+v, %v; want the unit", in, err)
	}
	if (in.Nodes == nil || in.Nodes.Ready == 0) && len(in.Warnings) == 0 {
		t.Errorf("inspect: %+v; want a ready node, or a warning that the credential may not see nodes", in)
	}
}
