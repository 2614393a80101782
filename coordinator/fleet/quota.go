package fleet

import (
	"fmt"
	"time"

	"github.com/everdict/everdict/protocol"
)

// overQuota is a unit that a quota had no room for when it was to be launched. It takes no
// slot, and others are launched meanwhile.
type overQuota struct {
	// message has the cluster's words.
	message string
	// since is when that was first so. It was tried so often, and is tried again at retry.
	since, retry time.Time
	tries        int
}

// noRoom notes that a quota had no room for a unit.
func (p *pool) noRoom(end *callEnd) {
	now, q := p.cfg.Now(), p.quotas[end.unit]
	q.message, q.since = end.full, end.since
	q.retry = now.Add(p.cfg.delay(q.tries))
	q.tries++
	if over := q.since.Add(p.cfg.PendingTimeout); over.Before(q.retry) {
		q.retry = over
	}
	p.quotas[end.unit] = q
	p.mark(end.unit).retry = q.retry // of one that is there, half launched
}

// vacated is how many units of the pool have gone since the last look, while a quota had no
// room for others. It forgets those that nobody tries to launch any more.
func (l *look) vacated() int {
	if len(l.quotas) == 0 {
		l.listed = nil
		return 0
	}
	listed, gone := map[string]bool{}, 0
	for name, u := range l.units {
		if u.listed {
			listed[name] = true
		}
	}
	for name := range l.listed {
		if !listed[name] {
			gone++
		}
	}
	l.listed = listed
	for unit, q := range l.quotas {
		if _, going := l.launching[unit]; !going && l.now.Sub(q.retry) > l.cfg.MaxBackoff {
			delete(l.quotas, unit)
		}
	}
	return gone
}

// waitsForQuota says that a quota had no room for the unit of a job, and that it is not tried
// again yet. Of the units that have gone it takes the place of one.
func (l *look) waitsForQuota(job, unit string, vacant *int) bool {
	q, waits := l.quotas[unit]
	if !waits {
		return false
	}
	if has := l.awaited[job]; has != "" && has != unit { // a unit that was there was given it
		delete(l.quotas, unit)
		return false
	}
	l.words[job] = fmt.Sprintf("unit %s waits: %s: %s", unit, CauseQuota, protocol.Clip(q.message, 600))
	if q.retry.After(l.now) && *vacant > 0 {
		*vacant--
		q.tries, q.retry = 0, l.now
		l.quotas[unit] = q
		l.mark(unit).retry = l.now
	}
	if !q.retry.After(l.now) {
		return false
	}
	l.due(q.retry)
	return true
}
