package desktop

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/desktop/tray"
	"github.com/everdict/everdict/desktop/vault"
	"github.com/everdict/everdict/protocol/link"
)

// Whatever ends a session or a runner is said in sentences, and what needs a person has a next step.
func TestWords(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("link: connect: %w", err) }
	for _, c := range []struct {
		err    error
		reason control.Reason
	}{
		{wrap(x509.CertificateInvalidError{Reason: x509.Expired}), control.ReasonClock},
		{wrap(x509.UnknownAuthorityError{}), control.ReasonCertificate},
		{wrap(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}), control.ReasonCertificate},
		{link.ErrSlept, control.ReasonSlept},
		{&link.DrainingError{RetryAfter: time.Second}, control.ReasonRestarting},
		{&link.HTTPError{Status: 302}, control.ReasonRefused},
		{&link.HTTPError{Status: 503, Code: "busy", Message: "full"}, control.ReasonRefused},
		{wrap(&net.DNSError{Name: "h"}), control.ReasonUnreachable},
		{wrap(syscall.ECONNREFUSED), control.ReasonUnreachable},
		{wrap(syscall.ENETUNREACH), control.ReasonUnreachable},
		{link.ErrDeadPeer, control.ReasonUnreachable},
		{errors.New("something new"), control.ReasonUnreachable},
	} {
		got := lost(c.err, "host.example")
		if got.reason != c.reason || !sentence(got.text) || got.final || got.status == control.StatusAttention && got.next == "" || got.next != "" && !sentence(got.next) {
			t.Errorf("lost by %v: %+v, want reason %s", c.err, got, c.reason)
		}
	}
	for _, c := range []struct {
		err    error
		reason control.Reason
		final  bool
	}{
		{&link.RevokedError{Code: "revoked"}, control.ReasonRevoked, true},
		{&link.TakenOverError{}, control.ReasonElsewhere, true},
		{&link.UpdateRequiredError{MinVersion: "2.0"}, control.ReasonUpdate, true},
		{&agent.LockedError{Holder: "pid 1"}, control.ReasonElsewhere, false},
		{fmt.Errorf("open: %w", outbox.ErrInUse), control.ReasonElsewhere, false},
		{vault.ErrLocked, control.ReasonKeyLocked, false},
		{vault.ErrUnavailable, control.ReasonKeyLocked, false},
		{vault.ErrNotFound, control.ReasonKeyMissing, true},
		{&link.ConfigError{Message: "no host"}, control.ReasonFailed, true},
		{fmt.Errorf("agent: make directories: %w", syscall.ENOSPC), control.ReasonDisk, false},
		{fmt.Errorf("agent: make directories: %w", fs.ErrPermission), control.ReasonFailed, false},
		{errors.New("something new"), control.ReasonFailed, false},
	} {
		got := ended(c.err, "host.example")
		if got.reason != c.reason || got.final != c.final || !sentence(got.text) || got.status != control.StatusAttention || got.final && got.next == "" {
			t.Errorf("ended by %v: %+v, want reason %s, final %v", c.err, got, c.reason, c.final)
		}
	}
}

func sentence(s string) bool {
	return s != "" && strings.HasSuffix(s, ".") && !strings.Contains(s, "..")
}

