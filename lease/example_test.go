package lease_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

// A queue with one job that nobody can run yet, and then a runner for it.
func Example() {
	dir, err := os.MkdirTemp("", "queue")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	db, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "queue.db")})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	q, err := lease.Open(ctx, db, lease.Config{})
	if err != nil {
		panic(err)
	}
	over := make(chan error)
	go func() { over <- q.Run(ctx) }()
	defer func() { stop(); <-over }()

	err = q.Enqueue(ctx, lease.Job{ID: "run_1", Workspace: "default", Pool: "default/auto", Payload: []byte("make test"),
		Requirements: lease.Requirements{Capabilities: []string{"docker"}}})
	if err != nil {
		panic(err)
	}
	why, err := q.Explain(ctx, "run_1")
	fmt.Println(why.Why, err)

	l, err := q.Pull(ctx, lease.PullRequest{RequestID: "1", Runner: lease.Runner{ID: "rnr_1", Serves: []string{"default/auto"},
		Capabilities: []string{"docker", "git"}}})
	fmt.Printf("%s attempt %d: %s %v\n", l.Job, l.Attempt, l.Payload, err)
	fmt.Println(q.Started(ctx, l.Ref))
	fmt.Println(q.Settle(ctx, l.Ref, lease.Result{Outcome: lease.Succeeded}))
	fmt.Println(q.Settle(ctx, l.Ref, lease.Result{Outcome: lease.Failed}))
	// Output:
	// no_runner <nil>
	// run_1 attempt 1: make test <nil>
	// <nil>
	// <nil>
	// lease: already settled by this attempt: attempt 1 of run_1
}
