package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// guard does what the runner cannot do itself (promise P3). When the runner dies without releasing its sandboxes,
// it ends them: the pipe that it reads from closes with the runner, kill -9 included. When the runner stands still,
// it freezes those whose deadline passes, so that no orphan works on while the attempt is given away.
//
// A deadline is an empty file in dir, and its name says all: at.<hundredths of a second of uptime>.<attempt>. The
// runner moves a deadline by renaming the file; the guard renames it to fired.<attempt> before it freezes. A name
// exists once, so exactly one of the two renames succeeds, and the runner knows whether it came too late. Then
// stopped.<attempt> names the processes that were stopped one by one, and done.<attempt> says when all was still.
//
// While a command is being started the name is start.<hundredths>.<cell>.<attempt>: a child that freezes before its
// exec holds the forking thread, and with that the whole runtime of Go, for ever. Its cell is frozen when the exec
// is over, which needs no runner that goes on; a cell that the stop left without a child is left alone.
//
// A job that is not set apart can end or stop the guard, as it can any program of its user: the runner starts another
// when it next moves a deadline, which it does with every renewal of a lease.
type guard struct {
	cgroup, instance string
	dir              string // of the deadlines; empty: there can be none

	mu    sync.Mutex
	cmd   *exec.Cmd // nil: ended, and no other could be started yet
	pipe  *os.File
	armed map[string]*deadline // by attempt
	ticks int                  // names the loop that watches; its file's removal ends it
}

// deadline is one attempt's.
type deadline struct {
	at   time.Duration // of uptime; 0: none
	cell string        // of the command that is being started; empty: none is
}

// file is the deadline's name.
func (d *deadline) file(attempt string) string {
	if d.cell != "" {
		return fmt.Sprintf("start.%d.%s.%s", d.at/hundredth, d.cell, attempt)
	}
	return fmt.Sprintf("at.%d.%s", d.at/hundredth, attempt)
}

// guardDir is the beginning of the name of a guard's directory, before the instance's name.
const guardDir = "everdict-guard-"

