package process

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a line of mountinfo: the directory root of a file system is shown at point.
type mount struct {
	device, root, point, kind string
	flags                     []string // of the mount
	options                   []string // of the file system
}

// mountinfo lists the mounts of the thread that opens it in the process table.
const mountinfo = "thread-self/mountinfo"

// readMounts lists what the calling thread sees, in the order in which mounts cover each other.
func readMounts() ([]mount, error) {
	f, err := openTable(mountinfo, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	var out []mount
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 6 && len(r) >= 3 {
			out = append(out, mount{device: l[2], root: unescape(l[3]), point: unescape(l[4]), kind: r[0],
				flags: strings.Split(l[5], ","), options: strings.Split(r[2], ",")})
		}
	}
	return out, nil
}

// ownView names the calling thread's mount namespace, as /proc/PID/ns/mnt does.
func ownView() (string, error) {
	var name [64]byte
	dir, err := table()
	if err != nil {
		return "", err
	}
	n, err := unix.Readlinkat(dir, "thread-self/ns/mnt", name[:])
	if err != nil {
		return "", fmt.Errorf("name the mount namespace: %w", err)
	}
	return string(name[:n]), nil
}

// unescape undoes mountinfo's octal escapes of blanks.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// place is a file or directory, whatever covers its path and wherever else mounts show it.
type place struct {
	path           string // without symbolic links
	device, inside string // where it is on its file system, as mountinfo has it
	fd             int    // of the place itself, to look below its cover
}

// find looks a path up before it is covered. The place is to be closed.
func find(path string) (place, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return place{}, err
	}
	all, err := readMounts()
	if err != nil {
		return place{}, err
	}
	var own mount
	for _, m := range all {
		if _, ok := below(m.point, path); ok && len(m.point) >= len(own.point) {
			own = m
		}
	}
	rel, _ := below(own.point, path)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return place{}, err
	}
	return place{path: path, device: own.device, inside: filepath.Join(own.root, rel), fd: fd}, nil
}

func (p place) close() { _ = unix.Close(p.fd) }

// elsewhere lists the other paths by which mounts show the place, or what lies below it: bind mounts, a disk that is
// mounted twice, the top of a disk of which the place is on a subvolume. Each needs a cover of its own.
func (p place) elsewhere(all []mount) (out []string) {
	for _, m := range all {
		here, there := "", m.point
		if rel, ok := below(m.root, p.inside); ok {
			there = filepath.Join(m.point, rel)
		} else if rel, ok := below(p.inside, m.root); ok {
			here = rel
		} else {
			continue
		}
		if _, within := below(p.path, there); within || m.device != p.device {
			continue
		}
		// Else that is covered itself, or this user cannot go there.
		if p.shows(here, there) {
			out = append(out, there)
		}
	}
	return out
}

// shows reports whether another path leads to what is at rel in the place.
func (p place) shows(rel, path string) bool {
	var here, there unix.Stat_t
	if unix.Stat(path, &there) != nil || unix.Fstatat(p.fd, rel, &here, unix.AT_EMPTY_PATH) != nil {
		return false
	}
	return here.Dev == there.Dev && here.Ino == there.Ino
}

// below returns what follows dir in path, which is dir or lies below it.
func below(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	return rel, err == nil && filepath.IsLocal(rel)
}
