package settings

import (
	"testing"
	"time"
	_ "time/tzdata" // machines without it have the same clock changes

	"github.com/everdict/everdict/desktop/control"
)

func hours(from, to string, days ...string) control.Hours {
	return control.Hours{Days: days, From: from, To: to}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(s string) time.Time {
		v, err := time.ParseInLocation("2006-01-02 15:04", s, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	week := []string{"mon", "tue", "wed", "thu", "fri"}
	// 2026-11-30 is a Monday.
	for _, c := range []struct {
		name   string
		hours  []control.Hours
		now    string
		open   bool
		change string
	}{
		{"no hours are all hours", nil, "2026-11-30 03:00", true, ""},
		{"before", []control.Hours{hours("09:00", "17:00", week...)}, "2026-11-30 08:59", false, "2026-11-30 09:00"},
		{"at the beginning", []control.Hours{hours("09:00", "17:00", week...)}, "2026-11-30 09:00", true, "2026-11-30 17:00"},
		{"the end is not included", []control.Hours{hours("09:00", "17:00", week...)}, "2026-11-30 17:00", false, "2026-12-01 09:00"},
		{"over the weekend", []control.Hours{hours("09:00", "17:00", week...)}, "2026-12-04 18:00", false, "2026-12-07 09:00"},
		{"over midnight, the evening", []control.Hours{hours("22:00", "06:00", "fri")}, "2026-12-04 23:00", true, "2026-12-05 06:00"},
		{"over midnight, the morning after", []control.Hours{hours("22:00", "06:00", "fri")}, "2026-12-05 05:59", true, "2026-12-05 06:00"},
		{"over midnight, the morning of the day", []control.Hours{hours("22:00", "06:00", "fri")}, "2026-12-04 05:00", false, "2026-12-04 22:00"},
		{"two that touch are one", []control.Hours{hours("09:00", "12:00", "mon"), hours("12:00", "15:00", "mon")}, "2026-11-30 10:00", true, "2026-11-30 15:00"},
		{"two that overlap", []control.Hours{hours("09:00", "13:00", "mon"), hours("12:00", "15:00", "mon")}, "2026-11-30 10:00", true, "2026-11-30 15:00"},
		{"always", []control.Hours{hours("00:00", "24:00", "mon", "tue", "wed", "thu", "fri", "sat", "sun")}, "2026-11-30 10:00", true, ""},
		{"a whole day", []control.Hours{hours("00:00", "24:00", "mon")}, "2026-11-30 23:59", true, "2026-12-01 00:00"},
		{"a week ahead", []control.Hours{hours("09:00", "10:00", "mon")}, "2026-11-30 10:00", false, "2026-12-07 09:00"},
		{"clock set back in the night", []control.Hours{hours("22:00", "06:00", "sat")}, "2026-10-25 05:00", true, "2026-10-25 06:00"},
		{"clock set forward: an hour that is not there", []control.Hours{hours("02:30", "04:00", "sun")}, "2026-03-29 01:00", false, "2026-03-29 03:30"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open, change := Open(c.hours, at(c.now))
			want := time.Time{}
			if c.change != "" {
				want = at(c.change)
			}
			if open != c.open || !change.Equal(want) {
				t.Errorf("at %s: open %v until %v, want %v until %v", c.now, open, change, c.open, want)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	bad := []control.Hours{
		{}, hours("09:00", "17:00"), hours("9:00", "17:00", "mon"), hours("09:00", "25:00", "mon"), hours("24:00", "01:00", "mon"),
		hours("09:00", "09:00", "mon"), hours("09:60", "10:00", "mon"), hours("09:00", "10:00", "Monday"), hours("+9:00", "10:00", "mon"),
	}
	for _, h := range bad {
		s := Default()
		s.Hours = []control.Hours{h}
		if Check(&s) == nil {
			t.Errorf("%+v was taken", h)
		}
	}
	for _, c := range []control.ConnectionSettings{
		{Slots: 0, Sandbox: "docker", OnlyMine: true}, {Slots: 65, Sandbox: "docker", OnlyMine: true}, {Slots: 1, Sandbox: "chroot", OnlyMine: true},
		{Slots: 1, Sandbox: control.SandboxProcess}, {Slots: 1, Sandbox: control.SandboxDocker, OnlyMine: true, Image: "debian --privileged"},
	} {
		if CheckConnection(&c) == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	for _, c := range []control.ConnectionSettings{DefaultConnection("linux"), DefaultConnection("windows"), {Slots: 1, Sandbox: control.SandboxDocker, Image: "debian:12"}, {Slots: 2, Sandbox: control.SandboxDocker}, {Slots: 1, Sandbox: control.SandboxProcess, Understood: true}} {
		if err := CheckConnection(&c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
