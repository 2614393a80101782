//go:build unix

package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// alone are the cases that measure memory.
var alone = []testCase{
	{name: "F25_100 MB of output in flat memory", alone: true, run: bigOutput},
}

var outputCases = []testCase{
	{name: "P11_output is bytes", run: outputIsBytes},
	{name: "one writer for both outputs", run: sharedWriter},
	{name: "slow writer slows the command down", run: slowWriter},
	{name: "F23_slow writer gets everything", run: slowWriterTail},
	{name: "failing writer is reported", run: failingWriter},
	{name: "P7_panicking writer is reported", run: panickingWriter},
	{name: "stdin is fed and closed", run: stdinFed},
	{name: "stdin is the null device by default", run: stdinNull},
	{name: "stdin that is not read", run: stdinUnread},
	{name: "F28_grandchild holds the pipe", run: grandchildHoldsPipe},
}

// counting counts what is written and watches the heap.
type counting struct {
	n, next int64
	peak    uint64
}

func (c *counting) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	if c.n >= c.next {
		c.next = c.n + 10e6
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		c.peak = max(c.peak, m.HeapAlloc)
	}
	return len(p), nil
}

func bigOutput(b *bench) {
	x := b.start()
	const size = 100_000_000
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var out counting
	c := sh(fmt.Sprintf("head -c %d /dev/zero", size))
	c.Stdout = &out
	if exit := b.wait(x.exec(c)); !exit.Success() {
		b.Fatalf("head: %+v", exit)
	}
	if out.n != size {
		b.Errorf("%d bytes came, %d were written", out.n, size)
	}
	if grown := int64(out.peak) - int64(before.HeapAlloc); grown > 8<<20 {
		b.Errorf("the heap grew by %d bytes while %d bytes passed through", grown, size)
	}
}

func outputIsBytes(b *bench) {
	x := b.start()
	want := make([]byte, 256)
	for i := range want {
		want[i] = byte(i)
	}
	want = append(want, "\r\n\xc3\x28\xf0\x28\x8c\x28 no newline at the end"...)
	if err := os.WriteFile(filepath.Join(x.dir, "bytes"), want, 0o644); err != nil {
		b.Fatal(err)
	}
	exit, out, errOut := x.run(sh("cat bytes; cat bytes bytes >&2"))
	if !exit.Success() || out != string(want) || errOut != string(want)+string(want) {
		b.Errorf("%+v: stdout %q, stderr %q, wanted %q once and twice", exit, out, errOut, want)
	}
}

func sharedWriter(b *bench) {
	x := b.start()
	var out buffer
	c := sh("for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done")
	c.Stdout, c.Stderr = &out, &out
	exit := b.wait(x.exec(c))
	want := ""
	for i := 1; i <= 9; i++ {
		want += fmt.Sprintf("o%d\ne%d\n", i, i)
	}
	if !exit.Success() || out.String() != want {
		b.Errorf("%+v: both outputs in one pipe gave %q, wanted the order of writing", exit, out.String())
	}
}

// gated blocks its writes until it is opened.
type gated struct {
	open    chan struct{}
	entered chan struct{}
	once    sync.Once
	n       int64
}

func newGated() *gated { return &gated{open: make(chan struct{}), entered: make(chan struct{})} }

func (g *gated) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.entered) })
	<-g.open
	g.n += int64(len(p))
	return len(p), nil
}

func slowWriter(b *bench) {
	x, clock := b.start(), b.start()
	out := newGated()
	// The idle watchdog must not take a command that waits for us for an idle one.
	c := sh("head -c 8000000 /dev/zero; echo all >wrote")
	c.Stdout, c.IdleTimeout = out, 3*time.Second
	p := x.exec(c)
	b.soon(out.entered, "the first write")
	clock.ok("sleep 3.5")
	if x.size("wrote") != 0 {
		b.Errorf("8 MB were taken from the command while its writer blocked")
	}
	close(out.open)
	if exit := b.wait(p); !exit.Success() || out.n != 8_000_000 {
		b.Errorf("%+v: %d bytes came, wanted 8000000", exit, out.n)
	}
}