// guardScript needs a POSIX shell and no more. A line on its pipe starts the loop that watches the deadlines, which
// lives as long as the file that the line names. At the end of the pipe it kills the cgroup as a whole, then what
// carries the instance's marker. Neither the shell nor grep carries the marker in its environment.
//
// Without a cgroup it stops what carries the attempt's name, and what descends from it, until a pass finds nothing
// new. What had been stopped by the job itself is not recorded, so that it stays stopped at the thaw.
const guardScript = `trap '' HUP INT TERM
cgroup=$1 marker="EVERDICT_MARKER=$2." dir=$3
uptime() {
  read -r now _ </proc/uptime
  now=${now%.*}${now#*.}
  case $now in 0*) now=0 ;; esac
}
stop() {
  case $seen in *" $1 "*) return 0 ;; esac
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  set -- "$1" ${stat##*) }
  seen="$seen$1 "
  case $2 in
  Z | X) return 0 ;;
  T) ;;
  *)
    fresh=1
    echo "$1 ${21}" >>"$dir/stopped.$attempt"
    kill -STOP "$1"
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    set -- "$1" "${21}" ${stat##*) }
    [ "$2" = "${22}" ] || { kill -CONT "$1"; return 0; }
    ;;
  esac
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
    stop "$child"
  done
}
halt() {
  seen=" " pass=0
  while [ "$pass" -lt 20 ] && [ -e "$dir/fired.$attempt" ]; do
    pass=$((pass + 1)) fresh=
    for f in $(grep -lsaF "$marker" /proc/[0-9]*/environ); do
      tr '\0' '\n' 2>/dev/null <"$f" | grep -qxF "EVERDICT_ATTEMPT=$attempt" || continue
      p=${f#/proc/}
      stop "${p%/environ}"
    done
    [ -n "$fresh" ] || break
  done
}
born() {
  runner=$(tr '\0' ' ' <"/proc/$PPID/cmdline")
  tries=0
  while [ "$tries" -lt 10 ] && [ -d "$1" ]; do
    tries=$((tries + 1)) pids=$(cat "$1/cgroup.procs" 2>/dev/null) early=
    for p in $pids; do
      [ "$(tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline")" != "$runner" ] || early=1
    done
    [ -z "$pids" ] || [ -n "$early" ] || return 0
    sleep 0.05 2>/dev/null || sleep 1
  done
  return 1
}
freeze() {
  if [ -z "$cell" ]; then
    echo 1 >"$cgroup/$attempt/cgroup.freeze"
    return 0
  fi
  for c in "$cgroup/$attempt"/c[0-9]*/; do
    [ "$c" = "$cgroup/$attempt/$cell/" ] || echo 1 >"$c/cgroup.freeze"
  done
  ! born "$cgroup/$attempt/$cell" || echo 1 >"$cgroup/$attempt/$cell/cgroup.freeze"
}
watch() {
  while [ -e "$1" ]; do
    rest=100
    for at in "$dir"/at.* "$dir"/start.*; do
      [ -e "$at" ] || continue
      uptime
      attempt=${at##*/} cell=
      kind=${attempt%%.*} attempt=${attempt#*.}
      left=${attempt%%.*} attempt=${attempt#*.}
      [ "$kind" = at ] || { cell=${attempt%%.*} attempt=${attempt#*.}; }
      left=$((left - now))
      if [ "$left" -gt 0 ]; then
        [ "$left" -gt "$rest" ] || rest=$left
        continue
      fi
      mv "$at" "$dir/fired.$attempt" 2>/dev/null || continue
      if [ -n "$cgroup" ]; then freeze; else halt; fi
      uptime
      echo "$now" >"$dir/new.$attempt" && mv "$dir/new.$attempt" "$dir/done.$attempt"
    done
    [ "$rest" -ge 5 ] || rest=5
    rest=$((rest + 100))
    case $rest in
    200) sleep 1 ;;
    *) sleep "0.${rest#1}" 2>/dev/null || sleep 1 ;;
    esac
  done
}
loop=
while read -r n; do
  [ -z "$loop" ] || wait "$loop"
  watch "$dir/tick.$n" &
  loop=$!
done
[ -n "$cgroup" ] && echo 1 >"$cgroup/cgroup.kill"
n=0
while [ "$n" -lt 20 ]; do
  found=$(grep -lsaF "$marker" /proc/[0-9]*/environ)
  [ -n "$found" ] || break
  for f in $found; do
    p=${f#/proc/}
    kill -9 "${p%/environ}"
  done
  n=$((n + 1))
done
[ -z "$dir" ] || rm -rf "$dir"
wait
`

func startGuard(root *cgroupRoot, instance string) (*guard, error) {
	cgroup := ""
	if root != nil {
		cgroup = root.dir
	}
	if _, err := os.Stat("/bin/sh"); err != nil {
		return nil, err
	}
	g := &guard{cgroup: cgroup, instance: instance, armed: make(map[string]*deadline)}
	// Without a directory the runner's death is still heeded; Info tells the rest.
	g.dir, _ = os.MkdirTemp("", guardDir+instance+"-")
	if err := g.start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(g.dir))
	}
	return g, nil
}

func (g *guard) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", guardScript, "everdict-guard", g.cgroup, g.instance, g.dir)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.Stdin = r
	// A terminal's Ctrl-C goes to the runner's process group, and must not end the guard before it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, w.Close())
	}
	g.cmd, g.pipe = cmd, w
	return nil
}

// works reports whether the guard has neither ended nor been stopped. The guard's mutex is held.
func (g *guard) works() bool {
	if g.cmd == nil {
		return false
	}
	var changed unix.Siginfo
	err := unix.Waitid(unix.P_PID, g.cmd.Process.Pid, &changed, unix.WEXITED|unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && changed.Signo == 0
}

// stop ends the guard without its doing anything.
func (g *guard) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end()
	if g.dir != "" {
		_ = os.RemoveAll(g.dir)
	}
}

