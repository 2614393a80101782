package lease_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("LEASE_TEST_SERVE"); path != "" {
		if err := serve(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serve is a coordinator in a process of its own: calls come in on its standard input, replies go out on its standard output,
// until the input ends or somebody kills it.
func serve(path string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	q, err := lease.Open(ctx, db, lease.Config{Limit: &lease.Limit{}, TTL: time.Hour, StartAck: time.Hour})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for {
		var c call
		if err := in.Decode(&c); err != nil {
			cancel()
			wg.Wait()
			return errors.Join(<-done, db.Close())
		}
		wg.Go(func() {
			r := perform(ctx, q, c)
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(r) // a parent that has gone closes the input too
		})
	}
}

// life is one life of the coordinator's process.
type life struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	over    chan struct{} // closed when its output has ended
	mu      sync.Mutex
	enc     *json.Encoder
	waiting map[int64]chan reply
	replies int
	killAt  int
}

// mortal is a coordinator that is killed again and again.
type mortal struct {
	t    *testing.T
	path string
	mu   sync.Mutex
	cur  *life
	left int // kills
	rnd  *rand.Rand
}

// begin starts a process; m.mu is held.
func (m *mortal) begin() {
	l := &life{over: make(chan struct{}), waiting: make(map[int64]chan reply), killAt: -1}
	if m.left > 0 {
		m.left--
		l.killAt = m.rnd.IntN(150)
	}
	l.cmd = exec.Command(os.Args[0])
	l.cmd.Env = append(os.Environ(), "LEASE_TEST_SERVE="+m.path)
	l.cmd.Stderr = os.Stderr
	out, err := l.cmd.StdoutPipe()
	if err == nil {
		l.in, err = l.cmd.StdinPipe()
	}
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		m.t.Error(err)
		close(l.over)
		return
	}
	l.enc = json.NewEncoder(l.in)
	m.cur = l
	go m.read(l, out)
	if l.killAt == 0 {
		_ = l.cmd.Process.Kill() // while it opens the database
	}
}

// read hands out replies, kills the process after as many as it is to live for, and begins the next life.
func (m *mortal) read(l *life, out io.Reader) {
	dec := json.NewDecoder(bufio.NewReader(out))
	for {
		var r reply
		if err := dec.Decode(&r); err != nil {
			break
		}
		l.mu.Lock()
		ch := l.waiting[r.ID]
		delete(l.waiting, r.ID)
		l.replies++
		kill := l.replies == l.killAt
		l.mu.Unlock()
		ch <- r
		if kill {
			_ = l.cmd.Process.Kill() // it may be dying already
		}
	}
	err := l.cmd.Wait()
	m.mu.Lock()
	if l.killAt >= 0 {
		m.begin()
	} else if err != nil {
		m.t.Errorf("the last coordinator ended with %v", err)
	}
	m.mu.Unlock()
	close(l.over)
}

// do sends a call to the present life of the coordinator.
func (m *mortal) do(ctx context.Context, c call) reply {
	if c.Op != "pull" { // a pull may wait for ever; everything else is answered
		ctx = context.WithoutCancel(ctx)
	}
	m.mu.Lock()
	l := m.cur
	m.mu.Unlock()
	ch := make(chan reply, 1)
	l.mu.Lock()
	l.waiting[c.ID] = ch
	_ = l.enc.Encode(c) // a broken pipe is seen as the end of the life
	l.mu.Unlock()
	select {
	case r := <-ch:
		return r
	case <-l.over:
		select {
		case r := <-ch: // it was the last that it said
			return r
		default:
		}
		if m.t.Failed() {
			return reply{Result: "none", Error: "there may be no coordinator any more"}
		}
		if ctx.Err() == nil {
			return reply{Result: "lost", Job: c.Job, Attempt: c.Attempt}
		}
	case <-ctx.Done():
	}
	return reply{Result: "none"}
}

// TestP4_KillMinusNine kills the coordinator at random moments under load. Clients repeat what was not answered. The history
// must be linearizable: no accepted job is lost, none is settled twice, no answer contradicts another.
func TestP4_KillMinusNine(t *testing.T) {
	t.Parallel()
	kills := 25
	if testing.Short() {
		kills = 5
	}
	m := &mortal{t: t, path: filepath.Join(t.TempDir(), "x.db"), left: kills, rnd: rand.New(rand.NewPCG(3, uint64(time.Now().UnixNano())))}
	m.mu.Lock()
	m.begin()
	m.mu.Unlock()
	jobs := 40 * kills // enough work for every kill to come in the middle of some
	history := drive(t, jobs, 4, 8, m.do)
	m.mu.Lock()
	l, left := m.cur, m.left
	m.mu.Unlock()
	if l.killAt >= 0 {
		t.Errorf("only %d of %d kills were done", kills-left, kills)
		l.killAt = -1
	}
	if err := l.in.Close(); err != nil {
		t.Error(err)
	}
	<-l.over
	t.Logf("%d operations over %d kills", len(history), kills-left)
	checkLinear(t, history)

	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: m.path})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var check string
	if err := db.Reader().QueryRow("PRAGMA integrity_check").Scan(&check); err != nil || check != "ok" {
		t.Errorf("integrity check: %s, %v", check, err)
	}
	var n int
	if err := db.Reader().QueryRow("SELECT count(*) FROM lease_job WHERE state = 3").Scan(&n); err != nil || n != jobs {
		t.Errorf("%d jobs have settled, %v; %d were accepted", n, err, jobs)
	}
}
