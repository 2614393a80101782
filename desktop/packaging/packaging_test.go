package main

import (
	"archive/zip"
	"bytes"
	"context"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"howett.net/plist"
)

// built are the packages of all targets, made once: by target, and the program in each.
type built struct {
	release  release
	dir      string
	programs map[target]string
	packages map[target]string
	err      error
}

var (
	buildOnce sync.Once
	result    built
)

func TestMain(m *testing.M) {
	code := m.Run()
	if result.dir != "" {
		os.RemoveAll(result.dir)
	}
	os.Exit(code)
}

// build builds the app for every target, and packs it.
func build(t *testing.T) built {
	t.Helper()
	buildOnce.Do(func() { result.err = result.run() })
	if result.err != nil {
		t.Fatal(result.err)
	}
	return result
}

func (b *built) run() (err error) {
	ctx := context.Background() // it outlives the test that asks first
	if b.dir, err = os.MkdirTemp("", "everdict-packaging-test-"); err != nil {
		return err
	}
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	cli := filepath.Join(b.dir, "everdict")
	cmd := exec.Command("go", "build", "-o", cli, "./cmd/everdict")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return &buildError{err, out}
	}
	b.release = release{root: root, version: "v1.2.3", when: time.Unix(1_700_000_000, 0).UTC(), cli: cli}
	b.programs, b.packages = map[target]string{}, map[target]string{}
	for _, t := range targets {
		b.programs[t] = filepath.Join(b.dir, t.OS+"-"+t.Arch)
		if err := b.release.build(ctx, t, b.programs[t]); err != nil {
			return err
		}
		if b.packages[t], err = b.release.pack(ctx, t, b.programs[t], b.dir); err != nil {
			return err
		}
	}
	return nil
}

type buildError struct {
	err error
	out []byte
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + string(e.out) }

// TestProgramOfEveryTarget: each is a program of its system and its architecture.
func TestProgramOfEveryTarget(t *testing.T) {
	b := build(t)
	for target, path := range b.programs {
		switch target.OS {
		case "linux":
			f, err := elf.Open(path)
			if err != nil {
				t.Fatalf("%v: %v", target, err)
			}
			defer f.Close()
			want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[target.Arch]
			libraries, err := f.ImportedLibraries()
			if f.Machine != want || err != nil {
				t.Errorf("%v: a program for %v (%v)", target, f.Machine, err)
			}
			// What the .deb depends on: the C library and nothing else.
			for _, lib := range libraries {
				if !slices.Contains([]string{"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, lib) {
					t.Errorf("%v needs %s", target, lib)
				}
			}
		case "windows":
			f, err := pe.Open(path)
			if err != nil {
				t.Fatalf("%v: %v", target, err)
			}
			defer f.Close()
			want := map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64}[target.Arch]
			header, ok := f.OptionalHeader.(*pe.OptionalHeader64)
			if f.Machine != want || !ok || header.Subsystem != pe.IMAGE_SUBSYSTEM_WINDOWS_GUI {
				t.Errorf("%v: machine %#x, header %+v, want %#x without a console", target, f.Machine, header, want)
			}
		case "darwin":
			f, err := macho.Open(path)
			if err != nil {
				t.Fatalf("%v: %v", target, err)
			}
			defer f.Close()
			if want := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[target.Arch]; f.Cpu != want {
				t.Errorf("%v: a program for %v", target, f.Cpu)
			}
		}
	}
}

// TestSameBytes: the same programs make the same packages. One of each kind: to compress the
// program everdict again takes its time.
func TestSameBytes(t *testing.T) {
	b := build(t)
	for _, target := range []target{{"linux", "arm64"}, {"windows", "amd64"}, {"darwin", "arm64"}} {
		path := b.packages[target]
		again, err := b.release.pack(t.Context(), target, b.programs[target], t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		first, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := os.ReadFile(again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: packed twice it has %d and %d bytes that differ (%v)", filepath.Base(path), len(first), len(second), err)
		}
	}
}

// unzip reads an archive.
func unzip(t *testing.T, path string) (files map[string][]byte, modes map[string]os.FileMode) {
	t.Helper()
	r, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	files, modes = map[string][]byte{}, map[string]os.FileMode{}
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name], modes[f.Name] = content, f.Mode()
	}
	return files, modes
}

