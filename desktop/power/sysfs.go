package power

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Sysfs reads /sys/class/power_supply of Linux, or a copy of it. Outside power wins: a
// laptop at its charger is not on battery, whatever the battery does. Batteries of mice
// and headphones (scope Device) do not count.
func Sysfs(supplies fs.FS) (bool, error) {
	entries, err := fs.ReadDir(supplies, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a container, a virtual machine: no supply is known
	}
	if err != nil {
		return false, fmt.Errorf("read the power supplies: %w", err)
	}
	outside, battery, discharging := false, false, false
	var unread error
	for _, e := range entries {
		read := func(name string) string {
			b, err := fs.ReadFile(supplies, path.Join(e.Name(), name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				unread = err // it may just have been unplugged, and something else may tell
			}
			return strings.TrimSpace(string(b))
		}
		if read("scope") == "Device" {
			continue
		}
		switch read("type") {
		case "Mains", "USB", "Wireless":
			if read("online") == "1" {
				return false, nil
			}
			outside = true
		case "Battery", "UPS":
			battery = true
			discharging = discharging || read("status") == "Discharging"
		}
	}
	switch {
	case discharging, battery && outside:
		return true, nil
	case unread != nil:
		return false, fmt.Errorf("read the power supplies: %w", unread)
	}
	return false, nil
}
