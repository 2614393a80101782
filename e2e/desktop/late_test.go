package desktop_test

import (
	"context"
	"sync"
	"testing"

	"github.com/everdict/everdict/desktop"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// New settings wait for a job that has begun, whether the app has heard of it already or not.
func TestSettingsWaitForAJobThatIsNotHeardOf(t *testing.T) {
	t.Parallel()
	told, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	release := sync.OnceFunc(func() { close(goOn) })
	h := house.New(t) // with long leases: nothing expires here
	a := newApp(t, h, func(c *desktop.Config) {
		c.Notify = func(_ context.Context, title, _ string) error {
			if title == "c1 ended" { // while that is shown, the app hears nothing of its runner
				first.Do(func() { close(told) })
				<-goOn
			}
			return nil
		}
	})
	t.Cleanup(release)
	c := a.pair()
	h.Settled(a.submit(c, "say hello"))
	<-told
	id, open := a.begin(c)
	h.Running(id)
	set := c.Settings
	set.Slots = 3
	if _, err := a.SetConnection(context.Background(), c.ID, set); err != nil {
		t.Fatal(err)
	}
	next := a.submit(c, "say hello again")
	h.Blocked(next, "settings are being changed")
	release()
	open()
	for _, id := range []string{id, next} {
		if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
			t.Errorf("%s is %s at attempt %d, want succeeded at its first", id, run.Status, run.Attempt)
		}
	}
	house.Eventually(t, "the coordinator knows three slots", func() bool {
		runners, err := h.Client.Runners(context.Background())
		return err == nil && len(runners) == 1 && runners[0].Slots == 3
	})
}
