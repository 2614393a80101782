package desktop

import (
	"context"
	"slices"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/settings"
	"github.com/everdict/everdict/protocol"
)

const (
	// lookEvery is how often the clock and the power supply are looked at, where they matter. While there is a session it
	// is done with the heartbeat, so that an idle computer is not woken for it.
	lookEvery = time.Minute
	// lookSeldom is the same where they do not matter.
	lookSeldom = time.Hour
)

// lookAround brings allowed hours, power and start at login up to date.
func (a *App) lookAround(ctx context.Context) {
	a.lookAtLogin(ctx)
	now := time.Now()
	power := control.Power{}
	if a.cfg.OnBattery != nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		on, err := a.cfg.OnBattery(ctx)
		cancel()
		power = control.Power{Known: err == nil, OnBattery: err == nil && on}
	}
	a.mu.Lock()
	open, change := settings.Open(a.settings.Hours, now)
	same := open == a.hoursOpen && change.Equal(a.hoursChange) && power == a.power
	a.lookedAt = now
	a.mu.Unlock()
	if same {
		return
	}
	a.change(func() {
		for _, c := range a.connections {
			if open != a.hoursOpen {
				delete(c.override, control.ReasonHours)
			}
			if power.OnBattery != a.power.OnBattery {
				delete(c.override, control.ReasonBattery)
			}
		}
		a.hoursOpen, a.hoursChange, a.power = open, change, power
	})
}

// beat is called with each heartbeat that was answered.
func (a *App) beat() {
	a.mu.Lock()
	due := a.matters() && (time.Since(a.lookedAt) >= lookEvery-5*time.Second || !a.hoursChange.IsZero() && !time.Now().Before(a.hoursChange))
	a.mu.Unlock()
	if due {
		a.lookAround(context.Background())
	}
}

// matters says whether hours or power decide anything. The caller has the mutex.
func (a *App) matters() bool {
	return len(a.settings.Hours) > 0 || a.settings.PauseOnBattery && a.power.Known && !a.powerTold
}

// nextLook is when Run looks by itself.
func (a *App) nextLook() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.matters() {
		return lookSeldom
	}
	for _, c := range a.connections {
		if c.online {
			return lookSeldom
		}
	}
	return lookEvery
}

// sawDocker drops a report of this machine that says otherwise: whoever shows it asks for a new one. The caller has the
// mutex.
func (a *App) sawDocker(there bool) {
	if a.machine != nil && slices.Contains(a.machine.Capabilities, protocol.CapDocker) != there {
		a.machine = nil
		a.machineRev++
	}
}
