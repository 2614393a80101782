// Package window shows the page of the resident process in a window. The window is a
// process of its own ("everdict-desktop window"), which is there only while the window
// is, so that what stays all day stays small, and what a web engine does to itself it
// does to nobody else.
//
// The process tries one way after the other and takes the first that works: a web view of
// the system in a window of its own, a browser in app mode, the default browser. It and
// its parent speak by lines on its stdin and stdout:
//
//	child   url?           it has a way to show the page and needs a fresh address
//	parent  url ADDRESS    the answer
//	child   open KIND      a window is up; again if that way failed and another was found
//	parent  raise          bring the window to the front
//	parent  (end)          close the window: the parent is done, or dead
//	child   over KIND      given to the default browser: nobody will know when it is closed
//	child   failed REASON  no way worked
//
// The address carries a token that is good once. A window of our own gets it by stdin
// alone, so it is on no command line. A browser takes an address only as an argument,
// which other programs of this machine can read until it is used: that is why it is
// good once, and why each way asks for a fresh one.
package window

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Kind is how the page is shown.
type Kind string

// The kinds, in the order in which they are tried.
const (
	// WebView is a window of our own: WebKitGTK on Linux, WKWebView on macOS.
	WebView Kind = "webview"
	// App is a browser in app mode, with a profile of its own for as long as it lasts.
	App Kind = "app"
	// Browser is a tab of the default browser.
	Browser Kind = "browser"
)

// Kinds are all of them.
var Kinds = []Kind{WebView, App, Browser}

// ErrNotOurs is Raise's answer for a window that belongs to a browser.
var ErrNotOurs = errors.New("the window belongs to a browser")

// closeWait is how long a window has to close before its process is ended.
const closeWait = 10 * time.Second

// maxLine bounds what the two processes say in one line.
const maxLine = 64 << 10

// Config is how a window is opened.
type Config struct {
	// Executable is the program that knows the command "window": our own.
	Executable string
	// URL makes a fresh address of the page, on a loopback address, with a token that is good once.
	// It is called for each way that is tried, and never by two goroutines at once.
	URL func() (string, error)
	// Options go to the process as flags.
	Options Options
	// Environ is the environment of the process. Default: our own.
	Environ []string
	// Stderr is where the process's own messages go. Default: nowhere.
	Stderr io.Writer
}

// Process is a window that was opened.
type Process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	url  func() (string, error)
	up   chan struct{} // closed when a window is up, or given away
	done chan struct{} // closed when the process has ended

	mu     sync.Mutex // guards in, and what follows
	kind   Kind
	over   bool
	reason string
	err    error
}

// Open starts a window and returns when it is up, or with the reason why none is. The
// window is closed when ctx ends.
func Open(ctx context.Context, cfg Config) (*Process, error) {
	p := &Process{url: cfg.URL, up: make(chan struct{}), done: make(chan struct{})}
	p.cmd = exec.Command(cfg.Executable, append([]string{"window"}, cfg.Options.args()...)...)
	p.cmd.Env, p.cmd.Stderr = cfg.Environ, cfg.Stderr
	p.cmd.WaitDelay = time.Second // what it left behind, a browser or an engine's process, may hold stdout and stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("open a window: %w", err)
	}
	out, said := io.Pipe()
	p.cmd.Stdout = said
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("open a window: %w", err)
	}
	go p.follow(out, said)
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	go func() { <-p.done; stop() }()
	select {
	case <-p.up:
		return p, nil
	case <-p.done:
	}
	select {
	case <-p.up: // it was up, and is closed again
		return p, nil
	default:
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("open a window: %w", context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != "" {
		return nil, fmt.Errorf("open a window: %s", p.reason)
	}
	return nil, fmt.Errorf("open a window: its process ended before there was one: %v", p.err)
}

// follow reads what the process says, until it ends. The end is that of the process, and is
// told WaitDelay later at most: what it started may hold its stdout for longer.
func (p *Process) follow(out io.Reader, said io.Closer) {
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			p.heard(word, rest)
		}
		_, _ = io.Copy(io.Discard, out) // if a line was too long
	}()
	err := p.cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the process ended well
	}
	_ = said.Close()
	<-heard
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	close(p.done)
}

func (p *Process) heard(word, rest string) {
	switch word {
	case "url?":
		u, err := p.url()
		if err == nil && strings.ContainsAny(u, "\r\n") {
			err = errors.New("the address of the page has two lines")
		}
		if err != nil {
			p.mu.Lock()
			p.reason = err.Error()
			p.mu.Unlock()
			_ = p.in.Close()
			return
		}
		_ = p.say("url " + u)
	case "open", "over":
		p.mu.Lock()
		p.kind, p.over = Kind(rest), word == "over"
		p.mu.Unlock()
		select {
		case <-p.up:
		default:
			close(p.up)
		}
	case "failed":
		p.mu.Lock()
		p.reason = rest
		p.mu.Unlock()
	}
}

func (p *Process) say(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

// Kind is how the page is shown.
func (p *Process) Kind() Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind
}

// Tracked says whether Done means that the window is closed. It is false for a tab of the
// default browser: its Done is closed at once.
func (p *Process) Tracked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.over
}

// Done is closed when the window is closed.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is why the window is gone, after Done: nil if it was closed.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != "" {
		return errors.New(p.reason)
	}
	return p.err
}

// Raise brings the window to the front, as far as the desktop lets it. Of a browser's it
// returns ErrNotOurs.
func (p *Process) Raise() error {
	if p.Kind() != WebView {
		return ErrNotOurs
	}
	return p.say("raise")
}

// Close closes the window and returns when it is gone. Closing it twice is no error.
func (p *Process) Close() error {
	_ = p.in.Close()
	select {
	case <-p.done:
	case <-time.After(closeWait):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return p.Err()
}