// The menu has an item of its own for each thing, in each state.
func TestTrayMenu(t *testing.T) {
	t.Parallel()
	con := func(id string, status control.Status, jobs int, pauses ...control.Reason) control.Connection {
		return control.Connection{ID: id, Host: id + ".example", Status: status, Jobs: make([]control.Job, jobs), Pauses: pauses,
			CanResume: slices.ContainsFunc(pauses, resumable), CanRetry: slices.Contains(pauses, control.ReasonDocker)}
	}
	for _, c := range []struct {
		name string
		all  []control.Connection
		icon tray.Icon
		has  []string
		not  []string
	}{
		{"none", nil, tray.Offline, []string{"open", "quit"}, []string{"pause", "stop"}},
		{"idle", []control.Connection{con("a", control.StatusIdle, 0)}, tray.Idle, []string{"pause", "stop", "visit/a"}, []string{"resume", "retry/a"}},
		{"connected", []control.Connection{con("a", control.StatusConnected, 0)}, tray.Connected, []string{"pause", "stop", "visit/a"}, []string{"resume", "retry/a"}},
		{"running", []control.Connection{con("a", control.StatusRunning, 1)}, tray.Running, []string{"pause", "stop"}, nil},
		{"paused", []control.Connection{con("a", control.StatusPaused, 0, control.ReasonUser)}, tray.Paused, []string{"resume"}, []string{"pause"}},
		{"attention", []control.Connection{con("a", control.StatusAttention, 0, control.ReasonDocker)}, tray.Attention, []string{"pause", "retry/a", "visit/a"}, []string{"resume"}},
		{"nothing to retry", []control.Connection{con("a", control.StatusAttention, 0)}, tray.Attention, []string{"pause", "visit/a"}, []string{"resume", "retry/a"}},
		{"two", []control.Connection{con("a", control.StatusIdle, 0), con("b", control.StatusPaused, 0, control.ReasonHours)}, tray.Idle, []string{"pause", "pause/a", "resume/b", "visit/b"}, nil},
		{"one takes runs, one was connected just now", []control.Connection{con("a", control.StatusConnected, 0), con("b", control.StatusIdle, 0)}, tray.Idle, nil, nil},
		{"one takes runs, one has no session", []control.Connection{con("a", control.StatusConnecting, 0), con("b", control.StatusIdle, 0)}, tray.Idle, nil, nil},
		{"one was connected just now, one is paused", []control.Connection{con("a", control.StatusPaused, 0, control.ReasonUser), con("b", control.StatusConnected, 0)}, tray.Connected, nil, nil},
		{"one is paused, one has no session", []control.Connection{con("a", control.StatusPaused, 0, control.ReasonUser), con("b", control.StatusConnecting, 0)}, tray.Offline, nil, nil},
		{"one takes runs, one needs somebody", []control.Connection{con("a", control.StatusIdle, 0), con("b", control.StatusAttention, 0)}, tray.Attention, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, text := overall(c.all)
			got := Tray(control.State{Status: status, Text: text, Connections: c.all})
			ids := map[string]int{}
			var walk func([]tray.Item)
			walk = func(items []tray.Item) {
				for _, i := range items {
					if !i.Separator {
						ids[i.ID]++
					}
					walk(i.Children)
				}
			}
			walk(got.Items)
			for id, n := range ids {
				if id == "" || n > 1 {
					t.Errorf("%d items have the id %q", n, id)
				}
			}
			for _, id := range c.has {
				if ids[id] == 0 {
					t.Errorf("no item %s", id)
				}
			}
			for _, id := range c.not {
				if ids[id] > 0 {
					t.Errorf("there is an item %s", id)
				}
			}
			if got.Icon != c.icon {
				t.Errorf("the icon is %v, want %v", got.Icon, c.icon)
			}
		})
	}
}

// A session that has just begun is connected, and idle from the first heartbeat that is answered; each new session begins so.
// Every status has an icon, and every icon a status.
func TestConnectedIsShown(t *testing.T) {
	t.Parallel()
	a, err := New(Config{Dirs: home.Below(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	c := newConnection(a, record{ID: "con_1", Coordinator: "https://everdict.example", Runner: "rnr_1"})
	a.connections = append(a.connections, c)
	now := func(after string, want control.Status, icon tray.Icon) {
		t.Helper()
		s := a.State()
		if got := Tray(s); s.Status != want || got.Icon != icon || !sentence(s.Text) {
			t.Errorf("after %s: %s, %q, the icon %v; want %s, %v", after, s.Status, s.Text, got.Icon, want, icon)
		}
	}
	now("the start", control.StatusConnecting, tray.Offline)
	for range 2 {
		c.observe(agent.SessionUp{Runner: "rnr_1"})
		now("the beginning of a session", control.StatusConnected, tray.Connected)
		c.observe(agent.Beat{})
		now("a heartbeat", control.StatusIdle, tray.Idle)
		c.observe(agent.SessionLost{Err: link.ErrDeadPeer})
		now("the end of a session", control.StatusConnecting, tray.Offline)
	}
	for _, icon := range tray.Icons {
		if !slices.Contains(slices.Collect(maps.Values(icons)), icon) {
			t.Errorf("no status has the icon %v", icon)
		}
	}
	if len(icons) != len(ranks) {
		t.Errorf("%d statuses have an icon, and %d a rank", len(icons), len(ranks))
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"everdict.example": "https://everdict.example", " https://everdict.example/ ": "https://everdict.example", "localhost:8787": "http://localhost:8787",
		"127.0.0.1:8787": "http://127.0.0.1:8787", "https://h.example/everdict/": "https://h.example/everdict",
	} {
		if got, err := cleanAddress(typed); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", typed, got, err, want)
		}
	}
	for _, typed := range []string{"", "http://everdict.example", "https://u:p@h.example", "https://h.example/?x=1", "ftp://h.example", "https://h.example#x", "javascript:alert(1)", "https://"} {
		if got, err := cleanAddress(typed); err == nil {
			t.Errorf("%q was taken as %q", typed, got)
		}
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"https://H.example/ui/x", "https://h.example:443", true}, {"https://h.example", "http://h.example", false}, {"https://h.example.evil", "https://h.example", false},
		{"https://h.example@evil.example/", "https://h.example", false}, {"https://h.example:444", "https://h.example", false},
	} {
		if got := sameOrigin(c.a, c.b); got != c.same {
			t.Errorf("%s and %s: %v, want %v", c.a, c.b, got, c.same)
		}
	}
}
