package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// TestP2_ResultsOnTheWire: each result gets its verdict on a stream of evidence, and
// the same verdict when it is sent again on a new one.
func TestP2_ResultsOnTheWire(t *testing.T) {
	for name, row := range map[string]struct {
		before   func(w *world, m *machine, held link.AttemptRef)
		result   *protocol.CaseResult
		standing link.Standing
		want     link.ResultStatus
		story    string
	}{
		"done": {result: done(), standing: link.Stands, want: link.ResultAccepted, story: "succeeded, 1 settled"},
		"retryable": {result: &protocol.CaseResult{Failure: &protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassInfra,
			Reason: protocol.ReasonImage, Code: protocol.CodeUpstreamError, Message: "no image", Retryable: true}},
			standing: link.Stands, want: link.ResultAccepted, story: "queued, 1 released"},
		"superseded": {before: func(w *world, m *machine, held link.AttemptRef) {
			if st, err := m.GiveBack(w.ctx(), held, link.GiveBack{Reason: "draining", Started: true}); err != nil || st != link.Stands {
				w.t.Fatalf("give back: %s, %v", st, err)
			}
			m.begin("r2")
		}, result: done(), standing: link.Stale, want: link.ResultStale, story: "running, 1 released late, 2 active"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			mac := w.pair("ann", "mac")
			id := w.submit(mac.Runner.Target)
			m := w.connect(mac)
			held := m.begin("r1")
			if row.before != nil {
				row.before(w, m, held)
			}
			send := func(first bool) {
				t.Helper()
				ev, err := m.OpenEvidence(w.ctx(), held)
				if err != nil {
					t.Fatal(err)
				}
				defer ev.Close()
				if first && ev.Standing() != row.standing {
					t.Errorf("the attempt is said to be %s, want %s", ev.Standing(), row.standing)
				}
				if err := ev.Send(w.ctx(), protocol.ChannelLog, ev.Resume(protocol.ChannelLog), []byte("hello\n")[ev.Resume(protocol.ChannelLog):]); first && err != nil {
					t.Fatalf("send: %v", err)
				}
				if ack, err := ev.Result(w.ctx(), document(t, row.result)); err != nil || ack.Status != row.want {
					t.Errorf("the result was answered %+v, %v; want %s", ack, err, row.want)
				}
				w.tells(id, row.story)
			}
			send(true)
			send(false)
			a, err := w.evidence.Attempt(id, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if sum := a.Summary(); !sum.Sealed || sum.Channels[protocol.ChannelLog] != 6 {
				t.Errorf("the evidence is %+v", sum)
			}
		})
	}
}

// TestP2_ForeignEvidence: evidence of an attempt that is not this runner's, or that
// there is not, is refused before a byte of it, and nothing is made for it.
func TestP2_ForeignEvidence(t *testing.T) {
	w := newWorld(t)
	mac, thief := w.pair("ann", "mac"), w.pair("ann", "thief")
	id := w.submit(mac.Runner.Target)
	held := w.connect(mac).begin("r1")
	m := w.connect(thief)
	for name, ref := range map[string]link.AttemptRef{
		"another runner's":             held,
		"another runner's, no token":   {Run: id, Job: id, Epoch: 1},
		"an attempt to come":           {Run: id, Job: id, Epoch: 2},
		"an unknown run":               {Run: "run_moon", Job: "run_moon", Epoch: 1},
		"a name that leaves the store": {Run: "../../x", Job: "../../x", Epoch: 1},
		"one run's job in another":     {Run: "run_moon", Job: id, Epoch: 1, Token: held.Token},
	} {
		if ev, err := m.OpenEvidence(w.ctx(), ref); remote(err) != string(protocol.CodeNotFound) {
			t.Errorf("%s: %v, %v; want NOT_FOUND", name, ev, err)
		}
	}
	for run := range w.evidence.Runs() {
		t.Errorf("there is evidence of %s", run)
	}
	w.tells(id, "running, 1 active")
}

