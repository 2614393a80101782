//go:build unix

package sandboxtest

import (
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

var timeCases = []testCase{
	{name: "F11_timeout ends the tree", run: timeoutTree},
	{name: "P8_timeout names its timer", run: timeoutNames},
	{name: "timeout is not reached", run: timeoutNotReached},
	{name: "F28_result, then no exit", run: resultThenSleep},
	{name: "F28_idle watchdog", run: idle},
	{name: "F28_output keeps the watchdog quiet", run: notIdle},
	{name: "F28_idle without writers", run: idleDiscarding},
	{name: "F28_waits for the end of stdin", run: waitsForEOF},
}

// quick is a ladder for commands that will not answer.
var quick = sandbox.Ladder{{Signal: syscall.SIGTERM, Grace: 20 * time.Millisecond, Tree: true}}

func timeoutTree(b *bench) {
	x := b.start()
	r := x.roll()
	script := stay
	for _, e := range escapes {
		script += e + "\n"
	}
	c := sh(script + `while :; do echo late >>late.txt; sleep 0.01; done`)
	c.Timeout, c.Ladder = 5*time.Second, quick // time for all of them to join
	p := x.exec(c)
	r.joined(len(escapes))
	exit := b.wait(p)
	r.empty(settle) // everything was gone already when Wait returned
	if exit.Reason != sandbox.ReasonTimeout || exit.Success() {
		b.Errorf("%+v: wanted reason timeout", exit)
	}
	if x.size("late.txt") == 0 {
		b.Errorf("the command did nothing before its timeout")
	}
}

func timeoutNames(b *bench) {
	x := b.start()
	c := sh(`trap "" TERM; while :; do sleep 0.01; done`)
	c.Timeout, c.IdleTimeout, c.Ladder = 150*time.Millisecond, time.Hour, quick
	exit := b.wait(x.exec(c))
	f := exit.Fired
	if exit.Reason != sandbox.ReasonTimeout || f == nil || f.Name != "timeout" || f.Configured != c.Timeout ||
		f.Measured < c.Timeout || f.Measured > patience {
		b.Errorf("%+v, fired %+v: wanted the timer, its configured and measured values", exit, f)
	}
	if !slices.Equal(exit.Sent, []string{"SIGTERM", "SIGKILL"}) || exit.Signal != "SIGKILL" || exit.Code != -1 {
		b.Errorf("%+v: wanted SIGTERM, then SIGKILL", exit)
	}
	if exit.Ran < c.Timeout {
		b.Errorf("ran %s, less than its timeout %s", exit.Ran, c.Timeout)
	}
}

func timeoutNotReached(b *bench) {
	x := b.start()
	c := sh("exit 3")
	c.Timeout, c.IdleTimeout = time.Hour, time.Hour
	if exit := b.wait(x.exec(c)); exit.Code != 3 || exit.Reason != sandbox.ReasonNone || exit.Fired != nil || exit.Sent != nil {
		b.Errorf("%+v: wanted code 3 and no timer", exit)
	}
}

func resultThenSleep(b *bench) {
	x := b.start()
	var out buffer
	c := sh("echo result; exec sleep 1000")
	c.Stdout = &out
	p := x.exec(c)
	b.until("the result", func() bool { return out.String() == "result\n" })
	exit, err := p.Stop(b.Context(), quick)
	if err != nil || exit.Reason != sandbox.ReasonStopped || exit.Signal != "SIGTERM" || out.String() != "result\n" {
		b.Errorf("%+v, %v, output %q: wanted a stop that keeps the result", exit, err, out.String())
	}
}

func idle(b *bench) {
	x := b.start()
	r := x.roll()
	var out buffer
	c := sh(hold + "echo event; sleep 1000 & sleep 1000")
	c.Stdout, c.IdleTimeout, c.Timeout, c.Ladder = &out, 200*time.Millisecond, time.Hour, quick
	exit := b.wait(x.exec(c))
	f := exit.Fired
	if exit.Reason != sandbox.ReasonIdle || f == nil || f.Name != "idle" || f.Configured != c.IdleTimeout ||
		f.Measured < c.IdleTimeout || f.Measured > patience {
		b.Errorf("%+v, fired %+v: wanted the idle timer, its configured and measured values", exit, f)
	}
	if out.String() != "event\n" {
		b.Errorf("output %q, wanted the event", out.String())
	}
	r.empty(settle)
}

func notIdle(b *bench) {
	x := b.start()
	c := sh("i=0; while [ $i -lt 300 ]; do echo . >&2; sleep 0.01; i=$((i+1)); done")
	c.Stdout, c.Stderr, c.IdleTimeout = io.Discard, io.Discard, 2*time.Second
	exit := b.wait(x.exec(c))
	if !exit.Success() || exit.Ran < c.IdleTimeout {
		b.Errorf("%+v: a command that writes to stderr all the time is not idle", exit)
	}
}

func idleDiscarding(b *bench) {
	x := b.start()
	c := sh("i=0; while [ $i -lt 150 ]; do echo .; sleep 0.01; i=$((i+1)); done; sleep 1000")
	c.IdleTimeout, c.Ladder = time.Second, quick
	exit := b.wait(x.exec(c))
	if exit.Reason != sandbox.ReasonIdle || exit.Ran < 1500*time.Millisecond {
		b.Errorf("%+v: output that nobody takes counts for the watchdog, too", exit)
	}
}

func waitsForEOF(b *bench) {
	x := b.start()
	r, w := io.Pipe()
	var out buffer
	p := x.exec(sandbox.Command{Args: []string{"sh", "-c", "cat; echo end"}, Stdin: r, Stdout: &out})
	if _, err := io.WriteString(w, "prompt\n"); err != nil {
		b.Fatal(err)
	}
	b.until("the echo", func() bool { return out.String() == "prompt\n" })
	w.Close()
	if exit := b.wait(p); !exit.Success() || out.String() != "prompt\nend\n" {
		b.Errorf("%+v, output %q: wanted the end after stdin was closed", exit, out.String())
	}
}
