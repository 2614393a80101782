package desktop_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/desktop/control"
)

// An app that was killed while it removed a connection goes on with that at its next start. What the coordinator could not be
// told is a notice then: nobody waits for the answer any more.
func TestUnpairIsSeenThroughAndSaid(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	c := a.pair()
	a.end()
	h.Stop()
	list := filepath.Join(a.cfg.Dirs.Config, "connections.json")
	was, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	cut := bytes.Replace(was, []byte(`"runner":`), []byte(`"unpairing":true,"runner":`), 1)
	if bytes.Equal(cut, was) {
		t.Fatalf("the list of connections is not as expected: %s", was)
	}
	if err := os.WriteFile(list, cut, 0o600); err != nil {
		t.Fatal(err)
	}
	a.start()
	s := a.until("the connection is gone, and it is said", func(s control.State) bool { return len(s.Connections) == 0 && len(s.Notices) > 0 })
	if n := s.Notices[0]; len(s.Notices) != 1 || n.Level != "warn" || !strings.Contains(n.Text, c.Host+" could not be told") || !strings.Contains(n.Text, c.Label) {
		t.Errorf("the notices are %+v; want one that says which runner is to be removed at %s", s.Notices, c.Host)
	}
}

// A connection that replaces another one says so when the old runner could not be removed.
func TestReplacedAndNotTold(t *testing.T) {
	t.Parallel()
	a, l := newApp(t, quickHouse(t)), newLiar(t) // which does not know how a runner is removed
	connect := func(runner string) control.State {
		t.Helper()
		l.redeems(paired(runner, "ana"))
		a.approvedBy(l)
		a.paired(control.PairingDone)
		return a.until("there is one connection", func(s control.State) bool { return len(s.Connections) == 1 && s.Connections[0].Runner == runner })
	}
	if s := connect("rnr_1"); len(s.Notices) != 0 {
		t.Fatalf("after the first connection: %+v", s.Notices)
	}
	connect("rnr_2")
	s := a.until("it is said", func(s control.State) bool { return len(s.Notices) > 0 })
	if n := s.Notices[0]; len(s.Notices) != 1 || n.Level != "warn" || !strings.Contains(n.Text, "old runner") || n.Next == "" {
		t.Errorf("the notices are %+v; want one of the old runner", s.Notices)
	}
}
