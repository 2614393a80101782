package pairing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Hello is what a runner says of itself when its session begins.
type Hello struct {
	// Workspace is the runner's own, from its record.
	Workspace    string
	Version      string
	Protocol     int
	OS, Arch     string
	Hostname     string
	Capabilities []string
	// CapabilityEvidence is for people; see protocol.Runner.
	CapabilityEvidence map[string]string
	Slots              int
	Terms              link.Terms
}

// Beat is what a heartbeat says. A nil Status keeps the last one.
type Beat struct {
	Busy   int
	Slots  int
	Status *protocol.RunnerStatus
	Terms  link.Terms
}

// Attach says that runner, as Resolve gave it, has a live session, which takes
// over from any other. What it returns ends the session's presence; after a
// newer session it does nothing. A session of a runner that was revoked
// meanwhile is not present, and OnRevoked is called for it.
func (r *Runners) Attach(runner protocol.Runner, hello Hello) (detach func()) {
	now := protocol.At(r.cfg.Now())
	r.mu.Lock()
	if r.revoked[runner.ID] {
		r.mu.Unlock()
		if r.cfg.OnRevoked != nil {
			r.cfg.OnRevoked(runner.ID)
		}
		return func() {}
	}
	defer r.mu.Unlock()
	p := r.present[runner.ID]
	if p == nil {
		p = &presence{runner: runner}
		r.present[runner.ID] = p
	}
	r.lastSession++
	session := r.lastSession
	p.session, p.workspace = session, hello.Workspace
	p.runner.Version, p.runner.Protocol = hello.Version, hello.Protocol
	p.runner.OS, p.runner.Arch, p.runner.Hostname = hello.OS, hello.Arch, hello.Hostname
	p.runner.Capabilities, p.runner.CapabilityEvidence, p.runner.Slots = hello.Capabilities, hello.CapabilityEvidence, hello.Slots
	p.runner.Busy, p.runner.Status = 0, nil
	p.runner.Scope, p.runner.Paused = ScopeOf(&runner, hello.Workspace, hello.Terms.Scope), protocol.Clip(hello.Terms.Paused, MaxPaused)
	p.runner.LastSeenAt = &now
	r.unsaved[runner.ID] = true
	clear(r.rosters)
	r.tell(p.workspace, runner.ID)
	return func() { r.detach(runner.ID, session) }
}

// MaxPaused bounds what is shown of why a runner is paused, in bytes.
const MaxPaused = 200

// ScopeOf is whose runs a runner takes that says so itself. One that belongs to a whole
// workspace, or to a pool, has no say in it. What is not known is the narrowest, and so is
// a device that says nothing.
func ScopeOf(r *protocol.Runner, workspace, said string) string {
	switch {
	case r.Runtime != "", r.Owner == WorkspaceOwner(workspace):
		return ""
	case said == protocol.RunnerScopeWorkspace:
		return said
	case said == "" && r.Scope == "":
		return "" // a token's, as it always was
	}
	return protocol.RunnerScopeOwner
}

// Revoked says whether this process has revoked a runner: its token may have been
// resolved before.
func (r *Runners) Revoked(runnerID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revoked[runnerID]
}

// WasRevoked says whether a runner was revoked at any time, as the store has it.
func (r *Runners) WasRevoked(ctx context.Context, runnerID string) (bool, error) {
	record, err := r.cfg.Store.Runner(ctx, runnerID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && record.RevokedAt != nil, err
}

// Seen says that a heartbeat came. Without a session it does nothing: the runner
// was revoked a moment ago.
func (r *Runners) Seen(runnerID string, beat Beat) {
	now := protocol.At(r.cfg.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.present[runnerID]
	if p == nil || p.session == 0 {
		return
	}
	p.runner.LastSeenAt = &now
	if p.runner.Busy != beat.Busy || beat.Slots > 0 && p.runner.Slots != beat.Slots || !sameStatus(p.runner.Status, beat.Status) {
		r.tell(p.workspace, runnerID)
	}
	scope, paused := ScopeOf(&p.runner, p.workspace, beat.Terms.Scope), protocol.Clip(beat.Terms.Paused, MaxPaused)
	if scope != p.runner.Scope || paused != p.runner.Paused {
		p.runner.Scope, p.runner.Paused = scope, paused
		clear(r.rosters)
		r.tell(p.workspace, runnerID)
	}
	p.runner.Busy = beat.Busy
	if beat.Slots > 0 {
		p.runner.Slots = beat.Slots
	}
	if beat.Status != nil {
		p.runner.Status = beat.Status
	}
	r.unsaved[runnerID] = true
}

// Took says that a runner took an attempt (1) or let go of one (-1), so that
// nobody has to wait for its next heartbeat to see it.
func (r *Runners) Took(runnerID string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.present[runnerID]; p != nil {
		p.runner.Busy = max(0, p.runner.Busy+n)
		r.tell(p.workspace, runnerID)
	}
}

// SetStatus shows a line about a runner that the coordinator found, such as that
// it takes leases and does not start them (F6). nil takes it away.
func (r *Runners) SetStatus(runnerID string, status *protocol.RunnerStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.present[runnerID]; p != nil {
		p.runner.Status = status
		r.tell(p.workspace, runnerID)
	}
}

// sameStatus says whether a beat's line is the one that is shown.
func sameStatus(shown, beat *protocol.RunnerStatus) bool {
	return beat == nil || shown != nil && shown.Text == beat.Text && shown.Level == beat.Level
}

// tell says that a runner is shown differently. The caller holds mu.
func (r *Runners) tell(workspace, id string) {
	if r.cfg.OnChanged != nil && workspace != "" {
		r.cfg.OnChanged(workspace, id)
	}
}

// Online reports how many runners have a live session.
func (r *Runners) Online() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, p := range r.present {
		if p.session != 0 {
			n++
		}
	}
	return n
}

func (r *Runners) detach(id string, session uint64) {
	now := protocol.At(r.cfg.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.present[id]
	if p == nil || p.session != session {
		return
	}
	p.session = 0
	p.runner.LastSeenAt = &now
	r.unsaved[id] = true
	clear(r.rosters)
	r.tell(p.workspace, id)
}

// Run writes what was seen every FlushEvery until ctx ends, then once more, and
// takes the runners of pools that have left out of the lists. A
// write that fails is logged and tried again with the next.
func (r *Runners) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.FlushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// In this order: who is online has just been written as seen.
			if err := errors.Join(r.save(ctx), r.tidy(ctx)); err != nil && !errors.Is(err, context.Canceled) {
				slog.WarnContext(ctx, "runner presence not saved", "error", err)
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return r.save(last)
		}
	}
}
