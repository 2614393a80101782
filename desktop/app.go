// Package desktop is the resident desktop app: this computer as a runner of one or several coordinators, with what a
// person at it sees and decides. It composes the packages below it; each connection is one agent.Runner with directories,
// lock and sandboxes of its own.
//
// The App's mutex guards everything that State shows. It is held for moments only, never over a call that waits; the
// goroutines that wait are those of the connections (connection.go), of a pairing (pairing.go) and of Run.
package desktop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/history"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/desktop/settings"
	"github.com/everdict/everdict/desktop/vault"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Config of an App. Dirs and Lookup are required; what is nil is not there.
type Config struct {
	Dirs    home.Dirs
	Version string
	Log     *slog.Logger
	// Lookup finds the harness of a spec.
	Lookup func(*protocol.HarnessSpec) (harness.Harness, error)
	// Keyring is the system's.
	Keyring vault.Keyring
	// Browser opens a web address in the user's browser.
	Browser func(url string) error
	// Window shows the page, or brings the window that shows it to the front. url gives an address that is good once.
	Window func(ctx context.Context, url func() (string, error)) error
	// Notify shows a notification.
	Notify func(ctx context.Context, title, body string) error
	// OnBattery says where the power comes from; an error: nobody knows.
	OnBattery func(ctx context.Context) (bool, error)
	// PowerChanges sends when that may have changed; an error: it has to be asked from time to time.
	PowerChanges func(ctx context.Context) (<-chan struct{}, error)
	// Autostart makes the app start at login, or not. kept says in words what it left as it is because that is not the app's;
	// empty: nothing.
	Autostart func(ctx context.Context, on bool) (kept string, err error)
	// StartsAtLogin says whether the app is started at login, whoever has arranged that.
	StartsAtLogin func(ctx context.Context) (bool, error)
	// Assets are the page.
	Assets http.Handler
	// Everdict is the everdict program, for the PATH of jobs; empty: none.
	Everdict string
	// Roster is where the runners of this user list what no job may see.
	Roster string
	// CAFile is trusted beside the system's certificates.
	CAFile string
	// Timing is used until a coordinator announces its own.
	Timing link.Timing
	// DrainTimeout is how long jobs may go on when the app is asked to end. Default 20 s.
	DrainTimeout time.Duration
}

// App is the resident app. Use New, then Run once.
type App struct {
	cfg     Config
	log     *slog.Logger
	vault   *vault.Vault
	history *history.History
	page    *control.Page

	ready   chan struct{} // closed by Run when the app can be steered
	quit    chan struct{} // closed by Quit
	hurry   chan struct{} // closed when what runs is to be given back at once
	ending  sync.Once
	hurried sync.Once
	// runs waits for the connections' goroutines and the pairing's.
	runs sync.WaitGroup
	// ctx is the life of the connections, set by Run.
	ctx context.Context

	setting sync.Mutex // held while settings are written and come into force; taken before mu

	mu          sync.Mutex
	closing     bool
	rev         int64
	changed     chan struct{} // closed and replaced with each rev
	settings    control.Settings
	connections []*connection
	leftovers   []leftover // pairings whose end is not known
	pairing     *pairing
	question    *control.Question
	link        protocol.DeepLink // of question
	notices     []control.Notice
	keys        control.Keys
	power       control.Power
	powerTold   bool // changes of power are told, and not asked for
	hoursOpen   bool
	hoursChange time.Time
	lookedAt    time.Time // when hours and power were last looked at
	machine     *control.Machine
	machineRev  int64
	historyRev  int64
	status      control.Status // as it was last notified
}

var _ control.App = (*App)(nil)

