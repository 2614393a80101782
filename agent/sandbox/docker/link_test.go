package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/docker/docker/api/types"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/hold"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// frameBytes is a frame as init writes it, in the engine's framing.
func frameBytes(kind, flag byte, id uint32, payload []byte) []byte {
	head := make([]byte, headerSize)
	head[0], head[1] = kind, flag
	binary.LittleEndian.PutUint32(head[4:], id)
	binary.LittleEndian.PutUint32(head[8:], uint32(len(payload)))
	return inStream(1, append(head, payload...))
}

func inStream(stream byte, p []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{stream, 0, 0, 0}, uint32(len(p))), p...)
}

// feedLink lets a link read bytes, with one command that is being started, and returns what that wrote.
func feedLink(t testing.TB, data []byte) (*command, string, error) {
	here, there := net.Pipe()
	go io.Copy(io.Discard, there)
	defer there.Close()
	defer here.Close()
	d := New(Config{})
	defer d.Close()
	h := newHandle(d, sandbox.Spec{Attempt: "a", Dir: "/"})
	h.watch = stopwatch.New(stopwatch.Now, false)
	h.holds = hold.New(h.watch)
	l := newLink(types.HijackedResponse{Conn: here, Reader: bufio.NewReader(bytes.NewReader(data))})
	l.onDeadline = h.onDeadline
	h.link, h.releasing = l, true // nothing is to be killed here
	var out bytes.Buffer
	c := newCommand(h, l, sandbox.Command{Args: []string{"x"}, Stdout: &out})
	l.add(c)
	for _, s := range c.streams {
		go s.deliver()
	}
	err := l.read()
	c.cutOff(errLinkClosed)
	for _, s := range c.streams {
		<-s.settled
	}
	return c, out.String(), err
}

func TestLinkReadsFrames(t *testing.T) {
	t.Parallel()
	number := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	data := frameBytes(frameHello, 0, 0, append(number(initVersion), make([]byte, 8)...))
	data = append(data, inStream(2, []byte("a complaint"))...)
	data = append(data, frameBytes(framePid, 0, 1, number(7))...)
	whole := frameBytes(frameOutput, 1, 1, []byte("hello "))
	// The engine cuts where it likes.
	data = append(data, inStream(1, whole[8:13])...)
	data = append(data, inStream(1, whole[13:])...)
	data = append(data, frameBytes(frameOutput, 1, 1, []byte("world"))...)
	data = append(data, frameBytes(frameEnded, 0, 1, number(3<<8))...)
	data = append(data, frameBytes(frameOutput, 1, 1, nil)...)
	data = append(data, frameBytes(frameOver, 0, 1, nil)...)
	c, out, err := feedLink(t, data)
	if err != io.EOF || out != "hello world" || !c.known || c.status != 3<<8 || c.lost {
		t.Errorf("%v, output %q, status %#x (%v), lost %v", err, out, c.status, c.known, c.lost)
	}
}

func FuzzLink(f *testing.F) {
	for _, kind := range []byte{frameHello, framePid, frameError, frameOutput, frameGranted, frameSent, frameEnded, frameOver, frameAllGone, frameContent, frameGiven, frameHeld, 'Q'} {
		f.Add(frameBytes(kind, 1, 1, []byte{1, 0, 0, 0, 2, 0, 0, 0}))
		f.Add(append(frameBytes(kind, 1, 1, nil), frameBytes(kind, 2, 1, []byte("abcd"))...))
	}
	f.Add(inStream(2, []byte("x")))
	f.Add(frameBytes(frameHello, 0, 0, append([]byte{initVersion, 0, 0, 0}, make([]byte, 8)...)))
	f.Add(frameBytes(frameHeld, 0, 0, bytes.Repeat([]byte{1, 0, 0, 0}, 4)))
	f.Fuzz(func(t *testing.T, data []byte) { _, _, _ = feedLink(t, data) })
}
