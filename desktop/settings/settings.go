// Package settings says what the settings of the desktop app may be, and when its allowed hours are.
package settings

import (
	"slices"
	"strconv"
	"strings"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/protocol"
)

// Bounds of the settings.
const (
	maxSlots = 64
	maxHours = 32
	maxImage = 300
)

// Default are the settings of an app that nobody has set.
func Default() control.Settings {
	return control.Settings{Hours: []control.Hours{}, PauseOnBattery: true, StartAtLogin: true, Notifications: true, Appearance: "system"}
}

// DefaultConnection are the settings of a new connection: as everdict runner has them, for the runs of one person. Windows
// has no process sandbox.
func DefaultConnection(system string) control.ConnectionSettings {
	c := control.ConnectionSettings{Slots: 1, Sandbox: control.SandboxProcess, OnlyMine: true}
	if system == "windows" {
		c.Sandbox = control.SandboxDocker
	}
	return c
}

// Check says what is wrong with settings, as a *protocol.Problem.
func Check(s *control.Settings) error {
	if s.Hours == nil {
		s.Hours = []control.Hours{}
	}
	if len(s.Hours) > maxHours {
		return protocol.BadRequest("there are %d allowed hours, and room for %d", len(s.Hours), maxHours)
	}
	for _, h := range s.Hours {
		if _, err := parse(h); err != nil {
			return err
		}
	}
	if !slices.Contains([]string{"system", "light", "dark"}, s.Appearance) {
		return protocol.BadRequest("there is no appearance %q", protocol.Clip(s.Appearance, 20)).WithHint("want system, light or dark")
	}
	return nil
}

// CheckConnection says what is wrong with a connection's settings.
func CheckConnection(c *control.ConnectionSettings) error {
	switch {
	case c.Slots < 1 || c.Slots > maxSlots:
		return protocol.BadRequest("%d jobs at a time: want 1 to %d", c.Slots, maxSlots)
	case c.Sandbox != control.SandboxProcess && c.Sandbox != control.SandboxDocker:
		return protocol.BadRequest("there is no sandbox %q", protocol.Clip(c.Sandbox, 20)).WithHint("want docker or process")
	case len(c.Image) > maxImage || strings.ContainsFunc(c.Image, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return protocol.BadRequest("the image is no name of one").WithHint("such as debian:12; empty: runs that name no image are refused")
	case c.Sandbox == control.SandboxProcess && !c.OnlyMine && !c.Understood:
		return protocol.BadRequest("with the process sandbox the jobs of others can act as you: read your files, use your logins").
			WithHint("choose the docker sandbox, take your own runs only, or confirm that this is what you want")
	}
	return nil
}

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// span are hours that were understood.
type span struct {
	days     [7]bool // by time.Weekday
	from, to int     // minutes of the day; to is 24*60 at most
}

func parse(h control.Hours) (span, error) {
	var s span
	if len(h.Days) == 0 {
		return s, protocol.BadRequest("allowed hours have no day").WithHint("name at least one of mon, tue, wed, thu, fri, sat, sun")
	}
	for _, d := range h.Days {
		i := slices.Index(days, d)
		if i < 0 {
			return s, protocol.BadRequest("there is no day %q", protocol.Clip(d, 20)).WithHint("want mon, tue, wed, thu, fri, sat or sun")
		}
		s.days[i] = true
	}
	var ok bool
	if s.from, ok = minutes(h.From); !ok || s.from == 24*60 {
		return s, protocol.BadRequest("allowed hours begin at %q", protocol.Clip(h.From, 20)).WithHint("want HH:MM, 00:00 to 23:59")
	}
	if s.to, ok = minutes(h.To); !ok {
		return s, protocol.BadRequest("allowed hours end at %q", protocol.Clip(h.To, 20)).WithHint("want HH:MM, 00:00 to 24:00")
	}
	if s.from == s.to {
		return s, protocol.BadRequest("allowed hours begin and end at %s", h.From).WithHint("a whole day is 00:00 to 24:00")
	}
	return s, nil
}

// minutes reads HH:MM.
func minutes(s string) (int, bool) {
	if len(s) != 5 || s[2] != ':' {
		return 0, false
	}
	h, err1 := strconv.ParseUint(s[:2], 10, 8)
	m, err2 := strconv.ParseUint(s[3:], 10, 8)
	if err1 != nil || err2 != nil || m > 59 || h > 24 || h == 24 && m > 0 {
		return 0, false
	}
	return int(h)*60 + int(m), true
}