func TestWindowsZip(t *testing.T) {
	b := build(t)
	for _, arch := range []string{"amd64", "arm64"} {
		target := target{"windows", arch}
		files, _ := unzip(t, b.packages[target])
		program, err := os.ReadFile(b.programs[target])
		if err != nil || !bytes.Equal(files["Everdict/everdict-desktop.exe"], program) {
			t.Errorf("%v: its program is not the one that was built (%v)", target, err)
		}
		for _, name := range []string{"README.txt", "LICENSE.txt", "third-party.txt", "install.cmd", "uninstall.cmd"} {
			content := files["Everdict/"+name]
			if len(content) == 0 || bytes.Count(content, []byte("\n")) != bytes.Count(content, []byte("\r\n")) {
				t.Errorf("%v: %s has %d bytes, want some, with the line ends of Windows", target, name, len(content))
			}
		}
		if !bytes.Contains(files["Everdict/README.txt"], []byte("not signed")) {
			t.Errorf("%v: its README does not say that it is not signed", target)
		}
		if !bytes.Contains(files["Everdict/third-party.txt"], []byte("golang.org/x/sys")) {
			t.Errorf("%v: a module is missing among the licences", target)
		}
		if len(files) != 6 {
			t.Errorf("%v: it has %d files", target, len(files))
		}
	}
}

func TestMacBundle(t *testing.T) {
	b := build(t)
	for _, arch := range []string{"amd64", "arm64"} {
		target := target{"darwin", arch}
		files, modes := unzip(t, b.packages[target])
		const contents = "Everdict/Everdict.app/Contents/"
		var info struct {
			Executable string `plist:"CFBundleExecutable"`
			Icon       string `plist:"CFBundleIconFile"`
			Version    string `plist:"CFBundleShortVersionString"`
		}
		if _, err := plist.Unmarshal(files[contents+"Info.plist"], &info); err != nil {
			t.Fatalf("%v: %v", target, err)
		}
		program, err := os.ReadFile(b.programs[target])
		if exe := contents + "MacOS/" + info.Executable; err != nil || !bytes.Equal(files[exe], program) || modes[exe].Perm() != 0o755 {
			t.Errorf("%v: %s is not the program that was built, or of mode %v (%v)", target, exe, modes[exe], err)
		}
		if icon := files[contents+"Resources/"+info.Icon]; !bytes.HasPrefix(icon, []byte("icns")) {
			t.Errorf("%v: there is no icon %s", target, info.Icon)
		}
		if info.Version != "1.2.3" || !bytes.Contains(files["Everdict/README.txt"], []byte("not signed")) {
			t.Errorf("%v: version %q, want 1.2.3, and a README that says that it is not signed", target, info.Version)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ version, deb, mac string }{
		{"v1.2.3", "1.2.3", "1.2.3"},
		{"v1.2.3-4-gabc1234", "1.2.3+4+gabc1234", "1.2.3"},
		{"v1.2.3-dirty", "1.2.3+dirty", "1.2.3"},
		{"5aebe77", "0~5aebe77", "0.0.0"},
		{"5aebe77-dirty", "0~5aebe77+dirty", "0.0.0"},
		{"abc1234", "0~abc1234", "0.0.0"},
		{"dev", "0~dev", "0.0.0"},
		{"", "0~", "0.0.0"},
	} {
		if got := debVersion(tt.version); got != tt.deb {
			t.Errorf("%q is %q for Debian, want %q", tt.version, got, tt.deb)
		}
		if got := macVersion(tt.version); got != tt.mac {
			t.Errorf("%q is %q for macOS, want %q", tt.version, got, tt.mac)
		}
	}
}

func TestSourceDate(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	if got, err := sourceDate(t.Context()); err != nil || got.Unix() != 1_700_000_000 {
		t.Errorf("SOURCE_DATE_EPOCH was read as %v, %v", got, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := sourceDate(t.Context()); err == nil || !strings.Contains(err.Error(), "seconds since 1970") {
		t.Errorf("a SOURCE_DATE_EPOCH that is no number: %v", err)
	}
}
