package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sshDepth is how deep ssh follows includes (READCONF_MAX_DEPTH in its readconf.c).
const sshDepth = 16

// ownIncludes makes ssh work in a user namespace. It refuses an included file that belongs neither to root nor to
// who calls it ("Bad owner or permissions"), and in the namespace root's files seem to belong to nobody. So each such
// file that dir/name includes is covered by a copy of this user's, for this process and its children.
func ownIncludes(dir, name string) error {
	files := slices.Compact(slices.Sorted(slices.Values(includes(dir, filepath.Join(dir, name), sshDepth))))
	if len(files) == 0 {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("userns: ssh may refuse its configuration: %w", err) }
	tmp, err := os.MkdirTemp("", "everdict-ssh-")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp)
	if err := unix.Mount("everdict", tmp, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
		return fail(err)
	}
	defer unix.Unmount(tmp, unix.MNT_DETACH) // the copies stay where they cover something
	var errs []error
	for i, f := range files {
		copied := filepath.Join(tmp, fmt.Sprint(i))
		content, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(copied, content, 0o444)
		}
		if err == nil {
			err = unix.Mount(copied, f, "", unix.MS_BIND, "")
		}
		if err != nil && !errors.Is(err, fs.ErrPermission) { // what ssh cannot read it does not refuse either
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fail(err)
	}
	return nil
}

// includes lists the files that a configuration file of ssh includes, directly or not, and that are another user's.
func includes(dir, file string, depth int) (out []string) {
	content, err := os.ReadFile(file)
	if err != nil || depth == 0 {
		return nil
	}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		key, rest, _ := strings.Cut(strings.Replace(line, "=", " ", 1), " ")
		if !strings.EqualFold(key, "include") {
			continue
		}
		for _, pattern := range strings.Fields(strings.ReplaceAll(rest, `"`, " ")) {
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(dir, pattern)
			}
			found, _ := filepath.Glob(pattern) // ssh takes no notice of a bad one either
			for _, f := range found {
				st, err := os.Stat(f)
				if err != nil || !st.Mode().IsRegular() {
					continue
				}
				if int(st.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
					out = append(out, f)
				}
				out = append(out, includes(dir, f, depth-1)...)
			}
		}
	}
	return out
}
