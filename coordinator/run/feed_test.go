package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/protocol"
)

// reader follows the feed of a workspace and keeps what it sees.
type reader struct {
	events []protocol.FeedEvent
	leave  context.CancelFunc
}

func (w *world) read(workspace, after string) *reader {
	w.t.Helper()
	ctx, leave := cancelled(w)
	events, err := w.s.Follow(ctx, auth.Principal{Subject: "ann", Workspace: workspace}, after)
	if err != nil {
		w.t.Fatalf("follow after %q: %v", after, err)
	}
	r := &reader{leave: leave}
	go func() {
		for e := range events {
			r.events = append(r.events, e)
		}
	}()
	synctest.Wait()
	return r
}

// story is what came, in short: runs by status, runners by how they are.
func (r *reader) story(from int) string {
	var b strings.Builder
	for _, e := range r.events[from:] {
		fmt.Fprintf(&b, "%s", e.Kind)
		for _, run := range e.Runs {
			fmt.Fprintf(&b, " %s", run.Status)
		}
		for _, runner := range e.Runners {
			fmt.Fprintf(&b, " %s online=%t busy=%d", runner.Label, runner.Online, runner.Busy)
		}
		if len(e.Removed) > 0 {
			fmt.Fprintf(&b, " removed %d", len(e.Removed))
		}
		for _, p := range e.Pools {
			fmt.Fprintf(&b, " %s queued=%d", p.Runtime, p.Queued)
		}
		if e.Reason != "" {
			fmt.Fprintf(&b, " %s", e.Reason)
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}

func settle() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// A reader sees what changes in its workspace, each once per pause, and nothing of
// another.
func TestFeed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r, other := w.read("default", ""), w.read("other", "")
		mac := w.pair("ann", "mac")
		settle()
		if got := r.story(0); got != "hello\nrunners mac online=false busy=0" {
			t.Fatalf("after a pairing: %s", got)
		}
		record, err := w.runners.Get(t.Context(), "default", mac.Runner.ID)
		if err != nil {
			t.Fatal(err)
		}
		detach := w.runners.Attach(record, pairing.Hello{Workspace: "default", Slots: 2})
		w.runners.Took(mac.Runner.ID, 1)
		settle()
		seen := len(r.events)
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		settle()
		l := w.begin(mac) // leased and started within one pause
		settle()
		w.finish(mac, l.Ref, passed(true))
		settle()
		if got := r.story(2); got != "runners mac online=true busy=1\nruns queued\nruns running\nruns succeeded" {
			t.Errorf("the run's story: %s", got)
		}
		if last := r.events[len(r.events)-1].Runs[0]; last.ID != id || last.Verdict == nil || !*last.Verdict || last.CaseSpec != nil {
			t.Errorf("the last row: %s, want the record as lists have it", dump(last))
		}
		// Behind any event the rest comes, once.
		for i := seen - 1; i < len(r.events); i++ {
			again := w.read("default", r.events[i].ID)
			settle()
			if i == len(r.events)-1 && again.story(0) != "hello" {
				t.Errorf("behind the last event: %s, want nothing more", again.story(0))
			}
			if i < len(r.events)-1 && again.story(0) != "hello\nruns succeeded" {
				t.Errorf("behind event %d: %s, want the run as it is now", i, again.story(0))
			}
			again.leave()
		}
		w.runners.Seen(mac.Runner.ID, pairing.Beat{Busy: 1})
		settle()
		n := len(r.events)
		w.runners.Seen(mac.Runner.ID, pairing.Beat{Busy: 1})
		settle()
		if got := r.story(n); got != "" {
			t.Errorf("after a beat like the last one: %s, want silence", got)
		}
		detach()
		if _, err := w.runners.Revoke(t.Context(), "default", "", mac.Runner.ID); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := r.story(n); got != "runners removed 1" {
			t.Errorf("after a revocation: %s", got)
		}
		if got := other.story(0); got != "hello" {
			t.Errorf("another workspace saw %s", got)
		}
	})
}

