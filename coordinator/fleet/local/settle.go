package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// size is what a machine has, or what of it is declared.
type size struct{ cpu, memoryMB, gpu int }

// settle starts the units that wait as far as there is room, ends those that were
// terminated, and forgets those of which nothing runs any more. It returns why units are
// not started, by directory.
func (o *Opener) settle() (short map[string]string) {
	short = map[string]string{}
	o.mu.Lock()
	over := o.leavings()
	units, err := o.readAll()
	if err != nil {
		o.cfg.Log.Warn("some units cannot be read", "err", err)
	}
	var used size
	for _, u := range units {
		switch {
		case u.alive() && u.exit == nil:
			used = used.plus(u)
			fallthrough
		case u.alive():
			if !u.gone.IsZero() {
				how := syscall.SIGTERM
				if time.Since(u.gone) > o.cfg.Drain+killSlack+keepSlack {
					how = syscall.SIGKILL
				}
				o.end(u, how)
			}
		case !u.gone.IsZero():
			// At one instant it is none any more; its files may take longer.
			target, name := filepath.Split(u.dir)
			if err := os.Rename(u.dir, filepath.Join(target, removing+name)); err != nil {
				o.cfg.Log.Warn("unit cannot be removed", "unit", u.Unit, "err", err)
				continue
			}
			over = append(over, o.filesOf(filepath.Base(target), name)...)
		}
	}
	whole := capacity()
	for _, u := range units {
		if !u.waits() || o.stopped {
			continue
		}
		if why := used.lacks(whole, u); why != "" {
			short[u.dir] = why
			continue
		}
		used = used.plus(u)
		o.start(u)
	}
	o.mu.Unlock()
	for _, dir := range over {
		if err := removeAll(dir); err != nil {
			o.cfg.Log.Warn("files of a unit could not be removed", "dir", dir, "err", err)
		}
	}
	return short
}

// filesOf are the directories that a unit has left which is none any more.
func (o *Opener) filesOf(target, name string) []string {
	return []string{o.workOf(target, name), filepath.Join(o.cfg.Dir, target, removing+name)}
}

// leavings are what a process that was killed has left of units that were being made or
// removed. They are asked for once; the caller holds mu.
func (o *Opener) leavings() (all []string) {
	if o.swept {
		return nil
	}
	o.swept = true
	for _, pattern := range []string{making, removing} {
		left, _ := filepath.Glob(filepath.Join(o.cfg.Dir, "*", pattern+"*"))
		for _, dir := range left {
			target, name := filepath.Split(dir)
			unit := strings.TrimPrefix(name, removing)
			if _, err := os.Stat(filepath.Join(target, unit)); unit != name && errors.Is(err, fs.ErrNotExist) {
				all = append(all, o.filesOf(filepath.Base(target), unit)...)
				continue
			}
			all = append(all, dir)
		}
	}
	return all
}

// removeAll removes a tree, directories that were closed to their owner included.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // what is not ours stays, and RemoveAll says so
		}
		return nil
	})
	return os.RemoveAll(dir)
}

func (s size) plus(u *unit) size {
	return size{s.cpu + u.CPU, s.memoryMB + u.MemoryMB, s.gpu + u.GPU}
}

// lacks is what a machine, of which s is in use, has too little of for a unit; empty:
// nothing.
func (s size) lacks(whole size, u *unit) string {
	for _, of := range []struct {
		name, unit        string
		wants, used, have int
	}{
		{"memory", " MiB", u.MemoryMB, s.memoryMB, whole.memoryMB},
		{"cpu", "m", u.CPU, s.cpu, whole.cpu},
		{"gpu", "", u.GPU, s.gpu, whole.gpu},
	} {
		if of.wants > 0 && of.used+of.wants > of.have {
			return fmt.Sprintf("insufficient %s: it declares %d%s, and of the %d%s of this machine other units declare %d%s",
				of.name, of.wants, of.unit, of.have, of.unit, of.used, of.unit)
		}
	}
	return ""
}

// start starts the keeper of a unit. The caller holds mu.
func (o *Opener) start(u *unit) {
	cmd := exec.Command(o.cfg.Keeper[0], append(o.cfg.Keeper[1:len(o.cfg.Keeper):len(o.cfg.Keeper)], u.dir)...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = o.cfg.Environ, "/", alone()
	out, err := os.OpenFile(filepath.Join(u.dir, keeperLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		cmd.Stdout, cmd.Stderr = out, out
		err = errors.Join(cmd.Start(), out.Close())
	}
	if err != nil {
		o.failed(u.dir, u.Unit, err)
		return
	}
	o.children[u.dir] = cmd
	u.started = true
	// It ends with the keeper, which may outlive this process: nobody waits for it.
	go func() {
		err := cmd.Wait()
		o.mu.Lock()
		delete(o.children, u.dir)
		if err != nil {
			if now, unread := o.read(u.dir); unread == nil && now != nil && now.keeper == nil {
				said, _ := end(filepath.Join(u.dir, keeperLog), 1000)
				o.failed(u.dir, u.Unit, fmt.Errorf("its keeper: %w: %s", err, said))
			}
		}
		o.mu.Unlock()
		o.changed()
	}()
}

// failed writes down that a unit could not be started. The caller holds mu.
func (o *Opener) failed(dir, unit string, err error) {
	o.cfg.Log.Warn("unit could not be started", "unit", unit, "err", err)
	if err := writeJSON(dir, exitFile, &ending{Failed: err.Error()}); err != nil {
		o.cfg.Log.Warn("that a unit could not be started is not written down, and it is tried again", "unit", unit, "err", err)
	}
}

// end tells a unit that runs to end, or kills its keeper and with it its runner. Nothing
// else is ever signalled. The caller holds mu.
func (o *Opener) end(u *unit, how syscall.Signal) {
	if u.keeper == nil || !u.held {
		return // it has only just been started: it finds out by itself, or is told next time
	}
	if err := u.keeper.signal(how); err != nil {
		o.cfg.Log.Warn("unit could not be told to end", "unit", u.Unit, "err", err)
	}
}