// TestP2_AnswersAreTheAskersOwn: what a person answered is told to the runner whose
// job asked, and to no other.
func TestP2_AnswersAreTheAskersOwn(t *testing.T) {
	w := newWorld(t)
	mac, thief := w.pair("ann", "mac"), w.pair("bob", "thief")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	held := m.begin("r1")
	type heard struct {
		a   link.Answer
		err error
	}
	answers := make(chan heard, 1)
	go func() {
		a, err := m.Ask(w.ctx(), link.Ask{AttemptRef: held, ID: "q1", Question: "May I?"})
		answers <- heard{a, err}
	}()
	w.until("the run is suspended", func() bool { return strings.HasPrefix(w.story(id), "suspended") })
	if _, err := w.runs.Reject(w.ctx(), ann, id, protocol.Decision{Comment: "no"}); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got.err != nil || got.a.ID != "q1" || got.a.Approved || got.a.Comment != "no" {
		t.Errorf("heard %+v", got)
	}
	other := w.connect(thief)
	for name, ref := range map[string]link.AttemptRef{"with the token": held, "without": {Run: id, Job: id, Epoch: 1}} {
		if a, err := other.Ask(w.ctx(), link.Ask{AttemptRef: ref, ID: "q1", Question: "May I?"}); remote(err) != string(protocol.CodeNotFound) {
			t.Errorf("another runner, %s, heard %+v, %v", name, a, err)
		}
	}
	// When the run is over while its job asks, the job is told so.
	go func() {
		a, err := m.Ask(w.ctx(), link.Ask{AttemptRef: held, ID: "q2", Question: "Still?"})
		answers <- heard{a, err}
	}()
	w.until("the run is suspended", func() bool { return strings.HasPrefix(w.story(id), "suspended") })
	ev, err := m.OpenEvidence(w.ctx(), held)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ev.Result(w.ctx(), document(t, done())); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; remote(got.err) != string(link.Stale) {
		t.Errorf("after the end the job heard %+v", got)
	}
}

// A question whose asker is gone suspends the run no longer; one of a runner that has
// only lost its session does.
func TestAnAskerGoesAway(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	held := m.begin("r1")
	ask := func(ctx context.Context, id string) chan error {
		answers := make(chan error, 1)
		go func() {
			_, err := m.Ask(ctx, link.Ask{AttemptRef: held, ID: id, Question: "May I?"})
			answers <- err
		}()
		return answers
	}
	asks := func() bool { return strings.HasPrefix(w.story(id), "suspended") }
	ctx, withdraw := context.WithCancel(w.ctx())
	answers := ask(ctx, "q1")
	w.until("the run is suspended", asks)
	withdraw()
	if err := <-answers; !errors.Is(err, context.Canceled) {
		t.Errorf("the asker heard %v", err)
	}
	w.until("the run goes on", func() bool { return strings.HasPrefix(w.story(id), "running") })
	answers = ask(w.ctx(), "q2")
	w.until("the run is suspended again", asks)
	m.Close(link.CloseReason{Code: link.CloseNormal})
	if err := <-answers; err == nil {
		t.Error("an asker without a session heard an answer")
	}
	w.connect(mac)
	if !asks() {
		t.Errorf("after the loss of a session the run tells %s", w.story(id))
	}
}

// TestP11_ClosedChannels: bytes that the store does not take close their channel and
// nothing else: the result still comes through.
func TestP11_ClosedChannels(t *testing.T) {
	for name, row := range map[string]struct {
		sealed  bool
		channel string
		bytes   int
		code    string
	}{
		"after the result": {sealed: true, channel: protocol.ChannelLog, bytes: 4, code: "sealed"},
		"over the limit":   {channel: protocol.ChannelLog, bytes: 8 << 10, code: "over_limit"},
		"a name":           {channel: "../x", bytes: 4, code: "bad_name"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world) { w.ev.MaxAttemptBytes = 4 << 10 })
			mac := w.pair("ann", "mac")
			id := w.submit(mac.Runner.Target)
			m := w.connect(mac)
			held := m.begin("r1")
			if row.sealed {
				ev, err := m.OpenEvidence(w.ctx(), held)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := ev.Result(w.ctx(), document(t, done())); err != nil {
					t.Fatal(err)
				}
			}
			ev, err := m.OpenEvidence(w.ctx(), held)
			if err != nil {
				t.Fatal(err)
			}
			defer ev.Close()
			// A channel is closed by the answer to a chunk, which the sender sees with its next one.
			err = ev.Send(w.ctx(), row.channel, 0, make([]byte, row.bytes))
			if err == nil {
				if err = ev.Flush(w.ctx()); err == nil {
					err = ev.Send(w.ctx(), row.channel, int64(row.bytes), []byte("more"))
				}
			}
			var closed *link.ChannelClosedError
			if !errors.As(err, &closed) || closed.Code != row.code || closed.Channel != row.channel {
				t.Errorf("sending ended with %v, want %s closed as %s", err, row.channel, row.code)
			}
			if ack, err := ev.Result(w.ctx(), document(t, done())); err != nil || ack.Status != link.ResultAccepted {
				t.Errorf("the result was answered %+v, %v", ack, err)
			}
			w.tells(id, "succeeded, 1 settled")
		})
	}
}