// end ends the guard's processes. Their number is free then: it is not used again. The guard's mutex is held.
func (g *guard) end() {
	if g.cmd == nil {
		return
	}
	_ = unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL) // its session's only group: the loop and its sleep, too
	// Those become children of this process when the guard dies. All are waited for before the number is free.
	for {
		_, err := unix.Wait4(-g.cmd.Process.Pid, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			break
		}
	}
	_ = g.cmd.Wait() // has nothing left to wait for
	_ = g.pipe.Close()
	g.cmd, g.pipe = nil, nil
}

// arm sets or moves the deadline of an attempt to d from now; errFired when the one before has passed.
func (g *guard) arm(attempt string, d time.Duration) error {
	if g == nil || g.dir == "" {
		return sandbox.ErrNoDeadline
	}
	now, err := uptime()
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.works() {
		g.end()
		if err := g.start(); err != nil {
			return fmt.Errorf("process: start another guard: %w", err)
		}
		_ = os.Remove(g.tick()) // its loop has gone, too
	}
	if g.has("fired", attempt) {
		return errFired
	}
	at := max(now+d, hundredth)
	last := g.armed[attempt]
	if last == nil {
		last = &deadline{}
		g.armed[attempt] = last
	}
	next := deadline{at: at, cell: last.cell}
	if last.at != 0 {
		moved, err := g.move(attempt, last, next)
		if err != nil {
			return err
		}
		if moved {
			return g.watch()
		}
		// Something has cleaned up in the directory for temporary files: all begins anew.
	}
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(g.dir, next.file(attempt)), nil, 0o600); err != nil {
		return err
	}
	*last = next
	return g.watch()
}

// watch sees to it that the loop runs. The guard's mutex is held.
func (g *guard) watch() error {
	if exists(g.tick()) {
		return nil
	}
	g.ticks++
	if err := os.WriteFile(g.tick(), nil, 0o600); err != nil {
		return err
	}
	_, err := fmt.Fprintln(g.pipe, g.ticks)
	return err
}

// move renames a deadline's file; false when there is none. The guard's mutex is held.
func (g *guard) move(attempt string, last *deadline, next deadline) (bool, error) {
	err := os.Rename(filepath.Join(g.dir, last.file(attempt)), filepath.Join(g.dir, next.file(attempt)))
	switch {
	case err == nil:
		*last = next
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	case g.has("fired", attempt):
		return false, errFired
	}
	return false, nil
}

// starts says that a command of an attempt is being started in a cell, or with an empty name that it has been;
// errFired when the deadline has passed.
func (g *guard) starts(attempt, cell string) error {
	if g == nil || g.dir == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.armed[attempt]
	if d == nil {
		d = &deadline{}
		g.armed[attempt] = d
	}
	if d.at == 0 && g.has("fired", attempt) {
		d.cell = ""
		return errFired
	}
	next := deadline{at: d.at, cell: cell}
	if d.at != 0 {
		if _, err := g.move(attempt, d, next); err != nil {
			if cell == "" {
				d.cell = ""
			}
			return err
		}
	}
	*d = next
	return nil
}

// disarm takes the deadline of an attempt away, unless it has passed.
func (g *guard) disarm(attempt string) {
	if g == nil || g.dir == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.armed[attempt]; d != nil && d.at != 0 {
		_ = os.Remove(filepath.Join(g.dir, d.file(attempt))) // what is not there has fired, or was cleaned up
		g.drop(attempt)
	}
}

// drop forgets a deadline; after the last one the loop ends. The guard's mutex is held.
func (g *guard) drop(attempt string) {
	if d := g.armed[attempt]; d != nil {
		if d.at = 0; d.cell == "" {
			delete(g.armed, attempt)
		}
	}
	for _, d := range g.armed {
		if d.at != 0 {
			return
		}
	}
	_ = os.Remove(g.tick())
}

