// Package install makes the app known to the desktop of this user: an entry in its menu
// and icons, the handler of everdict:// links, the start at login, a systemd unit. What
// it writes are texts that other packages of the system read; the builders of those texts
// are functions without side effects, so that each is tested on every system.
//
// Install never overwrites what it did not write, and keeps a list of what it did, so that
// Uninstall takes away that and nothing else: a file that was changed since is somebody's,
// and stays.
package install

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Config says what to install and where.
type Config struct {
	// Executable is the absolute path of everdict-desktop.
	Executable string
	// AtLogin starts it at login as well.
	AtLogin bool
	// Service writes the systemd unit as well, for machines that nobody sits at. Linux only.
	Service bool
	// TakeOver makes us the handler of everdict:// links even if there is another.
	TakeOver bool

	// Home, DataHome and ConfigHome are this user's directories. Default: what HOME,
	// XDG_DATA_HOME and XDG_CONFIG_HOME say.
	Home, DataHome, ConfigHome string
	// DataDirs are those of all users. Default: what XDG_DATA_DIRS says.
	DataDirs []string
}

// Report says what was done, each entry a path or a registry key.
type Report struct {
	// Written is what was put in place or brought up to date.
	Written []string
	// Unchanged was in place already.
	Unchanged []string
	// Removed was taken away.
	Removed []string
	// Kept is what was left as it is because it is not ours, with the reason.
	Kept []Kept
	// Handler is the other program that opens everdict:// links; "" if we do.
	Handler string
	// Next are commands that are left to do, if any.
	Next []string
}

// Kept is something that was left as it is.
type Kept struct{ What, Why string }

// Print writes the report for a person.
func (r Report) Print(w io.Writer) {
	for _, group := range []struct {
		verb string
		what []string
	}{{"wrote", r.Written}, {"unchanged", r.Unchanged}, {"removed", r.Removed}} {
		for _, what := range group.what {
			fmt.Fprintln(w, group.verb, what)
		}
	}
	for _, k := range r.Kept {
		fmt.Fprintf(w, "kept %s: %s\n", k.What, k.Why)
	}
	if r.Handler != "" {
		fmt.Fprintf(w, "everdict:// links are opened by %s; --take-over changes that\n", r.Handler)
	}
	for _, next := range r.Next {
		fmt.Fprintln(w, "next:", next)
	}
}

// Install puts the app in place for this user. Doing it again brings it up to date. What
// is somebody else's is reported, and is no error.
func Install(ctx context.Context, cfg Config) (Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Report{}, fmt.Errorf("install: %w", err)
	}
	r, err := install(ctx, cfg)
	if err != nil {
		return r, fmt.Errorf("install: %w", err)
	}
	return r, nil
}

// Uninstall takes away what Install and AtLogin put in place.
func Uninstall(ctx context.Context, cfg Config) (Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Report{}, fmt.Errorf("uninstall: %w", err)
	}
	r, err := uninstall(ctx, cfg)
	if err != nil {
		return r, fmt.Errorf("uninstall: %w", err)
	}
	return r, nil
}

// AtLogin starts the app at login from now on, or no longer.
func AtLogin(ctx context.Context, cfg Config, on bool) (Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Report{}, fmt.Errorf("start at login: %w", err)
	}
	r, err := atLogin(ctx, cfg, on)
	if err != nil {
		return r, fmt.Errorf("start at login: %w", err)
	}
	return r, nil
}

// StartsAtLogin says whether the app is started at login, whoever arranged that. What has the place
// of AtLogin and starts something else does not count.
func StartsAtLogin(ctx context.Context, cfg Config) (bool, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return false, fmt.Errorf("start at login: %w", err)
	}
	return startsAtLogin(ctx, cfg)
}

func (c Config) withDefaults() (Config, error) {
	if c.Executable == "" {
		self, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("find our own program: %w", err)
		}
		c.Executable = self
	}
	if c.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return c, fmt.Errorf("find the home directory: %w", err)
		}
		c.Home = home
	}
	// A relative path in these variables is to be ignored, says their specification.
	dir := func(set, variable, below string) string {
		if set != "" {
			return set
		}
		if v := os.Getenv(variable); filepath.IsAbs(v) {
			return v
		}
		return filepath.Join(c.Home, below)
	}
	c.DataHome = dir(c.DataHome, "XDG_DATA_HOME", ".local/share")
	c.ConfigHome = dir(c.ConfigHome, "XDG_CONFIG_HOME", ".config")
	if c.DataDirs == nil {
		c.DataDirs = filepath.SplitList(os.Getenv("XDG_DATA_DIRS"))
		if len(c.DataDirs) == 0 {
			c.DataDirs = []string{"/usr/local/share", "/usr/share"}
		}
	}
	return c, nil
}
