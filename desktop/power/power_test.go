package power

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestSysfs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, supplies string // "NAME/FILE=VALUE ..."
		want           bool
	}{
		{"no battery", "", false},
		{"a desktop computer", "AC/type=Mains AC/online=1", false},
		{"a laptop at its charger", "AC/type=Mains AC/online=1 BAT0/type=Battery BAT0/status=Charging", false},
		{"a full laptop at its charger", "AC/type=Mains AC/online=1 BAT0/type=Battery BAT0/status=Full", false},
		{"a charger too weak for the load", "AC/type=Mains AC/online=1 BAT0/type=Battery BAT0/status=Discharging", false},
		{"unplugged", "AC/type=Mains AC/online=0 BAT0/type=Battery BAT0/status=Discharging", true},
		{"just unplugged", "AC/type=Mains AC/online=0 BAT0/type=Battery BAT0/status=Full", true},
		{"two batteries, one in use", "AC/type=Mains AC/online=0 BAT0/type=Battery BAT0/status=Unknown BAT1/type=Battery BAT1/status=Discharging", true},
		{"charged over USB", "ucsi/type=USB ucsi/online=1 BAT0/type=Battery BAT0/status=Charging", false},
		{"two USB ports, one with power", "a/type=USB a/online=0 b/type=USB b/online=1 BAT0/type=Battery BAT0/status=Charging", false},
		{"a tablet that lists its battery alone", "BAT0/type=Battery BAT0/status=Discharging", true},
		{"and charges", "BAT0/type=Battery BAT0/status=Charging", false},
		{"a mouse", "AC/type=Mains AC/online=1 hid/type=Battery hid/scope=Device hid/status=Discharging", false},
		{"a mouse at a desktop computer that lists no supply", "hid/type=Battery hid/scope=Device hid/status=Discharging", false},
		{"a supply without a type", "odd/online=0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := fstest.MapFS{}
			for field := range strings.FieldsSeq(tt.supplies) {
				file, value, _ := strings.Cut(field, "=")
				dir[file] = &fstest.MapFile{Data: []byte(value + "\n")}
			}
			if got, err := Sysfs(dir); got != tt.want || err != nil {
				t.Errorf("on battery: %v, %v, want %v", got, err, tt.want)
			}
		})
	}
	if got, err := Sysfs(os.DirFS(filepath.Join(t.TempDir(), "missing"))); got || err != nil {
		t.Errorf("a machine without power supplies is on battery: %v, %v", got, err)
	}
}

func TestPmset(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]bool{
		"Now drawing from 'Battery Power'\n -InternalBattery-0 (id=4653155)\t82%; discharging; 5:12 remaining present: true\n": true,
		"Now drawing from 'AC Power'\n -InternalBattery-0 (id=4653155)\t100%; charged; 0:00 remaining present: true\n":         false,
		"Now drawing from 'AC Power'\n":  false,
		"Now drawing from 'UPS Power'\n": true,
	} {
		if got, err := Pmset(out); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", out, got, err, want)
		}
	}
	if _, err := Pmset(""); !errors.Is(err, ErrUnknown) {
		t.Errorf("nothing: %v, want %v", err, ErrUnknown)
	}
}

func TestOnBatteryHere(t *testing.T) {
	t.Parallel()
	if _, err := OnBattery(t.Context()); err != nil && !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}
