package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// xdg installs by the specifications of freedesktop.org. It is tested on every system and
// used on Linux.
type xdg struct{ Config }

func (x xdg) record() string      { return filepath.Join(x.DataHome, "everdict", "installed.json") }
func (x xdg) desktopFile() string { return filepath.Join(x.DataHome, "applications", DesktopFile) }
func (x xdg) mimeapps() string    { return filepath.Join(x.ConfigHome, "mimeapps.list") }
func (x xdg) autostart() string   { return filepath.Join(x.ConfigHome, "autostart", DesktopFile) }
func (x xdg) unit() string        { return filepath.Join(x.ConfigHome, "systemd", "user", UnitFile) }

// Icons are the files of the icon by their paths below a directory such as
// /usr/share/icons.
func Icons() map[string][]byte { return maps.Clone(drawIcons()) }

var drawIcons = sync.OnceValue(func() map[string][]byte {
	files := map[string][]byte{"hicolor/scalable/apps/" + IconName + ".svg": []byte(IconSVG())}
	for _, size := range IconSizes {
		files[fmt.Sprintf("hicolor/%[1]dx%[1]d/apps/%[2]s.png", size, IconName)] = IconPNG(size)
	}
	return files
})

func (x xdg) install(context.Context) (rep Report, err error) {
	entry, err := DesktopEntry(x.Executable)
	if err != nil {
		return rep, err
	}
	var unit string
	if x.Service {
		if unit, err = Unit(x.Executable); err != nil {
			return rep, err
		}
	}
	r, err := readRecord(x.record())
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, r.save()) }()

	if x.forAll(entry) {
		rep.Unchanged = append(rep.Unchanged, DesktopFile+" for all users")
	} else {
		if err := r.place(&rep, x.desktopFile(), []byte(entry)); err != nil {
			return rep, err
		}
		icons := Icons()
		for _, name := range slices.Sorted(maps.Keys(icons)) {
			if err := r.place(&rep, filepath.Join(x.DataHome, "icons", filepath.FromSlash(name)), icons[name]); err != nil {
				return rep, err
			}
		}
	}
	if x.AtLogin {
		if err := x.placeAutostart(&rep, r); err != nil {
			return rep, err
		}
	}
	if x.Service {
		if err := r.place(&rep, x.unit(), []byte(unit)); err != nil {
			return rep, err
		}
		rep.Next = append(rep.Next, "systemctl --user enable --now "+UnitFile, "loginctl enable-linger, so that it runs while nobody is logged in")
	}
	other, err := x.otherHandler()
	if err != nil {
		return rep, err
	}
	if other != "" && !x.TakeOver {
		rep.Handler = other
		return rep, nil
	}
	return rep, r.edit(&rep, x.mimeapps(), func(s string) string { return SetHandler(s, DesktopFile) })
}

// forAll says whether a package has put the same entry in place for all users.
func (x xdg) forAll(entry string) bool {
	for _, dir := range x.DataDirs {
		b, err := os.ReadFile(filepath.Join(dir, "applications", DesktopFile))
		if err == nil {
			return string(b) == entry
		}
	}
	return false
}

// otherHandler is the .desktop file that opens our links and is not ours: the first that
// this user chose, else one that says it can.
func (x xdg) otherHandler() (string, error) {
	b, err := os.ReadFile(x.mimeapps())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if chosen := Handlers(string(b)); len(chosen) > 0 {
		if chosen[0] == DesktopFile {
			return "", nil
		}
		return chosen[0], nil
	}
	for _, dir := range append([]string{x.DataHome}, x.DataDirs...) {
		files, err := filepath.Glob(filepath.Join(dir, "applications", "*.desktop"))
		if err != nil {
			continue // a directory that is a bad pattern
		}
		for _, file := range files {
			if filepath.Base(file) == DesktopFile {
				continue
			}
			if b, err := os.ReadFile(file); err == nil && offers(string(b)) {
				return filepath.Base(file), nil
			}
		}
	}
	return "", nil
}

// offers says whether a .desktop file has our links among what it opens.
func offers(entry string) bool {
	for line := range strings.Lines(entry) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.TrimSpace(key) == "MimeType" {
			for kind := range strings.SplitSeq(value, ";") {
				if strings.TrimSpace(kind) == schemeKey {
					return true
				}
			}
		}
	}
	return false
}

func (x xdg) uninstall(context.Context) (rep Report, err error) {
	r, err := readRecord(x.record())
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, r.save()) }()
	if err := r.undo(&rep, x.mimeapps(), func(s string) string { return RemoveHandler(s, DesktopFile) }); err != nil {
		return rep, err
	}
	service := r.find(x.unit()) >= 0
	if err := r.takeAll(&rep); err != nil {
		return rep, err
	}
	if service {
		// What "systemctl enable" made of our unit.
		wanted := filepath.Join(filepath.Dir(x.unit()), "default.target.wants", UnitFile)
		if to, err := os.Readlink(wanted); err == nil && to == x.unit() {
			if err := os.Remove(wanted); err != nil {
				return rep, err
			}
			rep.Removed = append(rep.Removed, wanted)
		}
		rep.Next = append(rep.Next, "systemctl --user daemon-reload")
	}
	return rep, nil
}

// takeAll removes every file that was put in place.
func (r *record) takeAll(rep *Report) error {
	for len(r.Files) > 0 {
		if err := r.take(rep, r.Files[len(r.Files)-1].Path); err != nil {
			return err
		}
	}
	return nil
}

func (x xdg) placeAutostart(rep *Report, r *record) error {
	entry, err := AutostartEntry(x.Executable)
	if err != nil {
		return err
	}
	// One that the desktop's settings have turned off is ours, and is turned on by this.
	if b, err := readRegular(x.autostart()); err == nil && string(b) != entry && r.find(x.autostart()) >= 0 && disabled(string(b)) {
		r.Files[r.find(x.autostart())].SHA256 = digest(b)
	}
	return r.place(rep, x.autostart(), []byte(entry))
}

func (x xdg) atLogin(_ context.Context, on bool) (rep Report, err error) {
	r, err := readRecord(x.record())
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, r.save()) }()
	if on {
		return rep, x.placeAutostart(&rep, r)
	}
	return rep, r.take(&rep, x.autostart())
}

func (x xdg) startsAtLogin(context.Context) (bool, error) {
	b, err := os.ReadFile(x.autostart())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !disabled(string(b)) && runs(string(b), x.Executable), err
}

// runs says whether an entry runs an executable of that name, of whichever directory: an update may be somewhere else.
func runs(entry, executable string) bool {
	for line := range strings.Lines(entry) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.TrimSpace(key) == "Exec" {
			return strings.Contains(value, filepath.Base(executable))
		}
	}
	return false
}

// disabled says whether a desktop's settings have turned an autostart entry off.
func disabled(entry string) bool {
	for line := range strings.Lines(entry) {
		switch strings.ReplaceAll(strings.TrimSpace(line), " ", "") {
		case "Hidden=true", "X-GNOME-Autostart-enabled=false":
			return true
		}
	}
	return false
}
