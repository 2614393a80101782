package agent

import (
	"context"
	"fmt"
	"testing"
)

// An observer that does not return holds up nothing but what it is told itself, and hears all of it in order.
func TestObserverNeverBlocks(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var heard []string
	n := newNews(func(e Event) {
		<-hold
		heard = append(heard, e.(Degraded).Why)
	})
	end := n.deliver()
	for i := range 1000 {
		n.put(Degraded{Why: fmt.Sprint(i)})
	}
	close(hold)
	end()
	if len(heard) != 1000 {
		t.Fatalf("%d events of 1000", len(heard))
	}
	for i, why := range heard {
		if why != fmt.Sprint(i) {
			t.Fatalf("event %d is %s", i, why)
		}
	}
	var nobody *news
	nobody.put(Degraded{})
	nobody.deliver()()
}

func TestGate(t *testing.T) {
	t.Parallel()
	g := newGate("")
	wish, turned, done := g.open(t.Context())
	if wish.Err() != nil || !g.pass(t.Context()) {
		t.Fatal("an open gate lets nobody through")
	}
	if !g.set("lunch") || g.set("long lunch") {
		t.Error("set does not say what it turned")
	}
	select {
	case <-turned:
	default:
		t.Error("a shut gate has not turned")
	}
	<-wish.Done() // withdrawn
	done()
	if wish, _, done := g.open(t.Context()); wish.Err() == nil {
		t.Error("a shut gate gives a wish")
	} else {
		done()
	}
	ctx, cancel := context.WithCancel(t.Context())
	passed := make(chan bool, 2)
	go func() { passed <- g.pass(ctx) }()
	cancel()
	if <-passed {
		t.Error("passed a shut gate")
	}
	go func() { passed <- g.pass(t.Context()) }()
	g.set("")
	if !<-passed {
		t.Error("not passed after it was opened")
	}
}
