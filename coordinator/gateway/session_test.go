package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// TestHello: a runner is shown as it says it is, capabilities that nobody knows left
// out, and takes jobs that need no more.
func TestHello(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	m := w.connect(mac)
	r := w.runner(mac.Runner.ID)
	if !r.Online || r.Hostname != "host-1" || len(r.Capabilities) != 1 || r.Capabilities[0] != protocol.CapGit ||
		len(r.CapabilityEvidence) != 1 || !strings.HasPrefix(r.CapabilityEvidence[protocol.CapGit], "git git") || len(r.CapabilityEvidence[protocol.CapGit]) > 2*maxEvidence {
		t.Errorf("the runner is shown as %+v", r)
	}
	welcome, _ := m.Welcome()
	if welcome.Runner != mac.Runner.ID || welcome.Version != "test" || len(welcome.Leases) != 0 {
		t.Errorf("welcome %+v", welcome)
	}
	id := w.submit(mac.Runner.Target)
	if o := m.pull("r1"); o.Run != id || o.Job != id || o.Epoch != 1 || o.Token == "" || o.TTL <= 0 {
		t.Errorf("offer %+v", o.Attempt)
	}
	m.Close(link.CloseReason{Code: link.CloseNormal})
	w.until("it is shown as away", func() bool { return !w.runner(mac.Runner.ID).Online && w.g.Sessions() == 0 })
}

// TestF35_BadCredentials: a credential that is not good is refused at the door.
func TestF35_BadCredentials(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	if _, err := w.runners.Revoke(w.ctx(), "default", "ann", mac.Runner.ID); err != nil {
		t.Fatal(err)
	}
	var revoked *link.RevokedError
	if _, err := w.dial(mac); !errors.As(err, &revoked) || revoked.Code != "revoked" {
		t.Errorf("a revoked runner: %v", err)
	}
	if _, err := w.dial(protocol.Paired{Token: "rnr_moon"}); !errors.As(err, &revoked) || revoked.Code != string(protocol.CodeUnauthenticated) {
		t.Errorf("an unknown token: %v", err)
	}
}

// TestP3_Takeover: which process a runner's leases are with after another one has
// come with its credential. Only one that has certainly replaced the holder gives
// them back; one on another machine waits until they run out.
func TestP3_Takeover(t *testing.T) {
	for name, row := range map[string]struct {
		next  func(*link.Hello)
		gone  bool // the first one's session has ended before
		taken bool // the first one is told that it was taken over
		back  bool // its lease is given back
	}{
		"the same process, reconnected":         {next: as("process-1", "host-1")},
		"the same process, after its loss":      {next: as("process-1", "host-1"), gone: true},
		"restarted, before the loss is noticed": {next: as("process-2", "host-1"), taken: true, back: true},
		"restarted":                             {next: as("process-2", "host-1"), gone: true, back: true},
		"another machine":                       {next: as("process-2", "host-2"), taken: true},
		"another machine, after the first left": {next: as("process-2", "host-2"), gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			mac := w.pair("ann", "mac")
			id := w.submit(mac.Runner.Target)
			first := w.connect(mac)
			first.begin("r1")
			if row.gone {
				first.Close(link.CloseReason{Code: link.CloseNormal})
				w.until("the first one is gone", func() bool { return w.g.connected(mac.Runner.ID) == nil })
			}
			second := w.connect(mac, row.next)
			err := first.over("another process came")
			var taken *link.TakenOverError
			if errors.As(err, &taken) != row.taken {
				t.Errorf("the first session ended with %v, taken over: want %v", err, row.taken)
			}
			if r := w.runner(mac.Runner.ID); !r.Online {
				t.Errorf("the runner is shown as away: %+v", r)
			}
			if row.back {
				w.tells(id, "queued, 1 released")
				if got := second.begin("r2"); got.Epoch != 2 {
					t.Errorf("the second process got %+v", got)
				}
				return
			}
			w.tells(id, "running, 1 active")
			// The one whose wish it was may ask again, as it would when the answer was lost.
			if got := second.pull("r1"); got.Epoch != 1 {
				t.Errorf("asked again, the answer is %+v", got.Attempt)
			}
		})
	}
}

