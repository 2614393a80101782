package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"embed"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/everdict/everdict/desktop/install"
)

//go:embed files/windows.txt files/macos.txt files/install.cmd files/uninstall.cmd
var texts embed.FS

// windows makes the zip for Windows.
func (r release) windows(ctx context.Context, t target, program, out string) (string, error) {
	files, err := r.common(ctx, t, "files/windows.txt")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"LICENSE.txt", "README.txt", "third-party.txt"} {
		f := files[name]
		f.content = bytes.ReplaceAll(bytes.ReplaceAll(f.content, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
		files[name] = f
	}
	for _, name := range []string{"install.cmd", "uninstall.cmd"} {
		content, err := texts.ReadFile("files/" + name)
		if err != nil {
			return "", err
		}
		files[name] = file{content, 0o644}
	}
	app, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	files["everdict-desktop.exe"] = file{app, 0o755}
	return r.zip(out, t, "Everdict", files)
}

// mac makes the zip with the bundle for macOS.
func (r release) mac(ctx context.Context, t target, program, out string) (string, error) {
	files, err := r.common(ctx, t, "files/macos.txt")
	if err != nil {
		return "", err
	}
	app, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	const contents = "Everdict.app/Contents/"
	files[contents+"Info.plist"] = file{[]byte(install.InfoPlist(macVersion(r.version))), 0o644}
	files[contents+"PkgInfo"] = file{[]byte("APPL????"), 0o644}
	files[contents+"MacOS/"+install.BundleExecutable] = file{app, 0o755}
	files[contents+"Resources/"+install.BundleIcon] = file{install.IconICNS(), 0o644}
	return r.zip(out, t, "Everdict", files)
}

// common is what both have.
func (r release) common(ctx context.Context, t target, readme string) (map[string]file, error) {
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	text, err := texts.ReadFile(readme)
	if err != nil {
		return nil, err
	}
	notices, err := r.notices(ctx, t, "0", "./cmd/everdict-desktop")
	if err != nil {
		return nil, err
	}
	return map[string]file{"LICENSE.txt": {licence, 0o644}, "README.txt": {text, 0o644}, "third-party.txt": {notices, 0o644}}, nil
}

// macVersion is the part of a version that macOS takes: three numbers.
func macVersion(version string) string {
	v, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	for _, c := range v {
		if c != '.' && (c < '0' || c > '9') {
			return "0.0.0"
		}
	}
	if !strings.Contains(v, ".") {
		return "0.0.0"
	}
	return v
}

// zip writes files into one directory of an archive, in the order of their names.
func (r release) zip(out string, t target, dir string, files map[string]file) (path string, err error) {
	system := map[string]string{"windows": "windows", "darwin": "macos"}[t.OS]
	path = filepath.Join(out, fmt.Sprintf("everdict-desktop_%s_%s_%s.zip", strings.TrimPrefix(r.version, "v"), system, t.Arch))
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		header := &zip.FileHeader{Name: dir + "/" + name, Method: zip.Deflate, Modified: r.when}
		header.SetMode(f.mode)
		entry, err := w.CreateHeader(header)
		if err != nil {
			return "", err
		}
		if _, err := entry.Write(f.content); err != nil {
			return "", err
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, b.Bytes(), 0o644)
}
