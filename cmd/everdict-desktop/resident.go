package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/agent/harness/builtin"
	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/desktop"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/desktop/install"
	"github.com/everdict/everdict/desktop/instance"
	"github.com/everdict/everdict/desktop/notify"
	"github.com/everdict/everdict/desktop/page"
	"github.com/everdict/everdict/desktop/power"
	"github.com/everdict/everdict/desktop/tray"
	"github.com/everdict/everdict/desktop/vault"
	"github.com/everdict/everdict/desktop/window"
)

const (
	// handOver bounds how long a second process tries to reach the first, which may be starting.
	handOver = 15 * time.Second
	// gcPercent makes the collector work more often than Go's 100: a resident app that lives in 10 MB is measured by what it
	// holds, not by how fast it allocates. GOGC in the environment goes before it.
	gcPercent = 30
	// firstTray and lastTray bound how long a tray that could not be shown, or that is gone, is left alone before it is shown
	// again. The longer one is seldom enough for a machine that never has a session bus.
	firstTray = 2 * time.Second
	lastTray  = 5 * time.Minute
)

func residentCommand() *cobra.Command {
	var o resident
	var linkFD int
	cmd := &cobra.Command{
		Use:   "everdict-desktop [LINK]",
		Short: "This computer as a runner of Everdict, with a tray icon and a window",
		Long: `This computer as a runner of Everdict, with a tray icon and a window. There is one app for each user: started again, the
first one shows its window, and takes the everdict:// link, if there is one.

SIGTERM drains: no new runs are taken, and what runs may go on for 20 s before it is given back to the queue; a second one gives it
back at once.` + files(),
		Example: `  everdict-desktop
  everdict-desktop --background           # as at login: no window
  everdict-desktop --no-tray --background # a machine without a desktop
  everdict-desktop pair https://everdict.example`,
		Args: onlyLink,
		RunE: func(cmd *cobra.Command, args []string) error {
			link, err := takeLink(args, linkFD)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), link)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.hidden, "background", false, "show no window at the start")
	f.BoolVar(&o.hidden, "hidden", false, "the same")
	f.BoolVar(&o.noTray, "no-tray", false, "show nothing by itself: no icon in the tray, no window at the start")
	f.BoolVar(&o.toStderr, "log-stderr", false, "write the log to standard error as well")
	f.IntVar(&linkFD, "link-fd", 0, "")
	_ = f.MarkHidden("link-fd") // it is there
	return cmd
}

// files says where this user's files are, as a paragraph of the help; empty: nobody knows.
func files() string {
	dirs, err := home.Find()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("\n\nSettings, connections and keys that are in files lie in %s, the log is %s.", dirs.Config, dirs.Log())
}

// resident is the app as a process.
type resident struct{ hidden, noTray, toStderr bool }

func (o *resident) run(ctx context.Context, link string) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	dirs, err := home.Find()
	if err != nil {
		return err
	}
	one, err := instance.Acquire(dirs.Socket())
	if errors.Is(err, instance.ErrRunning) {
		return o.handOver(ctx, dirs, link)
	}
	if err != nil {
		return err
	}
	defer one.Close()
	if err := dirs.Make(); err != nil {
		return err
	}
	file, err := openLog(dirs.Log())
	if err != nil {
		return err
	}
	defer file.Close()
	log := slog.New(slog.NewTextHandler(logTo(file, o.toStderr), nil))
	if err := process.HideSelf(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		log.Warn("other programs of this user can look into the app", "err", err)
	}
	log.Info("the app starts", "version", version, "pid", os.Getpid())
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	assets, err := page.Embedded()
	if err != nil {
		return err
	}
	windows := &windows{executable: executable, profiles: filepath.Join(dirs.State, "window")}
	a, err := desktop.New(desktop.Config{
		Dirs: dirs, Version: version, Log: log, Lookup: builtin.Lookup, Keyring: vault.System{},
		Browser: window.OpenURL, Window: windows.show, Notify: notify.Notify, OnBattery: power.OnBattery, PowerChanges: power.Changes,
		Autostart: func(ctx context.Context, on bool) (string, error) {
			r, err := install.AtLogin(ctx, install.Config{Executable: executable}, on)
			return keptWords(r), err
		},
		StartsAtLogin: func(ctx context.Context) (bool, error) {
			return install.StartsAtLogin(ctx, install.Config{Executable: executable})
		},
		Assets: assets, Everdict: beside(executable), Roster: roster(), CAFile: os.Getenv("EVERDICT_CA_FILE"),
	})
	if err != nil {
		return err
	}
	return o.serve(ctx, a, one, windows, link, log)
}

