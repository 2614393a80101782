package desktop_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/protocol"
)

// The whole of the first way: the app asks, the browser approves, a run is executed by this computer.
func TestPairFromTheAppAndRun(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	c := a.pair()
	if c.Account.Subject == "" || c.Runner == "" || c.Key != control.FilePlace {
		t.Errorf("the connection is %+v: want account, runner and a key in a file", c)
	}
	if s := a.State(); !strings.Contains(s.Keys.Warning, "files") {
		t.Errorf("no warning of a key in a file: %+v", s.Keys)
	}
	id := a.submit(c, "say hello from the desktop")
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded {
		t.Fatalf("the run is %s: %+v", run.Status, run.Failure)
	}
	a.until("the history has it", func(s control.State) bool { return s.HistoryRev > 0 })
	hist, err := a.History(10)
	if err != nil || len(hist.Entries) != 1 || hist.Entries[0].Run != id || hist.Entries[0].Outcome != control.OutcomeUnjudged {
		t.Errorf("the history is %+v, %v", hist.Entries, err)
	}
}

// What the callback is asked by others than the browser changes nothing, and an answer counts once.
func TestCallback(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	_, id := a.waiting()
	good := a.approve(id).Callback
	for name, wrong := range map[string][]string{
		"another host":           {good, "Host", "evil.example"},
		"the host by name":       {good, "Host", "localhost"},
		"another page's script":  {good, "Origin", "https://evil.example"},
		"an image":               {good, "Sec-Fetch-Dest", "image"},
		"a frame":                {good, "Sec-Fetch-Dest", "iframe"},
		"no state":               {strings.Replace(good, "state=", "stale=", 1)},
		"another state":          {strings.Replace(good, "state=", "state=x", 1)},
		"two states":             {good + "&state=x"},
		"another pairing":        {strings.Replace(good, "pairing=prq_", "pairing=prq_x", 1)},
		"no grant":               {strings.Replace(good, "grant=", "grunt=", 1)},
		"what cannot be a grant": {strings.Replace(good, "grant=pgc_", "grant=rnr_", 1)},
		"another path":           {strings.Replace(good, "/callback", "/", 1)},
	} {
		if status, _ := browse(t, wrong[0], wrong[1:]...); status < 400 {
			t.Errorf("%s: answered %d", name, status)
		}
	}
	if s := a.State(); s.Pairing.Status != control.PairingWaiting {
		t.Fatalf("the pairing is %s after wrong answers: %s", s.Pairing.Status, s.Pairing.Text)
	}
	if status, _ := browse(t, good, "Sec-Fetch-Dest", "document", "Sec-Fetch-Site", "cross-site"); status != http.StatusOK {
		t.Fatalf("the browser's answer: %d", status)
	}
	a.until("the pairing is done", func(s control.State) bool { return s.Pairing.Status == control.PairingDone })
	if status, text := browse(t, good); status == http.StatusOK {
		t.Errorf("the same answer again: %d %s", status, text)
	}
}

// Where the browser cannot reach the callback, a deep link brings the grant, and only to the pairing that waits for it.
func TestGrantByDeepLink(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	ctx := context.Background()
	_, id := a.waiting()
	link := a.approve(id).Link
	for _, wrong := range []string{strings.Replace(link, "state=", "state=x", 1), strings.Replace(link, "p=prq_", "p=prq_x", 1)} {
		if o, err := a.Open(ctx, control.OpenRequest{Link: wrong}); err != nil || o.Refused == "" {
			t.Errorf("%s was taken: %+v, %v", wrong, o, err)
		}
	}
	if o, err := a.Open(ctx, control.OpenRequest{Link: link}); err != nil || o.Refused != "" {
		t.Fatalf("the link was refused: %+v, %v", o, err)
	}
	a.until("the pairing is done", func(s control.State) bool { return s.Pairing.Status == control.PairingDone })
	if o, _ := a.Open(ctx, control.OpenRequest{Link: link}); o.Refused == "" {
		t.Error("the same link again was taken")
	}
}

