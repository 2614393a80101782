package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// guard ends every sandbox of this instance when the runner dies without releasing them: the pipe that it reads
// from closes with the runner, kill -9 included. Without it the orphans of a dead runner would go on working while
// the attempt is given away (promise P3).
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// guardScript kills the cgroup as a whole, then what carries the instance's marker. Neither the shell nor grep
// carries the marker in its environment.
const guardScript = `trap '' HUP INT TERM
read -r _
[ -n "$1" ] && echo 1 >"$1/cgroup.kill"
n=0
while [ "$n" -lt 20 ]; do
  found=$(grep -lsaF "EVERDICT_MARKER=$2." /proc/[0-9]*/environ)
  [ -n "$found" ] || break
  for f in $found; do
    p=${f#/proc/}
    kill -9 "${p%/environ}"
  done
  n=$((n + 1))
done
`

func startGuard(root *cgroupRoot, instance string) (*guard, error) {
	dir := ""
	if root != nil {
		dir = root.dir
	}
	if _, err := os.Stat("/bin/sh"); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", guardScript, "everdict-guard", dir, instance)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.Stdin = r
	// A terminal's Ctrl-C goes to the runner's process group, and must not end the guard before it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &guard{cmd: cmd, pipe: w}, nil
}

// stop ends the guard without its doing anything.
func (g *guard) stop() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait() // its exit is the kill
	_ = g.pipe.Close()
}
