package process

import (
	"os"
	"path/filepath"
	"strings"
)

// mount is a line of mountinfo: the directory root of a file system is shown at point.
type mount struct {
	device, root, point, kind string
	options                   []string
}

// readMounts lists what the calling thread sees, in the order in which mounts cover each other.
func readMounts() ([]mount, error) {
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []mount
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 5 && len(r) >= 3 {
			out = append(out, mount{device: l[2], root: unescape(l[3]), point: unescape(l[4]), kind: r[0], options: strings.Split(r[2], ",")})
		}
	}
	return out, nil
}

// unescape undoes mountinfo's octal escapes of blanks.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// elsewhere lists the other places where mounts show what lies at path, or below it: bind mounts, a disk that is
// mounted twice, the top of a disk of which path is on a subvolume. Each needs a cover of its own.
func elsewhere(path string) ([]string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	all, err := readMounts()
	if err != nil {
		return nil, err
	}
	var own mount
	for _, m := range all {
		if _, ok := below(m.point, path); ok && len(m.point) >= len(own.point) {
			own = m
		}
	}
	rel, _ := below(own.point, path)
	inside := filepath.Join(own.root, rel) // where path is on its file system
	var out []string
	for _, m := range all {
		here, there := path, m.point
		if rel, ok := below(m.root, inside); ok {
			there = filepath.Join(m.point, rel)
		} else if rel, ok := below(inside, m.root); ok {
			here = filepath.Join(path, rel)
		} else {
			continue
		}
		if _, within := below(path, there); within || m.device != own.device {
			continue
		}
		a, err1 := os.Stat(here)
		b, err2 := os.Stat(there)
		if err1 == nil && err2 == nil && os.SameFile(a, b) { // else the place is covered itself, or this user cannot go there
			out = append(out, there)
		}
	}
	return out, nil
}

// below returns what follows dir in path, which is dir or lies below it.
func below(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	return rel, err == nil && filepath.IsLocal(rel)
}
