package docker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/docker/docker/api/types"

	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// Frames between the driver and init; init/init.c has the same table and says what each means.
const (
	frameRun      = 'R'
	frameStdin    = 'I'
	frameClose    = 'C'
	frameGrant    = 'W'
	frameSignal   = 'S'
	frameKill     = 'K'
	frameKillAll  = 'A'
	frameStopAll  = 'T'
	frameGoOn     = 'G'
	frameFile     = 'F'
	frameGive     = 'O'
	frameDeadline = 'D'

	frameHello   = 'h'
	framePid     = 'p'
	frameError   = 'e'
	frameOutput  = 'o'
	frameGranted = 'w'
	frameSent    = 's'
	frameEnded   = 'x'
	frameOver    = 'z'
	frameAllGone = 'a'
	frameContent = 'f'
	frameGiven   = 'g'
	frameHeld    = 'd'

	initVersion = 2
	headerSize  = 12
	chunk       = 32 << 10
	// stdinRoom is what init holds of a command's stdin.
	stdinRoom = 64 << 10
	// window is how much output of one stream is under way at most. At a round trip of a millisecond through an
	// engine it allows 256 MB/s.
	window = 256 << 10
)

// Flags of a run request.
const (
	runStdin = 1 << iota
	runMerge
	runNullStdout
	runNullStderr
)

var (
	errLinkClosed = errors.New("the connection to the container has ended")
	errSilent     = errors.New("init does not answer")
)

// link is the connection to the init of one life of a container.
type link struct {
	conn  types.HijackedResponse
	hello chan struct{} // closed when init has spoken
	dead  chan struct{} // closed when the connection is over
	done  chan struct{} // closed when the reader has told everybody

	onDeadline func(l *link, since *stopwatch.Reading)

	write sync.Mutex
	next  atomic.Uint32

	mu        sync.Mutex
	commands  map[uint32]*command
	files     map[uint32]chan fileAnswer
	allGone   []chan struct{}
	questions map[uint32]deadlineQuestion
	clock     clock        // init's, as last heard
	stderr    bytes.Buffer // what init or the runtime says in distress, the first KiB
	err       error        // valid when dead is closed
}

type fileAnswer struct {
	content []byte
	errno   uint32
}

// newLink returns a link whose reader is yet to be started.
func newLink(conn types.HijackedResponse) *link {
	return &link{conn: conn, hello: make(chan struct{}), dead: make(chan struct{}), done: make(chan struct{}),
		commands: make(map[uint32]*command), files: make(map[uint32]chan fileAnswer), questions: make(map[uint32]deadlineQuestion),
		clock: clock{sent: stopwatch.Now()}}
}

// close ends the connection. Init ends on it, and with init the container.
func (l *link) close() {
	l.conn.Close()
	<-l.done
}

// run reads until the connection ends. It never waits for anybody: what it takes in was granted.
func (l *link) run() {
	err := l.read()
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || err == nil {
		err = errLinkClosed
	}
	l.conn.Close()
	l.mu.Lock()
	if said := bytes.TrimSpace(l.stderr.Bytes()); len(said) > 0 {
		err = fmt.Errorf("%w: %s", err, said)
	}
	l.err = err
	close(l.dead)
	commands := l.commands
	l.commands = nil
	l.mu.Unlock()
	for _, c := range commands {
		c.cutOff(err)
	}
	close(l.done)
}

func (l *link) read() error {
	r := &demux{r: l.conn.Reader, stderr: func(p []byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if room := 1024 - l.stderr.Len(); room > 0 {
			l.stderr.Write(p[:min(room, len(p))])
		}
	}}
	var head [headerSize]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		size := binary.LittleEndian.Uint32(head[8:])
		if size > chunk {
			return fmt.Errorf("frame %q of %d bytes", head[0], size)
		}
		bp := buffers.Get().(*[]byte)
		p := (*bp)[:size]
		if _, err := io.ReadFull(r, p); err != nil {
			buffers.Put(bp)
			return err
		}
		kept, err := l.take(head[0], head[1], binary.LittleEndian.Uint32(head[4:]), p, bp)
		if !kept {
			buffers.Put(bp)
		}
		if err != nil {
			return err
		}
	}
}

