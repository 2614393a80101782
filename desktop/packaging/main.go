// Command packaging makes the packages of the desktop app: a .deb for each Debian
// architecture, a zip for Windows, a zip with a macOS bundle. It needs Go and dpkg-deb.
//
//	go run ./desktop/packaging -version v1.2.3 -out .cache/packages
//
// The same sources, tools, -cli and SOURCE_DATE_EPOCH make the same bytes. Without that
// variable the time is that of the last commit.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// target is a system and an architecture, as Go names them.
type target struct{ OS, Arch string }

func (t target) String() string { return t.OS + "/" + t.Arch }

// targets are what the app is built for.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
}

// release is what all packages of one build have in common.
type release struct {
	root    string // of the repository
	version string // as git describe says it
	when    time.Time
	// cli is a program everdict for the machine that this runs on; "" packs none. It has
	// SQLite in it, which is C, and so is not built for other machines.
	cli string
}

func main() {
	version := flag.String("version", "dev", "version of the packages")
	out := flag.String("out", ".cache/packages", "directory for the packages")
	cli := flag.String("cli", "", "the program everdict to pack into the .deb of this machine's architecture")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := packages(ctx, *version, *out, *cli); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func packages(ctx context.Context, version, out, cli string) error {
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	when, err := sourceDate(ctx)
	if err != nil {
		return err
	}
	r := release{root: root, version: version, when: when, cli: cli}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "everdict-packaging-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, t := range targets {
		program := filepath.Join(work, t.OS+"-"+t.Arch)
		if err := r.build(ctx, t, program); err != nil {
			return err
		}
		file, err := r.pack(ctx, t, program, out)
		if err != nil {
			return fmt.Errorf("pack %v: %w", t, err)
		}
		fmt.Println(file)
	}
	return nil
}

// pack makes the package of one target from its program, and returns its path.
func (r release) pack(ctx context.Context, t target, program, out string) (string, error) {
	switch t.OS {
	case "linux":
		return r.deb(ctx, t, program, out)
	case "windows":
		return r.windows(ctx, t, program, out)
	case "darwin":
		return r.mac(ctx, t, program, out)
	}
	return "", fmt.Errorf("there is no package for %v", t)
}

// build builds the app. No build of it uses cgo.
func (r release) build(ctx context.Context, t target, program string) error {
	ldflags := "-s -w -X main.version=" + r.version
	if t.OS == "windows" {
		ldflags += " -H windowsgui" // no console beside it
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", program, "./cmd/everdict-desktop")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.OS, "GOARCH="+t.Arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build for %v: %w\n%s", t, err, out)
	}
	return nil
}

// native says whether the target is the machine that this runs on.
func (t target) native() bool { return t.OS == runtime.GOOS && t.Arch == runtime.GOARCH }

func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// sourceDate is the time that all files have.
func sourceDate(ctx context.Context) (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask git for the time of the last commit (SOURCE_DATE_EPOCH sets it): %w", err)
		}
		epoch = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: want seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
