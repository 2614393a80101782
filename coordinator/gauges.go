package coordinator

import (
	"context"
	"time"

	"github.com/everdict/everdict/coordinator/api"
	"github.com/everdict/everdict/coordinator/run"
)

// gaugesBound keeps a stuck writer from holding up /metrics.
const gaugesBound = 2 * time.Second

// gauges are the numbers of queue and runners for /metrics.
type gauges struct{ c *Coordinator }

var _ api.Gauges = gauges{}

// Gauges implements api.Gauges.
func (g gauges) Gauges(emit func(name, help string, value float64, labels ...string)) {
	emit("everdict_runners_connected", "Runners with a live session.", float64(g.c.gateway.Sessions()))
	if f := g.c.fleet; f != nil {
		looks, took := f.Looks()
		emit("everdict_fleet_looks_total", "Times that the units of a pool were compared with what is wanted.", float64(looks))
		emit("everdict_fleet_look_seconds_total", "Time that this took, with waiting for clusters.", took.Seconds())
	}
	ctx, cancel := context.WithTimeout(context.Background(), gaugesBound)
	defer cancel()
	stats, err := g.c.queue.Stats(ctx)
	if err != nil {
		g.c.log.Warn("queue could not be counted", "err", err)
		return
	}
	type states struct{ queued, leased, parked int }
	byWorkspace := map[string]states{}
	for _, n := range stats.Counts {
		if runtime, ok := run.RuntimeOf(n.Pool); ok {
			emit("everdict_pool_queued", "Runs that name a runtime and wait: what an autoscaler of its runners follows.", float64(n.Queued), "workspace", n.Workspace, "runtime", runtime)
		}
		s := byWorkspace[n.Workspace]
		s.queued, s.leased, s.parked = s.queued+n.Queued, s.leased+n.Leased, s.parked+n.Parked
		byWorkspace[n.Workspace] = s
	}
	const help = "Runs that have not settled, by workspace and state of their job."
	for workspace, s := range byWorkspace {
		emit("everdict_jobs", help, float64(s.queued), "workspace", workspace, "state", "queued")
		emit("everdict_jobs", help, float64(s.leased), "workspace", workspace, "state", "leased")
		emit("everdict_jobs", help, float64(s.parked), "workspace", workspace, "state", "parked")
	}
	emit("everdict_pulls_waiting", "Free slots that wait for a run.", float64(stats.Waiting))
}