// TestP3_TwoAtOnce: of processes that come at the same moment one is the runner: it
// is shown, it takes jobs, and the other ones are told.
func TestP3_TwoAtOnce(t *testing.T) {
	w := newWorld(t)
	for round := range 10 {
		mac := w.pair("ann", fmt.Sprint("mac", round))
		var all sync.WaitGroup
		machines := make([]*machine, 4)
		for i := range machines {
			all.Go(func() { machines[i], _ = w.dial(mac, as(fmt.Sprint("process-", i), "host-1")) })
		}
		all.Wait()
		alive := func() (n int, last *machine) {
			for _, m := range machines {
				if m != nil && m.Err() == nil {
					n, last = n+1, m
				}
			}
			return n, last
		}
		w.until("one is left", func() bool { n, _ := alive(); return n == 1 })
		if r := w.runner(mac.Runner.ID); !r.Online {
			t.Fatalf("round %d: the runner is connected and shown as away", round)
		}
		_, m := alive()
		id := w.submit(mac.Runner.Target)
		if got := m.begin("r"); got.Job != id {
			t.Errorf("round %d: the one that is left got %+v", round, got)
		}
	}
}

// TestP2_P3_WelcomeVerdicts: what a runner that comes back is told of each lease that
// it says it holds.
func TestP2_P3_WelcomeVerdicts(t *testing.T) {
	w := newWorld(t)
	mac, other := w.pair("ann", "mac"), w.pair("ann", "other")
	stands, cancelled, finished := w.submit(mac.Runner.Target), w.submit(mac.Runner.Target), w.submit(mac.Runner.Target)
	foreign := w.submit(other.Runner.Target)
	m := w.connect(mac)
	refs := []link.AttemptRef{m.begin("r1"), m.begin("r2"), m.begin("r3"), w.connect(other).begin("r4")}
	if err := w.runs.GiveBack(w.ctx(), ref(refs[2]), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.runs.Cancel(w.ctx(), ann, cancelled); err != nil {
		t.Fatal(err)
	}
	if c := <-m.cancels; c.Job != cancelled || c.Epoch != 1 || c.Reason != "by ann" {
		t.Errorf("the holder was told %+v", c)
	}
	again := w.connect(mac, holding(refs...))
	welcome, _ := again.Welcome()
	got := map[string]link.Standing{}
	for _, v := range welcome.Leases {
		got[v.Job] = v.Standing
		if (v.TTL > 0) == (v.Standing == link.Stale) {
			t.Errorf("%s stands for %s", v.Standing, v.TTL)
		}
	}
	for id, want := range map[string]link.Standing{stands: link.Stands, cancelled: link.Cancelled, finished: link.Stale, foreign: link.Stale} {
		if got[id] != want {
			t.Errorf("verdict on %s: %q, want %q", id, got[id], want)
		}
	}
	// The next heartbeat says the same.
	ack, err := again.Heartbeat(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range ack.Leases {
		if v.Standing != got[v.Job] {
			t.Errorf("the heartbeat's verdict on %s is %q, the welcome's was %q", v.Job, v.Standing, got[v.Job])
		}
	}
}

// TestF35_RevokedWhileItWorks: a revoked runner's session ends at once, and its
// leases are given to nobody before they have run out.
func TestF35_RevokedWhileItWorks(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	held := m.begin("r1")
	w.revoke(mac.Runner.ID)
	m.wantRevoked()
	if err := w.runs.GiveBack(w.ctx(), ref(held), "x"); err == nil {
		t.Error("a revoked runner's word about its lease was taken")
	}
	w.tells(id, "running, 1 active")
	if x, err := w.q.Explain(w.ctx(), id); err != nil || x.Why != lease.WhyFenced {
		t.Errorf("the run is %s (%s), %v", x.Why, x.Sentence, err)
	}
}

// TestP3_AHeartbeatConfirmsAStart: the acknowledgement of a start was lost, and the runner
// works and renews. The queue, which would give the run away, hears it from the heartbeat.
func TestP3_AHeartbeatConfirmsAStart(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	offer := m.pull("r1")
	w.tells(id, "queued, 1 active")
	held := []link.HeldLease{{AttemptRef: offer.AttemptRef, Started: true}}
	ack, err := w.g.Heartbeat(w.ctx(), w.g.connected(mac.Runner.ID).link, link.Heartbeat{Leases: held})
	if err != nil || len(ack.Leases) != 1 || ack.Leases[0].Standing != link.Stands {
		t.Errorf("the heartbeat was answered %+v, %v", ack, err)
	}
	w.tells(id, "running, 1 active")
}

// TestP3_AHelloConfirmsAStart: the same, when the runner comes back.
func TestP3_AHelloConfirmsAStart(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	offer := m.pull("r1")
	m.Close(link.CloseReason{Code: link.CloseNormal})
	w.connect(mac, func(h *link.Hello) { h.Leases = []link.HeldLease{{AttemptRef: offer.AttemptRef, Started: true}} })
	w.tells(id, "running, 1 active")
}

// TestF35_P4_ARestartForgetsNoRevocation: a coordinator that ended between the revocation and
// the fence says so when it is back.
func TestF35_P4_ARestartForgetsNoRevocation(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	m.begin("r1")
	if err := w.store.RevokeRunner(w.ctx(), "default", mac.Runner.ID, protocol.At(time.Now())); err != nil {
		t.Fatal(err)
	}
	if err := w.g.Recover(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if x, err := w.q.Explain(w.ctx(), id); err != nil || x.Why != lease.WhyFenced {
		t.Errorf("the run is %s (%s), %v", x.Why, x.Sentence, err)
	}
}

// TestF35_P3_RevokedHolderOfAPayload: its credential is dead, and its run goes to nobody else
// before somebody says that nothing of the payload runs.
func TestF35_P3_RevokedHolderOfAPayload(t *testing.T) {
	w := newWorld(t)
	id := w.submit(w.pair("ann", "mac").Runner.Target)
	ann := auth.Principal{Workspace: "default", Subject: "ann", Roles: []string{protocol.RoleMember}}
	out, err := w.runs.HandOut(w.ctx(), ann, id, protocol.PayloadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	holder, err := w.runners.Resolve(w.ctx(), out.RunnerToken)
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.dialAs(link.Secret(out.RunnerToken))
	if err != nil {
		t.Fatal(err)
	}
	w.revoke(holder.ID)
	m.wantRevoked()
	if _, err := w.dialAs(link.Secret(out.RunnerToken)); err == nil {
		t.Error("the credential of the payload is good still")
	}
	if err := w.g.Recover(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if x, err := w.q.Explain(w.ctx(), id); err != nil || x.State != lease.Leased || x.Why == lease.WhyFenced {
		t.Errorf("the run is %s (%s), %v; want its lease to stand", x.Why, x.Sentence, err)
	}
	if err := w.runs.TakeBack(w.ctx(), ann, id); err != nil {
		t.Errorf("take back: %v", err)
	}
	w.tells(id, "queued, 1 released")
}

// TestF35_RevokedBetweenLeaseAndStart: a runner that is revoked after it was given a run
// and before it has said that it begins may not begin.
func TestF35_RevokedBetweenLeaseAndStart(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	offer := m.pull("r1")
	w.revoke(mac.Runner.ID)
	if standing, err := offer.Started(w.ctx()); err == nil && standing == link.Stands {
		t.Error("the start was acknowledged")
	}
	m.wantRevoked()
	w.tells(id, "queued, 1 active")
	if x, err := w.q.Explain(w.ctx(), id); err != nil || x.Why != lease.WhyFenced {
		t.Errorf("the run waits because %s (%s), %v", x.Why, x.Sentence, err)
	}
}

// TestF35_RevokeRacesHello: whichever comes first, a runner that was revoked has no
// session in the end and gets no job.
func TestF35_RevokeRacesHello(t *testing.T) {
	w := newWorld(t)
	for round := range 20 {
		mac := w.pair("ann", fmt.Sprint("mac", round))
		var m *machine
		var all sync.WaitGroup
		all.Go(func() { m, _ = w.dial(mac) })
		all.Go(func() {
			if ok, err := w.runners.Revoke(w.ctx(), "default", "ann", mac.Runner.ID); !ok || err != nil {
				t.Errorf("revoke: %v, %v", ok, err)
			}
		})
		all.Wait()
		if m != nil {
			var revoked *link.RevokedError
			if err := m.over("it was revoked"); !errors.As(err, &revoked) {
				t.Errorf("round %d: the session ended with %v", round, err)
			}
		}
		w.until("no session is left", func() bool { return w.g.connected(mac.Runner.ID) == nil })
		w.until("the queue knows of none", func() bool { // it is told a moment later
			known, err := w.q.Runners(w.ctx())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range known {
				if r.ID == "" {
					t.Errorf("round %d: the queue has %+v", round, r)
				}
			}
			return !slices.ContainsFunc(known, func(r lease.RunnerStatus) bool { return r.ID == mac.Runner.ID && r.Online })
		})
	}
}

// TestF35_ARefusedHelloIsNoRunner: an audience that grows while a refused session
// is on its way out tells the queue of nobody.
func TestF35_ARefusedHelloIsNoRunner(t *testing.T) {
	w := newWorld(t)
	at := w.g.seat("rnr_refused")
	w.g.mu.Lock()
	at.session = &session{workspace: "default"} // as Hello leaves it when it refuses
	w.g.mu.Unlock()
	w.g.audience("default")
	known, err := w.q.Runners(w.ctx())
	if err != nil || len(known) != 0 {
		t.Errorf("the queue has %+v, %v", known, err)
	}
	w.g.mu.Lock()
	at.session = nil
	w.g.mu.Unlock()
}

// TestP2_ReplacedSession: what a session asks for after another one has taken its
// place is refused, so that nobody is leased to a process that has been told to go.
func TestP2_ReplacedSession(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	held := w.connect(mac).begin("r1")
	old := w.g.connected(mac.Runner.ID).link
	w.connect(mac, holding(held))
	if _, err := w.g.Started(w.ctx(), old, held); remote(err) != link.CodeReplaced {
		t.Errorf("started: %v", err)
	}
	if _, _, err := w.g.Evidence(w.ctx(), old, held); remote(err) != link.CodeReplaced {
		t.Errorf("evidence: %v", err)
	}
	answered := make(chan error, 1)
	w.g.Pull(w.ctx(), old, link.PullRequest{Request: "r2"}, func(_ *link.Attempt, err error) { answered <- err })
	if err := <-answered; remote(err) != link.CodeReplaced {
		t.Errorf("pull: %v", err)
	}
	w.g.Closed(old, link.ErrClosed) // late news of its end
	if !w.runner(mac.Runner.ID).Online || w.g.connected(mac.Runner.ID) == nil {
		t.Error("the end of the replaced session ended the newer one")
	}
	w.tells(id, "running, 1 active")
}

// TestP9_TheAudienceGrowsWhileAPullWaits: a shared runner that waits serves whoever
// submits to the workspace for the first time, at once.
func TestP9_TheAudienceGrowsWhileAPullWaits(t *testing.T) {
	w := newWorld(t, func(w *world) { w.local = true })
	shared := w.connect(w.pair(pairing.WorkspaceOwner("default"), "shared"))
	offers := make(chan *link.Offer, 1)
	go func() {
		if o, err := shared.Pull(w.ctx(), link.PullRequest{Request: "r1"}); err == nil {
			offers <- o
		} else {
			t.Errorf("pull: %v", err)
			close(offers)
		}
	}()
	w.until("the pull waits", func() bool { s, err := w.q.Stats(w.ctx()); return err == nil && s.Waiting == 1 })
	id := w.submit("")
	if o := <-offers; o == nil || o.Run != id {
		t.Errorf("the waiting runner was offered %+v, want %s", o, id)
	}
	// A runner inside the process serves the runtime local, of any workspace.
	inside := w.pair("local:", "inside")
	w.g.Local(inside.Runner.ID)
	m := w.connect(inside)
	id = w.submit("local")
	if o := m.begin("r2"); o.Job != id {
		t.Errorf("the local runner got %+v, want %s", o, id)
	}
	if r, err := w.runs.Get(w.ctx(), ann, id); err != nil || r.Provenance.RanOn != "local" || r.Provenance.Attestation != "managed" {
		t.Errorf("provenance %+v, %v", r.Provenance, err)
	}
}

// TestP4_Drain: a coordinator that leaves ends the waiting pulls and the sessions,
// says when to come back, takes nobody in, and leaves the leases as they are.
func TestP4_Drain(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	m.begin("r1")
	pulled := make(chan error, 1)
	go func() {
		_, err := m.Pull(w.ctx(), link.PullRequest{Request: "r2"})
		pulled <- err
	}()
	w.until("the pull waits", func() bool { s, err := w.q.Stats(w.ctx()); return err == nil && s.Waiting == 1 })
	if err := w.g.Shutdown(w.ctx(), 7*time.Second); err != nil {
		t.Fatalf("shutdown: %v", err)
	}
	var draining *link.DrainingError
	if err := m.over("the coordinator leaves"); !errors.As(err, &draining) || draining.RetryAfter != 7*time.Second {
		t.Errorf("the session ended with %v", err)
	}
	if err := <-pulled; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the waiting pull ended with %v", err)
	}
	if _, err := w.dial(mac); err == nil {
		t.Error("a coordinator that leaves took a runner in")
	}
	if s, err := w.q.Stats(w.ctx()); err != nil || s.Waiting != 0 {
		t.Errorf("%d pulls wait at the queue, %v", s.Waiting, err)
	}
	w.tells(id, "running, 1 active")
}

// TestP15_StatusOfALyingRunner: what a runner says of itself is shown within bounds.
func TestP15_StatusOfALyingRunner(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	m := w.connect(mac)
	for said, want := range map[link.Status]protocol.RunnerStatus{
		{Text: "updating", Level: "warn"}:                 {Text: "updating", Level: "warn"},
		{Text: "hello"}:                                   {Text: "hello", Level: "info"},
		{Text: "hello", Level: "<b>"}:                     {Text: "hello", Level: "info"},
		{Text: strings.Repeat("x", 9999), Level: "error"}: {Text: protocol.Clip(strings.Repeat("x", 9999), 200), Level: "error"},
	} {
		if err := m.RunnerSession.Status(w.ctx(), said); err != nil {
			t.Fatal(err)
		}
		if got := w.runner(mac.Runner.ID).Status; got == nil || got.Text != want.Text || got.Level != want.Level {
			t.Errorf("said %+v, shown %+v, want %+v", said, got, want)
		}
	}
}

// TestF6_DegradedRunner: a runner that takes an attempt and does not start it is
// shown as degraded, busy only as long as it holds it.
func TestF6_DegradedRunner(t *testing.T) {
	w := newWorld(t, func(w *world) { w.cfg = lease.Config{Limit: &lease.Limit{}, StartAck: 300 * time.Millisecond} })
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	m.pull("r1")
	if r := w.runner(mac.Runner.ID); r.Busy > 1 {
		t.Errorf("busy with %d", r.Busy)
	}
	w.until("it is shown as degraded", func() bool {
		r := w.runner(mac.Runner.ID)
		return r.Status != nil && strings.Contains(r.Status.Text, "degraded: took "+id) && r.Busy == 0
	})
	w.tells(id, "queued, 1 expired")
	if err := m.RunnerSession.Drain(w.ctx(), link.Drain{Reason: "lunch"}); err != nil {
		t.Fatal(err)
	}
	if s := w.runner(mac.Runner.ID).Status; s == nil || s.Text != "draining: lunch" {
		t.Errorf("status %+v", s)
	}
}
