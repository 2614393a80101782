//go:build unix

package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
)

const questions = 200 // they fit into a pipe

// TestF51_AStoppedRunnerDoesNotBlameInit: the runner is another process, which this one stops when it has asked init
// some things. The answers come at once, and are read when the runner is back.
func TestF51_AStoppedRunnerDoesNotBlameInit(t *testing.T) {
	if os.Getenv("EVERDICT_TEST_ASKS") != "" {
		ours, theirs := net.Pipe()
		go io.Copy(os.Stdout, theirs)
		l := newLink(types.HijackedResponse{Conn: ours, Reader: bufio.NewReader(os.Stdin)})
		go l.run()
		var wg sync.WaitGroup
		for range questions {
			wg.Go(func() {
				if _, err := l.deadline(context.Background(), askDeadline, 0); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			})
		}
		wg.Wait()
		os.Exit(0)
	}
	t.Parallel()
	runner := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestF51_AStoppedRunnerDoesNotBlameInit$")
	runner.Env = append(os.Environ(), "EVERDICT_TEST_ASKS=1")
	var said strings.Builder
	runner.Stderr = &said
	in, err1 := runner.StdinPipe()
	out, err2 := runner.StdoutPipe()
	if err := errors.Join(err1, err2, runner.Start()); err != nil {
		t.Fatal(err)
	}
	asked := make([]byte, questions*headerSize)
	if _, err := io.ReadFull(out, asked); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if err := runner.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(runner.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the runner did not stop: %v, %v", status, err)
	}
	var answers []byte
	for q := range slices.Chunk(asked, headerSize) {
		// As the engine carries it: stream 1, the length; then init's frame.
		answers = append(answers, 1, 0, 0, 0, 0, 0, 0, headerSize+16, frameHeld, 0, 0, 0)
		answers = append(answers, q[4:8]...)
		answers = binary.LittleEndian.AppendUint32(answers, 16)
		answers = append(answers, make([]byte, 16)...)
	}
	if _, err := in.Write(answers); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	until(t, "init's time to be over", func() bool { return time.Since(stopped) > stallAfter*5/4 })
	if err := runner.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := runner.Wait(); err != nil || said.Len() > 0 {
		t.Errorf("a runner that was stopped for %s said %q, %v", time.Since(stopped), &said, err)
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	over, end := stall()
	defer end()
	select {
	case <-over:
	case <-time.After(patience):
		t.Errorf("%s are not over after %s", stallAfter, patience)
	}
	over, end = stall()
	end()
	select {
	case <-over:
		t.Error("a wait that has ended is over")
	default:
	}
}