func slowWriterTail(b *bench) {
	x, clock := b.start(), b.start()
	clock.exec(sh(counter))
	out := newGated()
	c := sh("head -c 50000 /dev/zero")
	c.Stdout, c.WaitDelay = out, time.Millisecond
	p := x.exec(c)
	b.soon(out.entered, "the first write")
	clock.ticks(20) // the command has ended by now, and WaitDelay is over
	close(out.open)
	if exit := b.wait(p); !exit.Success() || out.n != 50_000 {
		b.Errorf("%+v: %d bytes came, wanted 50000: a slow writer must not lose what was written", exit, out.n)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func failingWriter(b *bench) {
	x := b.start()
	full := errors.New("disk full")
	c := sh("head -c 1000000 /dev/zero; echo done >end")
	c.Stdout = writerFunc(func([]byte) (int, error) { return 0, full })
	p := x.exec(c)
	b.soon(p.Done(), "the end")
	exit, err := p.Wait()
	var oerr *sandbox.OutputError
	if !errors.As(err, &oerr) || oerr.Stream != "stdout" || !errors.Is(err, full) {
		b.Errorf("wait: %v, wanted an *OutputError of stdout with the writer's error", err)
	}
	if !exit.Success() || x.size("end") == 0 {
		b.Errorf("%+v: the command must go on with its output discarded", exit)
	}
}

func panickingWriter(b *bench) {
	x := b.start()
	c := sh("echo x; head -c 1000000 /dev/zero >&2")
	c.Stdout = writerFunc(func([]byte) (int, error) { panic("grader bug") })
	var errOut buffer
	c.Stderr = &errOut
	p := x.exec(c)
	b.soon(p.Done(), "the end")
	exit, err := p.Wait()
	if !exit.Success() || err == nil || !strings.Contains(err.Error(), "grader bug") {
		b.Errorf("%+v, %v: wanted success and an error that names the panic", exit, err)
	}
	if len(errOut.String()) != 1_000_000 {
		b.Errorf("the other output lost bytes: %d of 1000000", len(errOut.String()))
	}
}

func stdinFed(b *bench) {
	x := b.start()
	want := bytes.Repeat([]byte("line \xff\n"), 100_000)
	var out buffer
	c := sandbox.Command{Args: []string{"cat"}, Stdin: bytes.NewReader(want), Stdout: &out}
	if exit := b.wait(x.exec(c)); !exit.Success() || out.String() != string(want) {
		b.Errorf("%+v: cat gave %d bytes back of %d", exit, len(out.String()), len(want))
	}
}

func stdinNull(b *bench) {
	x := b.start()
	if out := x.ok("cat; echo eof"); out != "eof\n" {
		b.Errorf("cat without stdin printed %q, wanted eof", out)
	}
}

func stdinUnread(b *bench) {
	x := b.start()
	c := sh("exit 4")
	c.Stdin = io.LimitReader(zeroes{}, 10<<20)
	if exit := b.wait(x.exec(c)); exit.Code != 4 {
		b.Errorf("%+v: wanted code 4 of a command that does not read its stdin", exit)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func grandchildHoldsPipe(b *bench) {
	x := b.start()
	r := x.roll()
	var out buffer
	c := sh(hold + `echo first; (while :; do sleep 0.01; echo more || exit; echo alive >>daemon; done) & echo last`)
	c.Stdout, c.WaitDelay = &out, 50*time.Millisecond
	exit := b.wait(x.exec(c))
	if !exit.OutputHeld || exit.Code != 0 || exit.Reason != sandbox.ReasonNone {
		b.Errorf("%+v: wanted code 0 and OutputHeld", exit)
	}
	if got := out.String(); !strings.HasPrefix(got, "first\n") || !strings.Contains(got, "last\n") {
		b.Errorf("output %q lost what the command itself wrote", got)
	}
	// What it left behind goes on with its output discarded: nothing blocks it, nothing kills it before the end.
	seen := x.size("daemon")
	b.until("the background process to go on", func() bool { return x.size("daemon") > seen+20 })
	b.within(10*time.Second, "release", func() error { return x.Release(b.Context()) })
	r.empty(settle)
}
