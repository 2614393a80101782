package install

import (
	"slices"
	"strings"
)

const (
	defaultsGroup = "[Default Applications]"
	schemeKey     = "x-scheme-handler/" + Scheme
)

// Handlers are the .desktop files that mimeapps.list has for our links, best first.
func Handlers(mimeapps string) []string {
	_, line, ok := schemeLine(strings.Split(mimeapps, "\n"))
	if !ok {
		return nil
	}
	return handlers(line)
}

func handlers(line string) []string {
	_, value, _ := strings.Cut(line, "=")
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(value), ";"), func(s string) bool { return s == "" })
}

// SetHandler puts a .desktop file first among those for our links and changes nothing
// else.
func SetHandler(mimeapps, file string) string {
	lines := strings.Split(mimeapps, "\n")
	if at, line, ok := schemeLine(lines); ok {
		list := handlers(line)
		if len(list) > 0 && list[0] == file {
			return mimeapps
		}
		list = slices.DeleteFunc(list, func(s string) bool { return s == file })
		lines[at] = schemeKey + "=" + strings.Join(append([]string{file}, list...), ";")
		return strings.Join(lines, "\n")
	}
	entry := schemeKey + "=" + file
	if at := slices.IndexFunc(lines, isGroup(defaultsGroup)); at >= 0 {
		return strings.Join(slices.Insert(lines, at+1, entry), "\n")
	}
	if mimeapps != "" {
		mimeapps = strings.TrimRight(mimeapps, "\n") + "\n\n"
	}
	return mimeapps + defaultsGroup + "\n" + entry + "\n"
}

// RemoveHandler takes a .desktop file away from those for our links and changes nothing
// else.
func RemoveHandler(mimeapps, file string) string {
	lines := strings.Split(mimeapps, "\n")
	at, line, ok := schemeLine(lines)
	if !ok {
		return mimeapps
	}
	list := handlers(line)
	rest := slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == file })
	switch {
	case len(rest) == len(list):
		return mimeapps
	case len(rest) == 0:
		lines = slices.Delete(lines, at, at+1)
	default:
		lines[at] = schemeKey + "=" + strings.Join(rest, ";")
	}
	return strings.Join(lines, "\n")
}

// schemeLine finds the line for our links among the defaults.
func schemeLine(lines []string) (at int, line string, ok bool) {
	inside := false
	for i, l := range lines {
		if strings.HasPrefix(strings.TrimSpace(l), "[") {
			inside = isGroup(defaultsGroup)(l)
			continue
		}
		if key, _, found := strings.Cut(l, "="); inside && found && strings.TrimSpace(key) == schemeKey {
			return i, l, true
		}
	}
	return 0, "", false
}

func isGroup(name string) func(string) bool {
	return func(line string) bool { return strings.TrimSpace(line) == name }
}