// keptWords is what was left as it is, with the reasons.
func keptWords(r install.Report) string {
	var words []string
	for _, k := range r.Kept {
		words = append(words, k.What+": "+k.Why)
	}
	return strings.Join(words, "; ")
}

// serve is the app from here on. The tray has the main goroutine, which some systems want.
func (o *resident) serve(ctx context.Context, a *desktop.App, one *instance.Instance, windows *windows, link string, log *slog.Logger) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server := control.Socket(a)
	served := make(chan error, 1)
	go func() {
		<-a.Ready() // who comes earlier waits for an answer
		served <- server.Serve(one.Listener)
	}()
	hurry := make(chan os.Signal, 1)
	ran := make(chan error, 1)
	go func() {
		ran <- a.Run(ctx)
		end()
	}()
	go func() {
		select {
		case <-ctx.Done():
		case <-life.Done():
			return
		}
		signal.Notify(hurry, os.Interrupt, syscall.SIGTERM)
		select {
		case <-hurry:
			a.Hurry()
		case <-life.Done():
		}
	}()
	if !o.hidden && !o.noTray || link != "" {
		go func() {
			<-a.Ready()
			if _, err := a.Open(life, control.OpenRequest{Link: link}); err != nil {
				log.Error("the link could not be taken", "err", err)
			}
		}()
	}
	o.tray(life, a, log)
	<-life.Done()
	err := <-ran
	windows.close()
	_ = server.Close()
	<-served // ErrServerClosed
	log.Info("the app has ended", "err", err)
	return err
}

// tray shows the icon until ctx ends, or as long as there can be one.
func (o *resident) tray(ctx context.Context, a *desktop.App, log *slog.Logger) {
	if o.noTray {
		return
	}
	keepTray(ctx, log, func(ctx context.Context) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		states := make(chan tray.State)
		go func() {
			for {
				s := a.State()
				select {
				case states <- desktop.Tray(s):
				case <-ctx.Done():
					return
				}
				select {
				case <-a.Changed(s.Rev):
				case <-ctx.Done():
					return
				}
			}
		}()
		return tray.Run(ctx, tray.Config{
			States: states, Clicked: func(id string) { a.Clicked(ctx, id) }, Activated: func() { a.ShowWindow(ctx) },
			Opened: func(url string) {
				if _, err := a.Open(ctx, control.OpenRequest{Link: url}); err != nil {
					log.Error("the link could not be taken", "err", err)
				}
			},
		})
	})
}

// keepTray runs a tray until ctx ends. On Linux the bus that carries it can end and come back, or come late: it is run
// again then.
func keepTray(ctx context.Context, log *slog.Logger, run func(context.Context) error) {
	wait := firstTray
	for {
		err := run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.Is(err, tray.ErrGone) {
			wait = firstTray
		}
		again := runtime.GOOS == "linux" && (errors.Is(err, tray.ErrGone) || errors.Is(err, tray.ErrNoBus))
		if !again || wait == firstTray { // what is tried again says so once
			log.Warn("there is no tray icon: start the app again to see its window", "err", err, "again", again)
		}
		if !again {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, lastTray)
	}
}

// handOver gives the first process what this one was started with.
func (o *resident) handOver(ctx context.Context, dirs home.Dirs, link string) error {
	if o.hidden && link == "" {
		return nil // it is running, and that was all
	}
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	c := control.Dial(dirs.Socket())
	defer c.Close()
	for {
		opened, err := c.Open(ctx, link)
		switch {
		case err == nil && opened.Refused != "":
			return errors.New(opened.Refused)
		case err == nil:
			return nil
		case !errors.Is(err, control.ErrNotRunning):
			return err
		}
		select { // it holds the lock, and does not listen yet
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the app is running and does not answer: end it, and start it again")
		}
	}
}

// roster is where everdict runner has its own, so that the two hide each other's files.
func roster() string {
	if dir := os.Getenv("EVERDICT_ROSTER_DIR"); filepath.IsAbs(dir) {
		return dir
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return lanes.Roster(user, os.Getenv)
}

// beside is the everdict program next to this one; empty: there is none.
func beside(executable string) string {
	name := "everdict"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	path := filepath.Join(filepath.Dir(executable), name)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}
