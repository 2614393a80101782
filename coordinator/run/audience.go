package run

import (
	"maps"
	"slices"
	"sync"
)

// audience knows for whom runs were submitted to "auto", since every runner that
// belongs to a whole workspace, or to one of its runtimes, serves each of those;
// and the runtimes that the runners inside this process serve.
type audience struct {
	mu       sync.Mutex
	known    map[string]map[string]bool // workspace -> subjects
	runtimes map[string]map[string]bool // workspace -> ids of runtimes of kind local
	grown    func(workspace string)
}

// add reports whether the pair is new.
func (a *audience) add(workspace, subject string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	subjects := a.subjects(workspace)
	if subjects[subject] {
		return false
	}
	subjects[subject] = true
	return true
}

// meet notes a workspace of which no subject is known.
func (a *audience) meet(workspace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.subjects(workspace)
}

// serve says whether the runners inside this process serve a runtime, and reports
// whether that is new.
func (a *audience) serve(workspace, runtime string, served bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runtimes[workspace][runtime] == served {
		return false
	}
	if !served {
		delete(a.runtimes[workspace], runtime)
		return true
	}
	a.subjects(workspace)
	if a.runtimes[workspace] == nil {
		a.runtimes[workspace] = map[string]bool{}
	}
	a.runtimes[workspace][runtime] = true
	return true
}

// serves says whether the runners inside this process serve a registered runtime.
func (a *audience) serves(workspace, runtime string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runtimes[workspace][runtime]
}

func (a *audience) subjects(workspace string) map[string]bool {
	if a.known[workspace] == nil {
		a.known[workspace] = map[string]bool{}
	}
	return a.known[workspace]
}

// pools are the names of the auto pools of a workspace, in order.
func (a *audience) pools(workspace string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var pools []string
	for subject := range a.known[workspace] {
		pools = append(pools, autoPool(workspace, subject).String())
	}
	slices.Sort(pools)
	return pools
}

// local are the names of the pools of runtimes that the runners inside this
// process serve in a workspace, in order.
func (a *audience) local(workspace string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	pools := names(RuntimePool(workspace, LocalRuntime))
	for _, id := range slices.Sorted(maps.Keys(a.runtimes[workspace])) {
		if id != LocalRuntime {
			pools = append(pools, RuntimePool(workspace, id).String())
		}
	}
	return pools
}

// workspaces are those in which somebody has submitted or a local runtime is
// registered, in order.
func (a *audience) workspaces() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.known))
}

// OnAudience sets who is told that the runners of a workspace must serve
// somebody new: their Serves has changed.
func (s *Service) OnAudience(f func(workspace string)) {
	s.audience.mu.Lock()
	defer s.audience.mu.Unlock()
	s.audience.grown = f
}

// welcome makes the shared runners of a workspace serve a subject.
func (s *Service) welcome(workspace, subject string) {
	if s.audience.add(workspace, subject) {
		s.audience.tell(workspace)
	}
}

// tell says that runners of a workspace serve somebody new.
func (a *audience) tell(workspace string) {
	a.mu.Lock()
	grown := a.grown
	a.mu.Unlock()
	if grown != nil {
		grown(workspace)
	}
}