// forget is for an attempt whose sandbox is released.
func (g *guard) forget(attempt string) {
	if g == nil || g.dir == "" {
		return
	}
	g.disarm(attempt)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.armed, attempt)
}

func (g *guard) tick() string { return filepath.Join(g.dir, "tick."+strconv.Itoa(g.ticks)) }

func (g *guard) has(what, attempt string) bool { return exists(g.path(what, attempt)) }

func (g *guard) path(what, attempt string) string { return filepath.Join(g.dir, what+"."+attempt) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// fired reports whether the guard has frozen an attempt, or does so now, and nobody has taken that over.
func (g *guard) fired(attempt string) bool {
	return g != nil && g.dir != "" && g.has("fired", attempt)
}

// settleWithin bounds the wait for a guard that is freezing: one that was killed meanwhile is never done.
const settleWithin = 5 * time.Second

// take returns since when what the guard has frozen stands still, and what was stopped. A freeze that is under way is
// waited for.
func (g *guard) take(attempt string, now stopwatch.Reading) (since stopwatch.Reading, stopped []proc) {
	ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
	defer cancel()
	_ = poll(ctx, func() (bool, error) { return g.has("done", attempt), nil })
	since = now
	at, err1 := strconv.ParseInt(strings.TrimSpace(readString(g.path("done", attempt))), 10, 64)
	up, err2 := uptime()
	if err1 == nil && err2 == nil {
		// /proc/uptime may have an origin of its own, in a container: only its differences count.
		ago := max(up-time.Duration(at)*hundredth, 0)
		since.Mono, since.Wall = now.Mono-ago, now.Wall-ago
	}
	b, _ := os.ReadFile(g.path("stopped", attempt)) // none: a cgroup was frozen
	for line := range bytes.Lines(b) {
		var p proc
		if _, err := fmt.Sscan(string(line), &p.pid, &p.start); err == nil {
			stopped = append(stopped, p)
		}
	}
	return since, stopped
}

// taken ends a freeze of the guard that the handle has made its own. The guard then knows of no deadline.
func (g *guard) taken(attempt string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(attempt)
	// What tells that there is something to take goes last.
	for _, what := range []string{"done", "stopped", "fired"} {
		_ = os.Remove(g.path(what, attempt))
	}
}

// hundredth is the resolution of /proc/uptime.
const hundredth = 10 * time.Millisecond

// uptime reads the clock that the guard reads.
func uptime() (time.Duration, error) {
	s, _, _ := strings.Cut(readString("/proc/uptime"), " ")
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("process: read the uptime: %w", err)
	}
	return time.Duration(math.Round(v*100)) * hundredth, nil
}

// sweepGuards removes the directories of guards that were killed with their runners. Those of other users are for the
// runners of these.
func sweepGuards(namespace string) error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), guardDir+"*"))
	for _, dir := range dirs {
		name := strings.TrimPrefix(filepath.Base(dir), guardDir)
		if i := strings.LastIndexByte(name, '-'); i > 0 && orphaned(name[:i], namespace) {
			if gone := os.RemoveAll(dir); !errors.Is(gone, fs.ErrPermission) {
				err = errors.Join(err, gone)
			}
		}
	}
	return err
}

// arm and its like are the deadlines of this machine's sandboxes.
func (m *machine) arm(attempt string, d time.Duration) error { return m.guard.arm(attempt, d) }

func (m *machine) disarm(attempt string) { m.guard.disarm(attempt) }

func (m *machine) starts(attempt, cell string) error { return m.guard.starts(attempt, cell) }

func (m *machine) forget(attempt string) { m.guard.forget(attempt) }

func (m *machine) fired(attempt string) bool { return m.guard.fired(attempt) }

func (m *machine) take(attempt string) (stopwatch.Reading, []proc) {
	return m.guard.take(attempt, m.now())
}

func (m *machine) taken(attempt string) { m.guard.taken(attempt) }