// Pools come whole when their numbers change.
func TestFeedPools(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if _, err := w.runtimes.Register(t.Context(), "default", "ann", protocol.RuntimeSpec{ID: "lab", Version: "1", Kind: protocol.RuntimeLocal}); err != nil {
			t.Fatal(err)
		}
		r := w.read("default", "")
		w.submit(request("lab"))
		settle()
		if got := r.story(0); got != "hello\nruns queued\npools lab queued=1" {
			t.Errorf("after a submit: %s", got)
		}
	})
}

// Who cannot go on where it was is told to read its lists anew, and then follows.
func TestFeedReset(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		target := protocol.TargetSelfPrefix + mac.Runner.ID
		r := w.read("default", "")
		first := r.events[0].ID
		flood := func(n int) {
			changes := make([]change, n)
			for i := range changes {
				changes[i] = change{workspace: "noisy", id: fmt.Sprint("run", i)}
			}
			w.s.feed.add(changes...)
		}
		flood(feedSize + 1)
		late := w.read("default", first)
		if got := late.story(0); got != "hello\nreset too_old" {
			t.Errorf("from a place that is gone: %s", got)
		}
		w.submit(request(target))
		settle()
		if got := late.story(2); got != "runs queued" {
			t.Errorf("after the reset: %s", got)
		}
		// One that did not read for a whole ring is reset as well, and nothing was kept for it.
		ctx, leave := cancelled(w)
		events, err := w.s.Follow(ctx, ann, "")
		if err != nil {
			t.Fatal(err)
		}
		<-events // hello
		w.submit(request(target))
		settle() // it is about to send the run, and nobody reads
		flood(feedSize + 1)
		w.submit(request(target))
		settle()
		var kinds []string
		for len(kinds) < 2 {
			kinds = append(kinds, (<-events).Kind)
		}
		if !slices.Equal(kinds, []string{protocol.FeedRuns, protocol.FeedReset}) {
			t.Errorf("a slow reader got %v, want what was on its way and a reset", kinds)
		}
		leave()
		last := late.events[len(late.events)-1].ID
		w.restart()
		if got := w.read("default", last).story(0); got != "hello\nreset restart" {
			t.Errorf("after a restart: %s", got)
		}
		for _, bad := range []string{"x", "-1", "abc-", "abc-x", "abc--5"} {
			if _, err := w.s.Follow(t.Context(), ann, bad); code(err) != protocol.CodeBadRequest {
				t.Errorf("follow after %q: %v, want a 400", bad, err)
			}
		}
	})
}

// The ring gives each change of a workspace once, in order, across its end.
func TestFeedRing(t *testing.T) {
	t.Parallel()
	f := newFeed()
	from := f.next
	for i := range feedSize + 100 {
		f.add(change{workspace: []string{"a", "b"}[i%2], id: fmt.Sprint(i)})
	}
	if _, _, _, lost, _ := f.changes("a", from); !lost {
		t.Error("from before the ring: not lost")
	}
	runs, _, next, lost, wait := f.changes("a", f.next-6)
	n := feedSize + 100
	if want := []string{fmt.Sprint(n - 6), fmt.Sprint(n - 4), fmt.Sprint(n - 2)}; lost || wait != nil || !slices.Equal(runs, want) {
		t.Errorf("changes %v, lost %t; want %v", runs, lost, want)
	}
	if _, _, _, _, wait = f.changes("a", next); wait == nil {
		t.Fatal("nothing to wait for at the end")
	}
	f.add(change{workspace: "b", id: "x"})
	select {
	case <-wait:
		t.Error("woken by another workspace")
	default:
	}
	f.add(change{workspace: "a", id: "x"}, change{workspace: "a", id: "y"}, change{workspace: "a", id: "x"})
	<-wait
	if runs, _, _, _, _ = f.changes("a", next); !slices.Equal(runs, []string{"y", "x"}) {
		t.Errorf("changes %v, want each once, at its last place", runs)
	}
}
