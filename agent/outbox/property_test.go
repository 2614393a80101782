package outbox

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestF23_StoredEqualsProduced writes while sessions come and go and the other
// end fails: by a fixed rhythm (each 7th append, as a broken log store does) or
// at random, before or after it has stored the bytes.
func TestF23_StoredEqualsProduced(t *testing.T) {
	t.Parallel()
	n := 0
	root := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		n++
		o, err := Open(Config{Dir: fmt.Sprintf("%s/%d", root, n), ChunkBytes: rapid.IntRange(1, 64).Draw(rt, "chunk"), RetryMin: 1, RetryMax: 1000})
		if err != nil {
			rt.Fatal(err)
		}
		defer o.Close()
		c := newCoordinator()
		every := rapid.IntRange(2, 7).Draw(rt, "fails every")
		after := rapid.Bool().Draw(rt, "after storing")
		appends := 0
		c.fault = func() (error, bool) {
			if appends++; appends%every == 0 {
				return errors.New("append failed"), after
			}
			return nil, false
		}
		want := map[string]map[string]string{}
		results := map[string]string{}
		end := ship(t, o, c)
		defer func() { end() }()
		for i := range rapid.IntRange(1, 4).Draw(rt, "runs") {
			run := fmt.Sprintf("run_%d", i)
			s := create(t, o, run, 7)
			channels := map[string]string{}
			for k := range rapid.IntRange(0, 30).Draw(rt, "writes") {
				channel := rapid.SampledFrom([]string{"log", "log.index", "trace"}).Draw(rt, "channel")
				text := fmt.Sprintf("%s line %d of %s\n", channel, k, run)
				write(t, s, channel, text)
				channels[channel] += text
				if rapid.IntRange(0, 9).Draw(rt, "cut") == 0 {
					end() // the link is cut
					end = ship(t, o, c)
				}
			}
			want[run+".7"], results[run+".7"] = channels, fmt.Sprintf(`{"caseId":%q}`, run)
			finish(t, s, results[run+".7"])
		}
		if err := o.Drained(t.Context()); err != nil {
			rt.Fatal(err)
		}
		end()
		for name, channels := range want {
			c.check(t, name, channels, results[name])
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// BenchmarkSmallRun is what one small run costs the runner's disk, with eight slots: four channels
// and a result, fsynced, sent and removed.
func BenchmarkSmallRun(b *testing.B) {
	o := open(b, Config{})
	c := newCoordinator()
	defer ship(b, o, c)()
	var runs atomic.Int64
	b.SetParallelism(8 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s := create(b, o, fmt.Sprintf("run_%d", runs.Add(1)), 1)
			for _, channel := range []string{"log", "log.index", "trace", "diff"} {
				write(b, s, channel, "a line of evidence, as a small run has it\n")
			}
			finish(b, s, `{"caseId":"c1"}`)
			await(b, "acknowledgement", s.Done())
		}
	})
}
