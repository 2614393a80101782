package window

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// ErrNoDisplay says that nothing can be shown here.
var ErrNoDisplay = errors.New("there is no display")

// way is one way to show the page.
type way struct {
	kind Kind
	name string
	// show blocks until the window is closed. A way that cannot show the page returns
	// before it calls session.opened, or wraps errNotShown.
	show func(ctx context.Context, s *session) error
}

// errNotShown is wrapped by the error of a way that said that it had opened the page, and
// turned out to be wrong.
var errNotShown = errors.New("the page was not shown")

// session is the child's side of what the two processes say.
type session struct {
	Options
	out    io.Writer
	urls   chan string
	shown  bool
	mu     sync.Mutex
	raised func()
}

// Main is the process of a window: it shows the page and returns when it is closed, or
// with the reason why it cannot be shown, which the parent is told too. in and out lead to
// the parent. It must be called by the main goroutine.
func Main(ctx context.Context, opt Options, in io.Reader, out io.Writer) error {
	// Toolkits want one thread, and on Linux a browser is ended with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	opt = opt.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{Options: opt, out: out, urls: make(chan string)}
	go s.listen(ctx, cancel, in)
	err := s.run(ctx)
	if err != nil {
		s.say("failed " + strings.Join(strings.Fields(err.Error()), " "))
	}
	return err
}

func (s *session) run(ctx context.Context) error {
	var failed []error
	for _, w := range ways(s.Options) {
		if !slices.Contains(s.Kinds, w.kind) {
			continue
		}
		s.shown = false
		err := w.show(ctx, s)
		switch {
		case ctx.Err() != nil:
			return nil // closed by the parent
		case err != nil && (!s.shown || errors.Is(err, errNotShown)):
			failed = append(failed, fmt.Errorf("%s: %w", w.name, err))
		default:
			return err
		}
	}
	if len(failed) == 0 {
		return fmt.Errorf("no way of %q is known on %s", s.Kinds, runtime.GOOS)
	}
	return errors.Join(failed...)
}

// listen hears the parent, and cancels at its end.
func (s *session) listen(ctx context.Context, cancel context.CancelFunc, in io.Reader) {
	defer cancel()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
		case "url":
			select {
			case s.urls <- rest:
			case <-ctx.Done():
				return
			}
		case "raise":
			s.mu.Lock()
			raise := s.raised
			s.mu.Unlock()
			if raise != nil {
				raise()
			}
		}
	}
}

func (s *session) say(line string) { fmt.Fprintln(s.out, line) }

// address asks the parent for a fresh address.
func (s *session) address(ctx context.Context) (string, error) {
	s.say("url?")
	select {
	case u := <-s.urls:
		return u, local(u)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// local refuses what is not a page of this machine.
func local(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return errors.New("the address of the page cannot be read") // it has a token in it
	}
	host, err := netip.ParseAddr(u.Hostname())
	if u.Scheme != "http" || err != nil || !host.IsLoopback() || u.User != nil {
		return errors.New("the address of the page is not http on a loopback address")
	}
	return nil
}

// opened tells the parent that a window is up. raise brings it to the front; nil if that
// is not ours to do.
func (s *session) opened(kind Kind, raise func()) {
	s.mu.Lock()
	s.raised = raise
	s.mu.Unlock()
	s.shown = true
	s.say("open " + string(kind))
}

// outward says what to do with a link in the page: stay where it is the page's own
// address, else hand it to the default browser.
func outward(page, link string) (leaves bool) {
	p, err1 := url.Parse(page)
	l, err2 := url.Parse(link)
	return err1 != nil || err2 != nil || l.Scheme != p.Scheme || l.Host != p.Host
}
