package run

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// viewer follows a run and keeps what it sees.
type viewer struct {
	events []protocol.LiveEvent
	ended  bool
	leave  context.CancelFunc
}

func (w *world) view(id, after string) *viewer {
	w.t.Helper()
	ctx, leave := cancelled(w)
	events, err := w.s.Live(ctx, ann, id, protocol.LiveQuery{Lanes: []string{protocol.LaneTrace, protocol.LaneLog}, After: after})
	if err != nil {
		w.t.Fatalf("live after %q: %v", after, err)
	}
	v := &viewer{leave: leave}
	go func() {
		for e := range events {
			v.events = append(v.events, e)
		}
		v.ended = true
	}()
	synctest.Wait()
	return v
}

// lanes are what the events after the first n have of each lane, and the statuses.
func (v *viewer) lanes(n int) (trace, log, statuses string) {
	for _, e := range v.events[n:] {
		switch e.Kind {
		case protocol.LiveTrace:
			trace += nameOf(e.Events) + " "
		case protocol.LiveLog:
			log += string(e.Bytes)
		default:
			statuses += fmt.Sprintf("%s:%s ", e.Kind, e.Status)
		}
	}
	return trace, log, strings.TrimSpace(statuses)
}

// TestP11_LiveResumesAtEveryEvent: whoever reconnects with the id of any event gets
// what came after it, once, also when another attempt has begun since.
func TestP11_LiveResumesAtEveryEvent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		v := w.view(id, "")
		l := w.begin(mac)
		w.append(l.Ref, protocol.ChannelTrace, line("a0"))
		w.log(l.Ref, "first ")
		synctest.Wait()
		time.Sleep(61 * time.Second)
		l = w.begin(mac)
		synctest.Wait()
		begins := len(v.events)
		for i := range 3 {
			w.append(l.Ref, protocol.ChannelTrace, line(fmt.Sprint("b", i)))
			w.log(l.Ref, fmt.Sprint("log", i, " "))
			synctest.Wait()
		}
		resumed := map[int]*viewer{}
		for i := range v.events {
			resumed[i] = w.view(id, v.events[i].ID)
		}
		w.append(l.Ref, protocol.ChannelTrace, line("b3"))
		w.finish(mac, l.Ref, passed(true))
		synctest.Wait()

		trace, log, statuses := v.lanes(0)
		if trace != "a0 b0 b1 b2 b3 " || log != "first log0 log1 log2 " ||
			statuses != "status:queued status:running status:queued status:running status:succeeded end:succeeded" || !v.ended {
			t.Fatalf("the stream had trace %q, log %q, %q, ended %v", trace, log, statuses, v.ended)
		}
		for i := range v.events {
			// Of the attempt that stands nothing is missing, of the other nothing comes.
			wantTrace, wantLog, _ := v.lanes(max(i+1, begins))
			seen := resumed[i]
			if seen == nil { // came after the streams were resumed: after the end, then
				seen = w.view(id, v.events[i].ID)
			}
			gotTrace, gotLog, gotStatuses := seen.lanes(0)
			if gotTrace != wantTrace || gotLog != wantLog || !seen.ended || !strings.HasSuffix(gotStatuses, "status:succeeded end:succeeded") {
				t.Errorf("after event %d (%s %s): trace %q, log %q, %q, ended %v; want %q, %q", i, v.events[i].Kind, v.events[i].ID,
					gotTrace, gotLog, gotStatuses, seen.ended, wantTrace, wantLog)
			}
			late := w.view(id, v.events[i].ID)
			if gotTrace, gotLog, _ := late.lanes(0); gotTrace != wantTrace || gotLog != wantLog || !late.ended {
				t.Errorf("after event %d, when all is over: trace %q, log %q, ended %v; want %q, %q", i, gotTrace, gotLog, late.ended, wantTrace, wantLog)
			}
		}
		// Another coordinator process knows the ids as well.
		w.restart()
		again := w.view(id, v.events[begins].ID)
		wantTrace, wantLog, _ := v.lanes(begins + 1)
		if gotTrace, gotLog, _ := again.lanes(0); gotTrace != wantTrace || gotLog != wantLog || !again.ended {
			t.Errorf("after a restart: trace %q, log %q, ended %v; want %q, %q", gotTrace, gotLog, again.ended, wantTrace, wantLog)
		}
	})
}

// TestP11_LiveTellsTheEndLast: who sees that a run is over has all of its trace.
func TestP11_LiveTellsTheEndLast(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		ctx, _ := cancelled(w)
		events, err := w.s.Live(ctx, ann, id, protocol.LiveQuery{Lanes: []string{protocol.LaneLife, protocol.LaneTrace}})
		if err != nil {
			t.Fatal(err)
		}
		const steps = 50
		for i := range steps { // nobody reads meanwhile
			w.append(l.Ref, protocol.ChannelTrace, line(fmt.Sprint("a", i)))
			synctest.Wait()
		}
		w.finish(mac, l.Ref, passed(true))
		synctest.Wait()
		seen, over := 0, false
		for e := range events {
			if e.Kind == protocol.LiveLife {
				over = over || e.Run.Status.Terminal()
			}
			if e.Kind != protocol.LiveTrace {
				continue
			}
			seen += len(e.Events)
			if over {
				t.Fatalf("step %d of %d came after the run was said to be over", seen, steps)
			}
		}
		if !over || seen != steps {
			t.Errorf("over: %v, with %d of %d steps", over, seen, steps)
		}
	})
}