// New returns an app that does nothing yet. Files that cannot be read are moved aside and said in a notice.
func New(cfg Config) (*App, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Assets == nil {
		cfg.Assets = http.NotFoundHandler()
	}
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 20*time.Second)
	if err := cfg.Dirs.Make(); err != nil {
		return nil, err
	}
	keys := filepath.Join(cfg.Dirs.Config, "keys")
	home.Sweep(cfg.Dirs.Config, keys, cfg.Dirs.State)
	keeps := cfg.Dirs.Private()
	if err := lanes.Enlist(context.Background(), cfg.Roster, keeps); cfg.Roster != "" && err != nil {
		cfg.Log.Warn("jobs of other runners of this user can read what the app keeps", "err", err)
	}
	a := &App{
		cfg: cfg, log: cfg.Log, vault: &vault.Vault{Dir: keys, Keyring: cfg.Keyring},
		ready: make(chan struct{}), quit: make(chan struct{}), hurry: make(chan struct{}), changed: make(chan struct{}), rev: 1,
		settings: settings.Default(), hoursOpen: true, keys: control.Keys{Place: control.FilePlace},
	}
	a.page = control.NewPage(a, cfg.Assets, cfg.Log)
	var err error
	if a.history, err = history.Open(filepath.Join(cfg.Dirs.State, "history")); err != nil {
		a.log.Error("history cannot be read", "err", err)
		a.notice("error", "The history of jobs cannot be read: "+err.Error(), "")
	}
	if err := home.Read(a.settingsPath(), settingsVersion, &a.settings, settings.Check); err != nil {
		if err := a.broken(err, "The settings", "They are back to what they were in the beginning: look at them."); err != nil {
			return nil, err
		}
	}
	var kept keptConnections
	if err := home.Read(a.connectionsPath(), connectionsVersion, &kept, (*keptConnections).check); err != nil {
		if err := a.broken(err, "The list of connections", "Connect this computer anew, and remove its old runners at the coordinator."); err != nil {
			return nil, err
		}
	}
	for _, r := range kept.Connections {
		a.connections = append(a.connections, newConnection(a, r))
	}
	a.leftovers = kept.Leftovers
	return a, nil
}

// broken says that a document was moved aside; any other error is returned.
func (a *App) broken(err error, what, next string) error {
	var b *home.BrokenError
	if !errors.As(err, &b) {
		return err
	}
	a.log.Error("a file is broken and was moved aside", "file", b.Path, "aside", b.Aside, "err", b.Err)
	a.notice("error", fmt.Sprintf("%s could not be read and was moved to %s.", what, filepath.Base(b.Aside)), next)
	return nil
}

// Run is the app until Quit or the end of ctx, which lets what runs go on for DrainTimeout. A second Quit by force, or
// Hurry, gives it back at once.
func (a *App) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	a.mu.Lock()
	a.ctx = life
	start := slices.Clone(a.connections)
	a.mu.Unlock()
	a.lookAround(ctx)
	a.refreshKeys(ctx)
	settling, stopSettling := context.WithCancel(life)
	defer stopSettling()
	a.settle(settling)
	for _, c := range start {
		if c.rec.Unpairing { // an earlier life did not see it through
			a.runs.Go(func() {
				out, err := a.Unpair(life, c.rec.ID)
				a.sayUnpaired(out, err, "")
			})
			continue
		}
		c.start(life)
	}
	close(a.ready)
	var plugged <-chan struct{}
	if a.cfg.PowerChanges != nil {
		changes, err := a.cfg.PowerChanges(life)
		if err == nil {
			plugged = changes
		}
	}
	a.mu.Lock()
	a.powerTold = plugged != nil
	a.mu.Unlock()
	look := time.NewTimer(a.nextLook())
	defer look.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-a.quit:
			done = true
		case <-look.C:
			a.lookAround(ctx)
			look.Reset(a.nextLook())
		case _, ok := <-plugged:
			if !ok {
				plugged = nil
				continue
			}
			a.lookAround(ctx)
		}
	}
	a.mu.Lock()
	a.closing = true // no goroutine begins any more
	if a.pairing != nil {
		a.pairing.cancel()
	}
	all := slices.Clone(a.connections)
	a.mu.Unlock()
	stopSettling() // the next start goes on with it
	for _, c := range all {
		c.drain()
	}
	over := make(chan struct{})
	go func() {
		a.runs.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-a.hurry:
		end()
		<-over
	}
	return a.page.Close()
}

