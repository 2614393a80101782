package install

import (
	"context"
	"path"
	"slices"
	"strings"
)

// registry is HKEY_CURRENT_USER, or a stand-in for tests on other systems.
type registry interface {
	// get returns a text and whether there is one.
	get(key, name string) (text string, ok bool, err error)
	set(v RegistryValue) error
	// remove removes a value; one that is not there is no error.
	remove(key, name string) error
	// removeKey removes a key that has neither values nor keys in it; others stay.
	removeKey(key string) error
}

// windows installs for a user of Windows. It is tested on every system.
type windows struct {
	Config
	registry registry
}

func (w windows) install(ctx context.Context) (rep Report, err error) {
	values, err := SchemeValues(w.Executable)
	if err != nil {
		return rep, err
	}
	command, ok, err := w.registry.get(CommandKey, "")
	if err != nil {
		return rep, err
	}
	if ok && !ours(command) && !w.TakeOver {
		rep.Handler = command
	} else {
		for _, v := range values {
			if err := w.put(&rep, v); err != nil {
				return rep, err
			}
		}
	}
	if w.AtLogin {
		login, err := w.atLogin(ctx, true)
		rep.Written = append(rep.Written, login.Written...)
		rep.Unchanged = append(rep.Unchanged, login.Unchanged...)
		rep.Kept = append(rep.Kept, login.Kept...)
		if err != nil {
			return rep, err
		}
	}
	return rep, nil
}

func (w windows) put(rep *Report, v RegistryValue) error {
	old, ok, err := w.registry.get(v.Key, v.Name)
	if err != nil {
		return err
	}
	if ok && old == v.Text {
		rep.Unchanged = append(rep.Unchanged, v.where())
		return nil
	}
	if err := w.registry.set(v); err != nil {
		return err
	}
	rep.Written = append(rep.Written, v.where())
	return nil
}

func (v RegistryValue) where() string {
	if v.Name == "" {
		return `HKCU\` + v.Key
	}
	return `HKCU\` + v.Key + ` "` + v.Name + `"`
}

// ours says whether a command runs an everdict-desktop, of whichever directory: an update
// may be somewhere else.
func ours(command string) bool {
	exe := strings.TrimPrefix(command, `"`)
	exe, _, _ = strings.Cut(exe, `"`)
	return strings.EqualFold(path.Base(strings.ReplaceAll(exe, `\`, "/")), "everdict-desktop.exe")
}

func (w windows) uninstall(ctx context.Context) (rep Report, err error) {
	command, ok, err := w.registry.get(CommandKey, "")
	switch {
	case err != nil:
		return rep, err
	case ok && !ours(command):
		rep.Kept = append(rep.Kept, Kept{`HKCU\` + SchemeKey, "it is that of " + command})
	case ok:
		values, err := SchemeValues(`C:\everdict-desktop.exe`) // for their names
		if err != nil {
			return rep, err
		}
		for _, v := range values {
			if err := w.registry.remove(v.Key, v.Name); err != nil {
				return rep, err
			}
			rep.Removed = append(rep.Removed, v.where())
		}
		// From the command up to the scheme.
		for key := CommandKey; strings.HasPrefix(key, SchemeKey); key = key[:strings.LastIndex(key, `\`)] {
			if err := w.registry.removeKey(key); err != nil {
				return rep, err
			}
		}
	}
	login, err := w.atLogin(ctx, false)
	rep.Removed = slices.Concat(rep.Removed, login.Removed)
	rep.Kept = slices.Concat(rep.Kept, login.Kept)
	return rep, err
}

func (w windows) atLogin(_ context.Context, on bool) (rep Report, err error) {
	old, ok, err := w.registry.get(RunKey, RunName)
	if err != nil {
		return rep, err
	}
	if ok && !ours(old) {
		rep.Kept = append(rep.Kept, Kept{RegistryValue{Key: RunKey, Name: RunName}.where(), "it is that of " + old})
		return rep, nil
	}
	if on {
		v, err := RunValue(w.Executable)
		if err != nil {
			return rep, err
		}
		return rep, w.put(&rep, v)
	}
	if !ok {
		return rep, nil
	}
	rep.Removed = append(rep.Removed, RegistryValue{Key: RunKey, Name: RunName}.where())
	return rep, w.registry.remove(RunKey, RunName)
}

func (w windows) startsAtLogin(context.Context) (bool, error) {
	old, ok, err := w.registry.get(RunKey, RunName)
	return ok && ours(old), err
}