// TestP8_AJobThatCannotBeRead: its runner is told, the attempt is given back and
// counts, so that the run comes to an end that says why.
func TestP8_AJobThatCannotBeRead(t *testing.T) {
	w := newWorld(t, func(w *world) { w.cfg = lease.Config{Limit: &lease.Limit{}, MaxAttempts: 2} })
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	w.garble(id)
	m := w.connect(mac)
	for _, want := range []string{"queued, 1 released", "failed, 1 released, 2 released"} {
		if o, err := m.Pull(w.ctx(), link.PullRequest{Request: want}); remote(err) != link.CodeInternal {
			t.Fatalf("pull: %+v, %v", o, err)
		}
		w.tells(id, want)
	}
	r, err := w.store.Run(w.ctx(), "default", id)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Failure; f == nil || !strings.Contains(f.Message, "its job could not be read") || f.Reason != protocol.ReasonLost {
		t.Errorf("the run failed with %+v", f)
	}
	// Other runs are not held up by it.
	next := w.submit(mac.Runner.Target)
	if got := m.begin("r"); got.Job != next {
		t.Errorf("the runner got %+v, want %s", got, next)
	}
}

// garble makes the job of a run one that cannot be read.
func (w *world) garble(id string) {
	w.t.Helper()
	err := w.db.Write(w.ctx(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`UPDATE run_specs SET spec = x'7b' WHERE seq = (SELECT seq FROM runs WHERE id = ?)`, id)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestP3_AnAttemptThatHasBegunIsNotTakenBack: its pull is repeated, and the job cannot be
// read any more. Its runner has it.
func TestP3_AnAttemptThatHasBegunIsNotTakenBack(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	held := m.begin("r1")
	w.garble(id)
	if o, err := m.Pull(w.ctx(), link.PullRequest{Request: "r1"}); remote(err) != link.CodeInternal {
		t.Fatalf("the pull again: %+v, %v", o, err)
	}
	if s := w.job(id); s.State != lease.Leased || s.Attempt != 1 || s.Failures != 0 {
		t.Errorf("the job is %+v, want it leased to who runs it", s)
	}
	ev, err := m.OpenEvidence(w.ctx(), held)
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := ev.Result(w.ctx(), document(t, done())); err != nil || ack.Status != link.ResultAccepted {
		t.Errorf("its result: %+v, %v", ack, err)
	}
	w.tells(id, "succeeded, 1 settled")
}

// TestP3_GivenBackOnTheWire: an attempt that is refused, withdrawn or given up is
// free at once; one whose result was lost counts; a stale one is told so.
func TestP3_GivenBackOnTheWire(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := w.submit(mac.Runner.Target)
	m := w.connect(mac)
	if st, err := m.pull("r1").Refuse(w.ctx(), link.GiveBack{Reason: "refused", Text: "no room"}); err != nil || st != link.Stands {
		t.Errorf("refused: %s, %v", st, err)
	}
	w.until("it waits again", func() bool { return w.job(id).State == lease.Queued })
	if s := w.job(id); s.Failures != 0 || s.Reason != "no room" {
		t.Errorf("refused: %+v", s)
	}
	held := m.begin("r2")
	if st, err := m.GiveBack(w.ctx(), held, link.GiveBack{Reason: link.GiveBackLost, Text: "disk full", Started: true}); err != nil || st != link.Stands {
		t.Errorf("lost: %s, %v", st, err)
	}
	if s := w.job(id); s.Failures != 1 {
		t.Errorf("lost: %+v", s)
	}
	if st, err := m.GiveBack(w.ctx(), held, link.GiveBack{Reason: "draining"}); err != nil || st != link.Stale {
		t.Errorf("given back twice: %s, %v", st, err)
	}
	o := m.pull("r3")
	if err := w.runs.GiveBack(w.ctx(), ref(o.AttemptRef), "x"); err != nil {
		t.Fatal(err)
	}
	if st, err := o.Started(w.ctx()); err != nil || st != link.Stale {
		t.Errorf("started a stale attempt: %s, %v", st, err)
	}
	w.tells(id, "queued, 1 released, 2 released, 3 released")
}