// The whole of the second way: the dashboard makes a link, the app asks, the person types the number.
func TestPairByLinkOfTheDashboard(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	ctx := context.Background()
	code := a.pairCode()
	q := a.asked(code.Link)
	if q.Coordinator != h.URL() || q.Account.Subject == "" {
		t.Errorf("the question is %+v", q)
	}
	if got, err := h.Client.PairCode(ctx, code.ID); err != nil || got.Status != protocol.PairCodeWaiting {
		t.Errorf("before a yes the code is %+v, %v: nothing may have been contacted", got, err)
	}
	if a.yes(q, "", false) == nil {
		t.Error("a yes without a number was taken")
	}
	if err := a.yes(q, code.Number, false); err != nil {
		t.Fatal(err)
	}
	a.paired(control.PairingDone)
	c := a.connection("it is online", func(c control.Connection) bool { return c.Online })
	if got, err := h.Client.PairCode(ctx, code.ID); err != nil || got.Status != protocol.PairCodeUsed || got.Runner == nil || got.Runner.ID != c.Runner {
		t.Errorf("the code is %+v, %v: want it used by %s", got, err, c.Runner)
	}
	// F38: the same link once more.
	if q = a.asked(code.Link); q.Known != c.ID {
		t.Errorf("the question does not say that there is a connection: %+v", q)
	}
	if err := a.yes(q, code.Number, false); problemOf(err) == nil || problemOf(err).Code != protocol.CodeConflict {
		t.Errorf("a connection that is there was replaced without being asked: %v", err)
	}
	if err := a.yes(q, code.Number, true); err != nil {
		t.Fatal(err)
	}
	s := a.paired(control.PairingFailed)
	if !strings.Contains(s.Pairing.Text, "used") || len(s.Connections) != 1 || s.Connections[0].ID != c.ID {
		t.Errorf("a used link: %q, %d connections", s.Pairing.Text, len(s.Connections))
	}
	// A new link replaces the connection, and the old runner goes.
	code = a.pairCode()
	if err := a.yes(a.asked(code.Link), code.Number, true); err != nil {
		t.Fatal(err)
	}
	a.paired(control.PairingDone)
	s = a.until("the old connection is gone", func(s control.State) bool { return len(s.Connections) == 1 && s.Connections[0].ID != c.ID })
	if runners, err := h.Client.Runners(ctx); err != nil || len(runners) != 1 || runners[0].ID != s.Connections[0].Runner {
		t.Errorf("after a replacement the coordinator has %+v, %v", runners, err)
	}
}

func TestWrongNumberSpoilsTheLink(t *testing.T) {
	t.Parallel()
	a := newApp(t, quickHouse(t))
	code := a.pairCode()
	wrong := "00"
	if code.Number == wrong {
		wrong = "01"
	}
	for i, number := range []string{wrong, code.Number} {
		if err := a.yes(a.asked(code.Link), number, false); err != nil {
			t.Fatal(err)
		}
		if s := a.paired(control.PairingFailed); s.Pairing.Next == "" || len(s.Connections) != 0 {
			t.Errorf("try %d: %+v, %d connections", i, s.Pairing, len(s.Connections))
		}
		if err := a.Dismiss(context.Background(), "pairing"); err != nil {
			t.Fatal(err)
		}
	}
}

// A link that lies about the account is not followed through.
func TestLinkOfSomebodyElse(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	code := a.pairCode()
	d, err := protocol.ParseDeepLink(code.Link)
	if err != nil {
		t.Fatal(err)
	}
	d.Account.Subject = "you-yourself"
	if err := a.yes(a.asked(d.String()), code.Number, false); err != nil {
		t.Fatal(err)
	}
	if s := a.paired(control.PairingFailed); len(s.Connections) != 0 || !strings.Contains(s.Pairing.Text, "you-yourself") {
		t.Errorf("%q, %d connections", s.Pairing.Text, len(s.Connections))
	}
	if runners, err := h.Client.Runners(context.Background()); err != nil || len(runners) != 0 {
		t.Errorf("the coordinator has %d runners, %v: want none", len(runners), err)
	}
}

func TestHostileLinks(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	for _, link := range []string{
		"everdict://pair", "everdict://pair?c=http://evil.example&as=a&ws=w&code=prc_" + strings.Repeat("a", 32), "everdict://run?cmd=rm", "https://evil.example",
		"everdict://open?x=1", "everdict://" + strings.Repeat("a", 5000), "--no-tray", "everdict://granted?p=prq_1&code=pgc_" + strings.Repeat("a", 32) + "&state=x",
	} {
		o, err := a.Open(context.Background(), control.OpenRequest{Link: link})
		if err != nil || o.Refused == "" {
			t.Errorf("%.80q was taken: %+v, %v", link, o, err)
		}
	}
	if s := a.State(); s.Question != nil || s.Pairing != nil || len(s.Notices) == 0 {
		t.Errorf("after hostile links: question %+v, pairing %+v, %d notices", s.Question, s.Pairing, len(s.Notices))
	}
}
