package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/desktop/install"
)

const debName = "everdict-desktop"

//go:embed files/everdict-desktop.1
var manPage []byte

// file is what a package has at a path.
type file struct {
	content []byte
	mode    os.FileMode
}

// deb makes the .deb.
func (r release) deb(ctx context.Context, t target, program, out string) (string, error) {
	files, err := r.debFiles(ctx, t, program)
	if err != nil {
		return "", err
	}
	stage, err := os.MkdirTemp("", "everdict-deb-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(stage)
	var sums bytes.Buffer
	size := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if err := r.stage(stage, name, f); err != nil {
			return "", err
		}
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.content), name)
		size += (len(f.content) + 1023) / 1024
	}
	control := fmt.Sprintf(`Package: %s
Version: %s
Architecture: %s
Maintainer: Everdict <everdict@users.noreply.github.com>
Installed-Size: %d
Depends: libc6
Recommends: libwebkit2gtk-4.1-0, xdg-utils
Suggests: git
Section: devel
Priority: optional
Homepage: https://github.com/everdict/everdict
Description: this computer as a runner of Everdict
 Everdict runs evaluations of AI agents on machines that you own. This app
 pairs a computer with a coordinator and runs what that hands out, with a tray
 icon and a window that show what it does.
 .
 The window is drawn by WebKitGTK, else by a browser.
`, debName, debVersion(r.version), t.Arch, size)
	for name, content := range map[string]string{"DEBIAN/control": control, "DEBIAN/md5sums": sums.String()} {
		if err := r.stage(stage, name, file{[]byte(content), 0o644}); err != nil {
			return "", err
		}
	}
	path := filepath.Join(out, fmt.Sprintf("%s_%s_%s.deb", debName, debVersion(r.version), t.Arch))
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "-Zxz", "--build", stage, path)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.when.Unix(), 10))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("dpkg-deb: %w\n%s", err, out)
	}
	return path, nil
}

// debFiles is all that the package puts in place, by path.
func (r release) debFiles(ctx context.Context, t target, program string) (map[string]file, error) {
	app, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	const exe = "/usr/bin/everdict-desktop"
	entry, err := install.DesktopEntry(exe)
	if err != nil {
		return nil, err
	}
	unit, err := install.Unit(exe)
	if err != nil {
		return nil, err
	}
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	linked, cgo := []string{"./cmd/everdict-desktop"}, "0"
	files := map[string]file{
		"usr/bin/everdict-desktop":                      {app, 0o755},
		"usr/share/applications/" + install.DesktopFile: {[]byte(entry), 0o644},
		"usr/lib/systemd/user/" + install.UnitFile:      {[]byte(unit), 0o644},
		"usr/share/man/man1/everdict-desktop.1.gz":      {zipped(manPage), 0o644},
		"usr/share/doc/" + debName + "/copyright":       {r.copyright(licence), 0o644},
		"usr/share/doc/" + debName + "/changelog.gz":    {zipped(r.changelog()), 0o644},
	}
	for name, icon := range install.Icons() {
		files["usr/share/icons/"+name] = file{icon, 0o644}
	}
	if r.cli != "" && t.native() {
		cli, err := os.ReadFile(r.cli)
		if err != nil {
			return nil, err
		}
		files["usr/bin/everdict"] = file{cli, 0o755}
		linked, cgo = append(linked, "./cmd/everdict"), "1"
	}
	notices, err := r.notices(ctx, t, cgo, linked...)
	if err != nil {
		return nil, err
	}
	files["usr/share/doc/"+debName+"/third-party.gz"] = file{zipped(notices), 0o644}
	return files, nil
}

// stage writes a file of the package, with the time that all have.
func (r release) stage(root, name string, f file) error {
	path := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, f.content, f.mode); err != nil {
		return err
	}
	if err := os.Chmod(path, f.mode); err != nil { // whatever the umask is
		return err
	}
	for dir := filepath.Dir(path); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return os.Chtimes(path, r.when, r.when)
}

// debVersion is a version as Debian orders them: v1.2.3-4-gabc is after 1.2.3, and what
// has no version is before every release.
func debVersion(version string) string {
	v := strings.TrimPrefix(version, "v")
	v = strings.Map(func(c rune) rune {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '.', c == '~', c == '+':
			return c
		}
		return '+'
	}, v)
	// A commit alone may begin with a digit too: a release has a dot.
	if first, _, _ := strings.Cut(v, "+"); v == "" || v[0] < '0' || v[0] > '9' || !strings.Contains(first, ".") {
		return "0~" + v
	}
	return v
}

func (r release) changelog() []byte {
	return fmt.Appendf(nil, `%s (%s) unstable; urgency=medium

  * What has changed is told in CHANGELOG.md of the sources.

 -- Everdict <everdict@users.noreply.github.com>  %s
`, debName, debVersion(r.version), r.when.Format(time.RFC1123Z))
}

// copyright is the licence as Debian writes it down.
func (r release) copyright(licence []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Everdict
Source: https://github.com/everdict/everdict

Files: *
Copyright: %d the Everdict authors
License: Apache-2.0
Comment: The programs are linked with Go modules of others. Their licences are in
 third-party.gz beside this file.

License: Apache-2.0
`, r.when.Year())
	if bytes.Contains(licence, []byte("Apache License")) {
		b.WriteString(" On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.\n")
	}
	return b.Bytes()
}

// zipped is content as gzip -9n makes it.
func zipped(content []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = io.Copy(w, bytes.NewReader(content))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // the level is one, and a buffer takes everything
	}
	return b.Bytes()
}