// Ready is closed when Run has begun, and the app can be steered.
func (a *App) Ready() <-chan struct{} { return a.ready }

// Hurry makes an app that ends give back at once what still runs.
func (a *App) Hurry() { a.hurried.Do(func() { close(a.hurry) }) }

// Quit implements control.App.
func (a *App) Quit(_ context.Context, r control.QuitRequest) error {
	if jobs := a.jobs(); len(jobs) > 0 && !r.Force {
		names := make([]string, len(jobs))
		for i, j := range jobs {
			names[i] = j.Run
		}
		return protocol.Conflict("%s here, and would be given back to the queue", count(len(jobs), "a job runs", "jobs run")).
			WithData("reason", "JOB_RUNNING").WithData("runs", names).WithHint("let it end, or quit by force")
	}
	if r.Force {
		a.Hurry()
	}
	a.ending.Do(func() { close(a.quit) })
	return nil
}

func (a *App) jobs() []control.Job {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []control.Job
	for _, c := range a.connections {
		out = append(out, c.jobList()...)
	}
	return out
}

// change runs f with the mutex and makes what it did a new State. The connections are paused or resumed by it.
func (a *App) change(f func()) {
	a.mu.Lock()
	f()
	for _, c := range a.connections {
		c.applyPauses()
	}
	a.rev++
	close(a.changed)
	a.changed = make(chan struct{})
	words := a.notification()
	a.mu.Unlock()
	a.tell(words)
}

// Changed implements control.App.
func (a *App) Changed(rev int64) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rev > rev {
		now := make(chan struct{})
		close(now)
		return now
	}
	return a.changed
}

// State implements control.App.
func (a *App) State() control.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := control.State{
		Rev: a.rev, Version: a.cfg.Version, Device: control.Device{Name: deviceName(), OS: runtime.GOOS, Arch: runtime.GOARCH},
		Status: control.StatusNone, Connections: []control.Connection{}, Settings: a.settings, Keys: a.keys, Power: a.power,
		Notices: append([]control.Notice{}, a.notices...), HistoryRev: a.historyRev, MachineRev: a.machineRev,
	}
	s.Settings.Hours = append([]control.Hours{}, a.settings.Hours...)
	for _, c := range a.connections {
		s.Connections = append(s.Connections, c.view())
	}
	s.Status, s.Text = overall(s.Connections)
	if a.pairing != nil {
		p := a.pairing.view
		s.Pairing = &p
	}
	if a.question != nil {
		q := *a.question
		s.Question = &q
	}
	return s
}

func deviceName() string {
	name, err := os.Hostname()
	if err != nil || !protocol.ValidName(name, 80) {
		return "this computer"
	}
	return name
}

// notice adds something to read. Before Run it needs no mutex, later the caller has it.
func (a *App) notice(level, text, next string) {
	a.notices = append(a.notices, control.Notice{ID: protocol.NewID("not_"), Text: text, Next: next, Level: level, At: protocol.At(time.Now())})
	if len(a.notices) > maxNotices {
		a.notices = a.notices[1:]
	}
}

// maxNotices bounds what waits to be read.
const maxNotices = 20

// Dismiss implements control.App.
func (a *App) Dismiss(_ context.Context, id string) error {
	a.change(func() {
		if id == "pairing" {
			if a.pairing != nil && a.pairing.over() {
				a.pairing = nil
			}
			return
		}
		a.notices = slices.DeleteFunc(a.notices, func(n control.Notice) bool { return n.ID == id })
	})
	return nil
}

// find returns a connection. The caller has the mutex.
func (a *App) find(id string) (*connection, error) {
	for _, c := range a.connections {
		if c.rec.ID == id {
			return c, nil
		}
	}
	return nil, protocol.NotFound("there is no connection %s", protocol.Clip(id, 40)).WithHint("everdict-desktop status lists them")
}

func (a *App) lookup(id string) (*connection, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.find(id)
}
