//go:build unix

package process

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// enclosure finds, stops, measures and ends the processes of one sandbox. The handle serialises newCell with
// freeze, kill and remove: no process is being started while those run.
type enclosure interface {
	// newCell makes the part of the enclosure that holds one command. seq is unique within the driver.
	newCell(seq uint64) (cell, error)
	// freeze returns when no process of the sandbox runs; after an error all of them run again.
	freeze(ctx context.Context) error
	thaw() error
	// adopt tells what else was stopped on the runner's behalf: thaw lets it go on, too.
	adopt(stopped []proc)
	// kill returns when no process of the sandbox is left. The first signal is sent even when ctx has ended.
	kill(ctx context.Context) error
	// vacate waits a moment until the dead no longer count against the sandbox's limits: a process does until its
	// parent, which may be the host's init, has collected it.
	vacate(ctx context.Context)
	// usage fills in what the enclosure can measure.
	usage(u *sandbox.Usage)
	// remove takes away what the enclosure made; no process is left in it.
	remove() error
}

// cell is the part of an enclosure that holds one command and everything that it starts.
type cell interface {
	// attr sets what makes a child that executes path be born in the cell.
	attr(path string, attr *syscall.SysProcAttr)
	// enter and leave enclose the fork and started on the forking thread, where membership is the thread's. leave is
	// called once, also when enter failed.
	enter() error
	leave() error
	// started tells the main process, on the forking thread, before anything else happens. After an error the process
	// is killed.
	started(pid int) error
	// signal sends sig to every process of the cell.
	signal(sig syscall.Signal) error
	// kill returns when no process of the cell is left.
	kill(ctx context.Context) error
	// ended tells that the main process is gone, with its rusage; the cell may still hold others.
	ended(state *os.ProcessState)
}

// poll calls done until it reports true or an error, or ctx ends, with a pause that grows from 50 us to 5 ms:
// processes that were killed are usually gone within the first pauses.
func poll(ctx context.Context, done func() (bool, error)) error {
	pause := 50 * time.Microsecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		pause = min(pause*2, 5*time.Millisecond)
	}
}