// TestP11_LiveEnds: a stream ends with the run, however the run ends, and says how.
func TestP11_LiveEnds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		edit func(*protocol.RunRequest)
		do   func(w *world, id string, h Holder)
		want string
	}{
		"cancelled in the queue": {do: func(w *world, id string, h Holder) { w.cancel(id) },
			want: "status:queued status:failed end:failed"},
		"rejected": {edit: beforeStart, do: func(w *world, id string, h Holder) { w.decide(id, false, "") },
			want: "status:suspended status:failed end:failed"},
		"lost without a byte": {do: func(w *world, id string, h Holder) { w.begin(h); synctest.Wait(); time.Sleep(61 * time.Second) },
			want: "status:queued status:running status:failed end:failed"},
		"never started": {do: func(w *world, id string, h Holder) { w.take(h); time.Sleep(31 * time.Second) },
			want: "status:queued status:failed end:failed"},
		"unschedulable": {do: func(w *world, id string, h Holder) { time.Sleep(25 * time.Hour) },
			want: "status:queued status:failed end:failed"},
		"with a question": {do: func(w *world, id string, h Holder) {
			l := w.begin(h)
			synctest.Wait()
			w.ask(h, l.Ref, "q1", "May I?")
			w.decide(id, true, "")
			synctest.Wait()
			w.finish(h, l.Ref, passed(true))
		}, want: "status:queued status:running status:suspended status:running status:succeeded end:succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				edit := row.edit
				if edit == nil {
					edit = func(*protocol.RunRequest) {}
				}
				id := w.submit(request(protocol.TargetSelfPrefix+mac.Runner.ID, edit))
				v := w.view(id, "")
				row.do(w, id, mac)
				synctest.Wait()
				if _, _, statuses := v.lanes(0); statuses != row.want || !v.ended {
					t.Errorf("saw %q, ended %v; want %q", statuses, v.ended, row.want)
				}
				// Who comes after the end is told the end.
				after := w.view(id, "")
				if _, _, statuses := after.lanes(0); !strings.HasSuffix(row.want, statuses) || !after.ended {
					t.Errorf("afterwards saw %q, ended %v", statuses, after.ended)
				}
			}, func(w *world) { w.cfg.MaxAttempts, w.cfg.MaxUnstarted = 1, 1 })
		})
	}
}

// TestF25_ALeaverEndsNobodyElse: who leaves a stream leaves alone, and leaves
// nothing behind.
func TestF25_ALeaverEndsNobodyElse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		stays, leaves := w.view(id, ""), w.view(id, "")
		w.log(l.Ref, "one ")
		synctest.Wait()
		leaves.leave()
		synctest.Wait()
		if !leaves.ended {
			t.Error("the stream of who left goes on")
		}
		w.log(l.Ref, "two ")
		w.append(l.Ref, protocol.ChannelTrace, line("a"))
		synctest.Wait()
		if trace, log, _ := stays.lanes(0); trace != "a " || log != "one two " || stays.ended {
			t.Errorf("who stayed saw trace %q, log %q, ended %v", trace, log, stays.ended)
		}
		stays.leave()
		synctest.Wait()
		w.s.watch.mu.Lock()
		defer w.s.watch.mu.Unlock()
		if n := len(w.s.watch.waiting); n != 0 {
			t.Errorf("%d runs are watched by nobody", n)
		}
	})
}

// TestP15_LiveRefusesWhatIsNoID: an id that the stream has not given is refused, and
// one that is beyond what is there waits for it.
func TestP15_LiveRefusesWhatIsNoID(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		for _, bad := range []string{"x", "1", "1-2", "1-2-3-4", "1-2-3x", "-1-2-3", "1--2-3", "01-2-3", "1-2-99999999999999999999", " 1-2-3"} {
			if _, err := w.s.Live(t.Context(), ann, id, protocol.LiveQuery{After: bad}); code(err) != protocol.CodeBadRequest {
				t.Errorf("after %q: %v, want BAD_REQUEST", bad, err)
			}
		}
		// An attempt that there never was: from the start of the one that is.
		v := w.view(id, "9-100-100")
		l := w.begin(mac)
		w.log(l.Ref, "one ")
		w.finish(mac, l.Ref, passed(true))
		synctest.Wait()
		if _, log, _ := v.lanes(0); log != "one " || !v.ended {
			t.Errorf("after an id of another attempt: log %q, ended %v", log, v.ended)
		}
	})
}

// log stores output with the line of the index that says whose it is.
func (w *world) log(ref lease.Ref, text string) {
	w.t.Helper()
	a, err := w.evidence.Attempt(ref.Job, ref.Attempt)
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Close()
	at := a.Summary().Channels[protocol.ChannelLog]
	w.append(ref, protocol.ChannelLog, text)
	w.append(ref, protocol.ChannelLogIndex, dump(protocol.LogEntry{Offset: at, Bytes: int64(len(text)), Stream: protocol.StreamStdout})+"\n")
}
