package stopwatch

import (
	"sync"
	"testing"
	"time"
)

// clocks are two clocks that a test moves.
type clocks struct {
	mu sync.Mutex
	r  Reading
}

func (c *clocks) now() Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r
}

func (c *clocks) move(mono, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.r.Mono += mono
	c.r.Wall += wall
}

func TestF51_ElapsedIsTheLargerClock(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type step struct {
		mono, wall time.Duration
		pause      bool // what is set after the move
	}
	for _, c := range []struct {
		name        string
		steps       []step
		ran, frozen time.Duration
	}{
		{"both run", []step{{3 * s, 3 * s, false}}, 3 * s, 0},
		{"the machine slept nine hours", []step{{2 * s, 9 * time.Hour, false}}, 9 * time.Hour, 0},
		{"the wall clock was set back", []step{{5 * s, -time.Hour, false}}, 5 * s, 0},
		{"the wall clock was set forward and back", []step{{1 * s, time.Hour, false}, {1 * s, 2*s - time.Hour, false}}, 2 * s, 0},
		{"frozen", []step{{2 * s, 2 * s, true}, {60 * s, 60 * s, false}, {1 * s, 1 * s, false}}, 3 * s, 60 * s},
		{"slept while frozen", []step{{1 * s, 1 * s, true}, {1 * s, 8 * time.Hour, false}}, 1 * s, 8 * time.Hour},
		{"still frozen", []step{{1 * s, 1 * s, true}, {4 * s, 4 * s, true}}, 1 * s, 4 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var k clocks
			w := New(k.now, false)
			for _, st := range c.steps {
				k.move(st.mono, st.wall)
				w.Set(st.pause)
			}
			if ran, frozen, _, _ := w.Read(); ran != c.ran || frozen != c.frozen {
				t.Errorf("ran %s, frozen %s; wanted %s, %s", ran, frozen, c.ran, c.frozen)
			}
		})
	}
}

func TestF51_TimerNoticesASleepOfTheMachine(t *testing.T) {
	t.Parallel()
	var k clocks
	w := New(k.now, false)
	fired := make(chan bool, 1)
	go func() { fired <- w.Await(func() time.Duration { return time.Hour }) }()
	k.move(0, 2*time.Hour) // no runtime timer of an hour has fired
	select {
	case ok := <-fired:
		if !ok {
			t.Errorf("await was stopped")
		}
	case <-time.After(20 * time.Second):
		t.Errorf("a timer of one hour did not notice two hours of sleep")
	}
}

func TestP3_TimerStandsStillWhileFrozen(t *testing.T) {
	t.Parallel()
	var k clocks
	w := New(k.now, true)
	stop := make(chan struct{})
	fired := make(chan bool, 1)
	go func() { fired <- w.Await(func() time.Duration { return time.Second }, stop) }()
	k.move(time.Hour, time.Hour)
	close(stop)
	if <-fired {
		t.Errorf("a timer fired in frozen time")
	}
	w.Set(false)
	go func() { fired <- w.Await(func() time.Duration { return time.Second }) }()
	k.move(time.Second, time.Second)
	if !<-fired {
		t.Errorf("the timer did not fire in running time")
	}
}
