package launched

import (
	"context"
	"time"

	"github.com/everdict/everdict/agent/sandbox/unit"
)

// turns are how long a runner waits for its runs.
type turns struct {
	// first is how long for the first: others may have taken it.
	first time.Duration
	// idle is how long for each further one; 0: it takes one.
	idle time.Duration
	// life is the age at which it takes no more; 0: none.
	life time.Duration
}

const (
	// emptyBound is how long a container may take to be emptied.
	emptyBound = 30 * time.Second
	// lifeOver is what is left of a life in which no run is waited for any more.
	lifeOver = time.Second
)

func readTurns(getenv func(string) string) (t turns, err error) {
	for _, v := range []struct {
		name      string
		byDefault time.Duration
		to        *time.Duration
	}{
		{"EVERDICT_FIRST_TIMEOUT", 2 * time.Minute, &t.first}, {"EVERDICT_IDLE_TIMEOUT", 0, &t.idle}, {"EVERDICT_LIFE", 0, &t.life},
	} {
		if *v.to, err = duration(getenv, v.name, v.byDefault); err != nil {
			return t, err
		}
	}
	return t, nil
}

// run takes runs until none comes in time, the runner is too old, or is told to end.
// Between two of them nothing of the first is left: the container is emptied, and where
// that cannot be done for certain the runner ends.
func (w *worker) run(ctx context.Context) error {
	log, born := w.agent.Log, time.Now()
	again, idle := (*unit.Container)(nil), w.turns.idle
	if idle > 0 {
		var err error
		if again, err = unit.OpenContainer(w.dirs...); err != nil {
			log.Warn("this container takes one run: what that leaves could not be removed for certain", "why", err)
			idle = 0
		}
	}
	for wait := w.turns.first; ; wait = idle {
		if left := w.turns.life - time.Since(born); w.turns.life > 0 {
			if left < lifeOver {
				log.Info("old: no more runs are taken", "life", w.turns.life)
				return nil
			}
			wait = min(wait, left)
		}
		took, err := w.one(ctx, wait)
		if err != nil || !took || idle == 0 || ctx.Err() != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, emptyBound)
		err = again.Empty(bounded)
		cancel()
		if err != nil {
			log.Warn("the container cannot be emptied, and takes no other run", "why", err)
			return nil
		}
		log.Info("the container is empty, and waits for another run", "for", idle)
	}
}
