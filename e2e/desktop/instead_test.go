package desktop_test

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// A link that is clicked while a pairing waits changes nothing by itself. A yes that says so ends the pairing, and nothing is
// left of it.
func TestLinkInsteadOfAPairing(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	ctx := context.Background()
	_, id := a.waiting()
	callback := a.approve(id).Callback
	code := a.pairCode()
	q := a.asked(code.Link)
	if err := a.yes(q, code.Number, false); problemOf(err) == nil || problemOf(err).Code != protocol.CodeConflict {
		t.Fatalf("a yes that does not say that it ends the pairing: %v; want CONFLICT", err)
	}
	if s := a.State(); s.Question == nil || s.Pairing == nil || s.Pairing.Status != control.PairingWaiting || s.Pairing.Number == "" {
		t.Fatalf("after the refusal: question %+v, pairing %+v; want both as they were", s.Question, s.Pairing)
	}
	if _, err := a.Answer(ctx, control.Answer{Question: q.ID, Connect: true, Number: code.Number, Instead: true}); err != nil {
		t.Fatal(err)
	}
	s := a.paired(control.PairingDone)
	if !s.Pairing.ByLink || s.Question != nil || len(s.Connections) != 1 {
		t.Errorf("pairing %+v, question %+v, %d connections", s.Pairing, s.Question, len(s.Connections))
	}
	house.Eventually(t, "the callback of the first pairing is closed", func() bool {
		status, _ := browse(t, callback)
		return status != http.StatusOK
	})
	house.Eventually(t, "the key of the first pairing is gone", func() bool {
		keys, err := filepath.Glob(filepath.Join(a.cfg.Dirs.Config, "keys", "*.key"))
		return err == nil && len(keys) == 1
	})
	if s := a.State(); s.Pairing.Status != control.PairingDone || len(s.Connections) != 1 {
		t.Errorf("after the end of the first pairing: %+v, %d connections", s.Pairing, len(s.Connections))
	}
}

// A pairing that may have made a runner is not ended by another one.
func TestLinkWhileRedeeming(t *testing.T) {
	t.Parallel()
	a, l := newApp(t, quickHouse(t)), newLiar(t)
	l.redeems(hangs)
	ctx := context.Background()
	a.approvedBy(l)
	<-l.redeemed
	code := a.pairCode()
	q := a.asked(code.Link)
	_, err := a.Answer(ctx, control.Answer{Question: q.ID, Connect: true, Number: code.Number, Instead: true})
	if p := problemOf(err); p == nil || p.Code != protocol.CodeConflict || !strings.Contains(p.Hint, "wait") {
		t.Errorf("a yes while the coordinator makes this computer a runner: %v; want CONFLICT, and to wait", err)
	}
	if s := a.State(); s.Pairing.Status != control.PairingRedeeming || s.Question == nil {
		t.Errorf("the pairing is %s, the question %+v; want both as they were", s.Pairing.Status, s.Question)
	}
	l.redeems(paired("rnr_1", "ana"))
}

// The command that began a pairing follows that one: it ends with it, and neither shows nor cancels the one that came instead.
func TestPairCommandFollowsItsOwn(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	p := startProc(t)
	cmd := p.command("pair", h.URL())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p.until("the pairing waits", func(s *control.State) bool { return s.Pairing != nil && s.Pairing.Status == control.PairingWaiting })
	code, err := h.Client.CreatePairCode(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	p.do(http.MethodPost, "open", control.OpenRequest{Link: code.Link}, nil)
	s := p.until("it asks", func(s *control.State) bool { return s.Question != nil })
	p.do(http.MethodPost, "question", control.Answer{Question: s.Question.ID, Connect: true, Number: code.Number, Instead: true}, nil)
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(out.String(), "ended for another one") {
			t.Errorf("the command ended with %v and said:\n%s", err, out.String())
		}
	case <-time.After(house.Patience):
		_ = cmd.Process.Kill()
		t.Fatal("the command did not end")
	}
	p.until("the other pairing is done", func(s *control.State) bool { return s.Pairing != nil && s.Pairing.Status == control.PairingDone })
}
