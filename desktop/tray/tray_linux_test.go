package tray

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/eventually"
	"github.com/everdict/everdict/desktop/sessionbus/bustest"
)

// TestMain is also the app of the tests: the library's tray is one for a process.
func TestMain(m *testing.M) {
	if os.Getenv("TRAY_TEST_APP") != "" {
		app()
		return
	}
	os.Exit(m.Run())
}

// app shows the states that come as lines of JSON on stdin, and says on stdout what
// happens. At the end of stdin it stops the tray. "again" runs it again.
func app() {
	in := bufio.NewReader(os.Stdin)
	for {
		states := make(chan State)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Config{
				States:    states,
				Clicked:   func(id string) { fmt.Println("clicked", id) },
				Activated: func() { fmt.Println("activated") },
			})
		}()
		again := false
		for !again {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			if again = line == "again\n"; again {
				break
			}
			var s State
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				panic(err)
			}
			select {
			case states <- s:
			case err := <-ended:
				ended <- err
			}
		}
		if !again {
			cancel()
		}
		fmt.Println("ended", <-ended)
		cancel()
		if !again {
			return
		}
	}
}

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func start(t *testing.T, environ []string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self), lines: make(chan string, 4096)}
	p.cmd.Env = append(environ, "TRAY_TEST_APP=1")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-read
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) show(s State) {
	p.t.Helper()
	b, err := json.Marshal(s)
	if err == nil {
		_, err = p.in.Write(append(b, '\n'))
	}
	if err != nil {
		p.t.Fatalf("hand the app a state: %v", err)
	}
}

func (p *process) want(line string) {
	p.t.Helper()
	select {
	case got := <-p.lines:
		if got != line {
			p.t.Fatalf("the app said %q, want %q", got, line)
		}
	case <-time.After(eventually.Patience):
		p.t.Fatalf("the app did not say %q", line)
	}
}

func state(icon Icon, tooltip string) State {
	return State{Icon: icon, Title: "Everdict", Tooltip: tooltip, Items: []Item{
		{ID: "open", Title: "Open Everdict"},
		{ID: "line", Separator: true},
		{ID: "pause", Title: "Pause after this run"},
		{ID: "stop", Title: "Stop now", Disabled: true},
		{ID: "coordinators", Title: "Coordinators", Children: []Item{
			{ID: "c:a", Title: "a.example", Checked: true},
			{ID: "c:b", Title: "b.example"},
		}},
		{ID: "quit", Title: "Quit"},
	}}
}

func TestMenu(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	panel := bus.Panel(t)
	p := start(t, bus.Environ())
	p.show(state(Idle, "idle"))
	tray := panel.Tray(t)

	if l := tray.Find(t, "Coordinators", "a.example"); !l.Checked || !l.Enabled {
		t.Errorf("the coordinator in use is %+v, want a tick", l)
	}
	if l := tray.Find(t, "Stop now"); l.Enabled {
		t.Errorf("an item that is disabled is %+v", l)
	}
	menu, err := tray.Menu()
	if err != nil || len(menu) != 6 || !menu[1].Separator {
		t.Errorf("the menu is %+v (%v), want six lines of which the second is a separator", menu, err)
	}
	tray.Click(t, "Pause after this run")
	p.want("clicked pause")
	tray.Click(t, "Coordinators", "b.example")
	p.want("clicked c:b")
	tray.Activate(t)
	p.want("activated")

	before, err := tray.Look()
	if err != nil {
		t.Fatal(err)
	}
	if before.Title != "Everdict" || before.Tooltip != "idle" || before.Width != size || before.Pixels != argb(Idle) {
		t.Errorf("the icon is titled %q with tooltip %q, %d wide, want Everdict, idle, %d and the idle picture", before.Title, before.Tooltip, before.Width, size)
	}
	id := tray.Find(t, "Pause after this run").ID
	next := state(Paused, "paused")
	next.Items[2].Title = "Resume"
	next.Items[3].Disabled = false
	p.show(next)
	resume := tray.Find(t, "Resume")
	if resume.ID != id {
		t.Errorf("the line that changed its text was made anew (%d, then %d): an open menu would close", id, resume.ID)
	}
	eventually.Nil(t, "the paused icon", func() error {
		l, err := tray.Look()
		if err == nil && (l.Tooltip != "paused" || l.Pixels != argb(Paused)) {
			err = fmt.Errorf("tooltip %q, paused picture: %v", l.Tooltip, l.Pixels == argb(Paused))
		}
		return err
	})
	tray.Press(t, resume)
	p.want("clicked pause")

	// Another menu altogether.
	p.show(State{Icon: Attention, Title: "Everdict", Tooltip: "look", Items: []Item{{ID: "look", Title: "Look at this", Checked: true}}})
	tray.Click(t, "Look at this")
	p.want("clicked look")
	if menu, err := tray.Menu(); err != nil || len(menu) != 1 || !menu[0].Checked {
		t.Errorf("the menu is %+v (%v), want one line with a tick", menu, err)
	}

	p.in.Close()
	p.want("ended <nil>")
	eventually.Nil(t, "the icon to go", tray.Gone)
}