// take handles one frame; kept says that bp is somebody else's now.
func (l *link) take(kind, flag byte, id uint32, p []byte, bp *[]byte) (kept bool, err error) {
	number := func() uint32 {
		if len(p) < 4 {
			err = fmt.Errorf("frame %q is short", kind)
			return 0
		}
		return binary.LittleEndian.Uint32(p)
	}
	switch kind {
	case frameHello:
		if v := number(); err == nil && v != initVersion {
			err = fmt.Errorf("init speaks version %d", v)
		}
		if err == nil && len(p) < 12 {
			err = fmt.Errorf("frame %q is short", kind)
		}
		if err == nil {
			l.mu.Lock()
			l.clock.init, l.clock.heard = duration(p[4:]), stopwatch.Now()
			l.mu.Unlock()
			select {
			case <-l.hello:
			default:
				close(l.hello)
			}
		}
		return false, err
	case frameHeld:
		return false, l.takeDeadline(id, p)
	case frameAllGone:
		l.mu.Lock()
		for _, c := range l.allGone {
			close(c)
		}
		l.allGone = nil
		l.mu.Unlock()
		return false, nil
	case frameContent, frameGiven:
		a := fileAnswer{}
		if kind == frameGiven || flag == 1 {
			a.errno = number()
		} else {
			a.content = bytes.Clone(p)
		}
		l.mu.Lock()
		c := l.files[id]
		delete(l.files, id)
		l.mu.Unlock()
		if c != nil {
			c <- a
		}
		return false, err
	}
	l.mu.Lock()
	c := l.commands[id]
	l.mu.Unlock()
	if c == nil {
		return false, nil // one that could not be started, and was given up
	}
	switch kind {
	case framePid:
		c.onStarted()
	case frameError:
		where := number()
		if len(p) < 8 {
			return false, fmt.Errorf("frame %q is short", kind)
		}
		l.drop(id)
		c.onError(where, binary.LittleEndian.Uint32(p[4:]))
	case frameOutput:
		if flag < 1 || flag > 2 {
			return false, fmt.Errorf("output of stream %d", flag)
		}
		if kept = c.onOutput(int(flag-1), p, bp); len(p) == 0 {
			l.dropOver(c)
		}
		return kept, nil
	case frameGranted:
		c.onGrant(int(number()))
	case frameSent:
		c.onSent(number())
	case frameEnded:
		c.onEnded(number())
	case frameOver:
		c.onOver(flag == 1)
		l.dropOver(c)
	default:
		return false, fmt.Errorf("frame %q is unknown", kind)
	}
	return false, err
}

// dropOver forgets a command of which nothing more will be heard.
func (l *link) dropOver(c *command) {
	select {
	case <-c.gone:
	default:
		return
	}
	for _, s := range c.streams {
		if !s.complete() {
			return
		}
	}
	l.drop(c.id)
}

func (l *link) drop(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.commands, id)
}

// add gives a command its number; false when the connection is over.
func (l *link) add(c *command) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.commands == nil {
		return false
	}
	c.id = l.next.Add(1)
	l.commands[c.id] = c
	return true
}

// send writes one frame. An error means that the connection is over.
func (l *link) send(kind, flag byte, id uint32, payload []byte) error {
	head := make([]byte, headerSize, headerSize+len(payload))
	head[0], head[1] = kind, flag
	binary.LittleEndian.PutUint32(head[4:], id)
	binary.LittleEndian.PutUint32(head[8:], uint32(len(payload)))
	l.write.Lock()
	defer l.write.Unlock()
	if _, err := l.conn.Conn.Write(append(head, payload...)); err != nil {
		l.conn.Close() // the reader tells everybody
		return errLinkClosed
	}
	return nil
}

func (l *link) sendNumber(kind, flag byte, id, v uint32) error {
	return l.send(kind, flag, id, binary.LittleEndian.AppendUint32(nil, v))
}

// killAll ends every process of the container but init; the channel is closed when all are gone.
func (l *link) killAll() (<-chan struct{}, error) {
	c := make(chan struct{})
	l.mu.Lock()
	l.allGone = append(l.allGone, c)
	l.mu.Unlock()
	return c, l.send(frameKillAll, 0, 0, nil)
}

// file asks for the content of a file as init sees it, at most 4 KiB. The answer also says that every frame which init
// had sent before it read the question has come.
func (l *link) file(path string) <-chan fileAnswer { return l.ask(frameFile, append([]byte(path), 0)) }

func (l *link) ask(kind byte, payload []byte) <-chan fileAnswer {
	c := make(chan fileAnswer, 1)
	id := l.next.Add(1)
	l.mu.Lock()
	l.files[id] = c
	l.mu.Unlock()
	_ = l.send(kind, 0, id, payload) // over: the caller watches dead
	return c
}

// give makes everything below dir, as init sees it, the user's.
func (l *link) give(ctx context.Context, dir string, uid, gid int) error {
	p := binary.LittleEndian.AppendUint32(nil, uint32(uid))
	p = binary.LittleEndian.AppendUint32(p, uint32(gid))
	select {
	case a := <-l.ask(frameGive, append(append(p, dir...), 0)):
		if a.errno != 0 {
			return linuxErrno(a.errno)
		}
		return nil
	case <-l.dead:
		return l.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// barrier waits until init has carried out everything that was sent before.
func (l *link) barrier(ctx context.Context) error {
	silent, end := stall()
	defer end()
	select {
	case <-l.file("/proc/self/comm"):
		return nil
	case <-l.dead:
		return l.err
	case <-silent:
		return errSilent
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// demux undoes the engine's framing of stdout and stderr: stream, 3 bytes zero, big-endian length.
type demux struct {
	r      io.Reader
	stderr func([]byte)
	rest   uint32 // of the present stdout frame
}

func (d *demux) Read(p []byte) (int, error) {
	for d.rest == 0 {
		var head [8]byte
		if _, err := io.ReadFull(d.r, head[:]); err != nil {
			return 0, err
		}
		size := binary.BigEndian.Uint32(head[4:])
		if head[0] == 1 {
			d.rest = size
			continue
		}
		for size > 0 {
			var skip [512]byte
			n, err := d.r.Read(skip[:min(size, uint32(len(skip)))])
			d.stderr(skip[:n])
			size -= uint32(n)
			if err != nil {
				return 0, err
			}
		}
	}
	n, err := d.r.Read(p[:min(len(p), int(d.rest))])
	d.rest -= uint32(n)
	return n, err
}