// argb is a picture as it is on the bus: with premultiplied colours.
func argb(i Icon) string {
	img := i.Image(size)
	var b strings.Builder
	for y := range size {
		for x := range size {
			r, g, bl, a := img.At(x, y).RGBA()
			b.Write([]byte{byte(a), byte(r), byte(g), byte(bl)})
		}
	}
	return b.String()
}

// TestEveryClick: the library drops clicks that come while one is being taken.
func TestEveryClick(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	panel := bus.Panel(t)
	p := start(t, bus.Environ())
	p.show(state(Idle, ""))
	tray := panel.Tray(t)
	open, quit := tray.Find(t, "Open Everdict"), tray.Find(t, "Quit")
	const rounds = 200
	for range rounds {
		tray.Press(t, open)
		tray.Press(t, quit)
	}
	got := map[string]int{}
	for range 2 * rounds {
		select {
		case line := <-p.lines:
			got[line]++
		case <-time.After(eventually.Patience):
			t.Fatalf("of %d clicks each on open and quit these came: %v", rounds, got)
		}
	}
	if got["clicked open"] != rounds || got["clicked quit"] != rounds {
		t.Errorf("of %d clicks each on open and quit these came: %v", rounds, got)
	}
}

func TestPanelThatComesLate(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	p := start(t, bus.Environ())
	p.show(state(Idle, "idle"))
	conn := bus.Connect(t)
	name := fmt.Sprintf("org.kde.StatusNotifierItem-%d-1", p.cmd.Process.Pid)
	eventually.Nil(t, "the icon to be on the bus", func() error {
		var owned bool
		err := conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, name).Store(&owned)
		if err == nil && !owned {
			err = errors.New("nobody owns " + name)
		}
		return err
	})
	p.show(state(Running, "running"))
	tray := bus.Panel(t).Tray(t)
	eventually.Nil(t, "the running icon", func() error {
		l, err := tray.Look()
		if err == nil && (l.Tooltip != "running" || l.Pixels != argb(Running)) {
			err = fmt.Errorf("tooltip %q, running picture: %v", l.Tooltip, l.Pixels == argb(Running))
		}
		return err
	})
	tray.Click(t, "Open Everdict")
	p.want("clicked open")
}

// TestBusThatGoes: the bus of a session ends under a process that is to go on.
func TestBusThatGoes(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	panel := bus.Panel(t)
	p := start(t, bus.Environ())
	p.show(state(Idle, "idle"))
	panel.Tray(t)
	bus.Stop()
	for i := range 50 { // whatever is shown while it goes
		p.show(state(Icons[i%len(Icons)], fmt.Sprint(i)))
	}
	if _, err := io.WriteString(p.in, "again\n"); err != nil {
		t.Fatal(err)
	}
	p.want("ended " + ErrGone.Error())
	p.show(state(Idle, "idle"))
	p.in.Close()
	select {
	case line := <-p.lines:
		if !strings.HasPrefix(line, "ended "+ErrNoBus.Error()) {
			t.Errorf("without its bus the tray %s, want %v", line, ErrNoBus)
		}
	case <-time.After(eventually.Patience):
		t.Fatal("the app did not end")
	}
}

// TestRunAgain: an icon that was taken away can be shown again.
func TestRunAgain(t *testing.T) {
	bus := bustest.Start(t)
	panel := bus.Panel(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	for round := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		states, clicked, ended := make(chan State, 1), make(chan string, 1), make(chan error, 1)
		go func() {
			ended <- Run(ctx, Config{States: states, Clicked: func(id string) { clicked <- id }})
		}()
		states <- state(Icons[round], fmt.Sprint(round))
		tray := panel.Tray(t)
		if err := Run(ctx, Config{}); !errors.Is(err, ErrRunning) {
			t.Errorf("a second tray beside the first: %v, want %v", err, ErrRunning)
		}
		tray.Click(t, "Quit")
		if id := <-clicked; id != "quit" {
			t.Errorf("round %d: a click on Quit came as %q", round, id)
		}
		if l, err := tray.Look(); err != nil || l.Pixels != argb(Icons[round]) {
			t.Errorf("round %d: another icon, or %v", round, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("round %d: the tray ended with %v", round, err)
		}
		eventually.Nil(t, "the icon to go", tray.Gone)
	}
}

func TestAvailable(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
	if err := Available(t.Context()); !errors.Is(err, ErrNoBus) {
		t.Errorf("without a bus: %v, want %v", err, ErrNoBus)
	}
	states := make(chan State, 1)
	states <- State{}
	if err := Run(t.Context(), Config{States: states}); !errors.Is(err, ErrNoBus) {
		t.Errorf("run without a bus: %v, want %v", err, ErrNoBus)
	}
	bus := bustest.Start(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	if err := Available(t.Context()); !errors.Is(err, ErrNoHost) {
		t.Errorf("on a bus without a panel: %v, want %v", err, ErrNoHost)
	}
	bus.Panel(t)
	if err := Available(t.Context()); err != nil {
		t.Errorf("on a bus with a panel: %v", err)
	}
}
