package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
)

// Files of a unit's directory; see the package's comment.
const (
	unitFile  = "unit.json"
	tokenFile = "token"
	// payloadFile is in place of a token. Its runner removes it.
	payloadFile = "payload.json"
	startFile   = "start.json"
	lockFile    = "lock"
	keeperFile  = "keeper.json"
	exitFile    = "exit.json"
	goneFile    = "gone"
	outFile     = "out"
	logFile     = "log"
	// keeperLog has what a keeper says that cannot do its work.
	keeperLog = "keeper.log"
	// making and removing are how the directory of a unit is called before it is one, and
	// when it is one no more. No unit's name begins with a dot.
	making   = ".new-"
	removing = ".old-"
)

// record is what a unit is for.
type record struct {
	Coordinator string        `json:"coordinator"`
	Workspace   string        `json:"workspace"`
	Runtime     string        `json:"runtime"`
	Unit        string        `json:"unit"`
	Job         string        `json:"job,omitempty"`
	Attempt     int64         `json:"attempt,omitempty"`
	Note        string        `json:"note,omitempty"`
	CPU         int           `json:"cpu,omitempty"`
	MemoryMB    int           `json:"memoryMb,omitempty"`
	GPU         int           `json:"gpu,omitempty"`
	Deadline    time.Duration `json:"deadline,omitempty"`
}

// start is how a unit is started. What its runner inherits is not in it: that may hold
// secrets of the machine.
type start struct {
	Args     []string      `json:"args"`
	Env      []string      `json:"env"`
	Deadline time.Duration `json:"deadline,omitempty"`
	// Kill is how long after SIGTERM the runner is killed.
	Kill time.Duration `json:"kill"`
}

// ending is how a unit's runner ended.
type ending struct {
	// Failed says why it was never started.
	Failed string `json:"failed,omitempty"`
	Code   int    `json:"code"`
	// Signal that ended it; empty: it exited.
	Signal string `json:"signal,omitempty"`
	// Late says that its deadline had passed, Asked that the keeper was told to end, and
	// Killed that the runner did not end when it was asked to.
	Late   bool `json:"late,omitempty"`
	Asked  bool `json:"asked,omitempty"`
	Killed bool `json:"killed,omitempty"`
	// OutOfMemory says that the kernel has ended processes of the machine's control group
	// for want of memory while it ran.
	OutOfMemory bool `json:"outOfMemory,omitempty"`
	// Left is how many processes of it could not be ended.
	Left int `json:"left,omitempty"`
}

// unit is what is on the disk of one, as it was a moment ago.
type unit struct {
	record
	dir    string
	made   time.Time
	keeper *identity
	exit   *ending
	// launched says that its launch is complete, started that this process has just
	// started its keeper, held that a process of it lives, gone when it was terminated.
	launched, started, held bool
	gone                    time.Time
}

// alive says that a process of the unit runs, or is about to.
func (u *unit) alive() bool { return u.held || u.started }

// waits says that a unit is to be started.
func (u *unit) waits() bool {
	return u.launched && !u.alive() && u.keeper == nil && u.exit == nil && u.gone.IsZero()
}

// targetDir is the directory of a target's units, below Config.Dir.
func targetDir(t fleet.Target) string { return digest(t.Coordinator, t.Workspace, t.Spec.ID) }

// workOf is where a unit's runner works. The path is short: there are sockets below it, and
// their paths are bounded.
func (o *Opener) workOf(target, unit string) string {
	return filepath.Join(o.cfg.WorkDir, digest(target, unit))
}

func digest(of ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(of, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// read looks at the directory of a unit; nil if it is none. The caller holds mu.
func (o *Opener) read(dir string) (*unit, error) {
	u := &unit{dir: dir}
	info, err := os.Stat(filepath.Join(dir, unitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		u.made = info.ModTime()
		_, err = readJSON(dir, unitFile, &u.record)
	}
	if err != nil {
		return nil, fmt.Errorf("local: read unit %s: %w", filepath.Base(dir), err)
	}
	// The lock first: what is written before it is let go is read after that.
	u.started = o.children[dir] != nil
	if u.held, err = held(filepath.Join(dir, lockFile)); err != nil {
		return nil, fmt.Errorf("local: read unit %s: %w", u.Unit, err)
	}
	var keeper identity
	var exit ending
	if found, err := readJSON(dir, keeperFile, &keeper); err != nil {
		return nil, err
	} else if found {
		u.keeper = &keeper
	}
	if found, err := readJSON(dir, exitFile, &exit); err != nil {
		return nil, err
	} else if found {
		u.exit = &exit
	}
	_, err = os.Stat(filepath.Join(dir, startFile))
	u.launched = err == nil
	if info, err := os.Stat(filepath.Join(dir, goneFile)); err == nil {
		u.gone = info.ModTime()
	}
	return u, nil
}

// readAll are the units of every target, in the order in which they were launched. The
// caller holds mu.
func (o *Opener) readAll() ([]*unit, error) {
	targets, err := os.ReadDir(o.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []*unit
	for _, t := range targets {
		units, failed := o.readTarget(t.Name())
		all = append(all, units...)
		err = errors.Join(err, failed)
	}
	slices.SortFunc(all, func(a, b *unit) int {
		if c := a.made.Compare(b.made); c != 0 {
			return c
		}
		return strings.Compare(a.Unit, b.Unit)
	})
	return all, err
}

func (o *Opener) readTarget(target string) ([]*unit, error) {
	entries, err := os.ReadDir(filepath.Join(o.cfg.Dir, target))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []*unit
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		u, failed := o.read(filepath.Join(o.cfg.Dir, target, e.Name()))
		if u != nil {
			all = append(all, u)
		}
		err = errors.Join(err, failed)
	}
	return all, err
}

// state is what the fleet is told of a unit. short is why it cannot be started now.
func (u *unit) state(host, short string) fleet.Unit {
	s := fleet.Unit{Name: u.Unit, Job: u.Job, Attempt: u.Attempt, Note: u.Note}
	switch {
	case u.exit != nil:
		s.State, s.Node, s.Trouble = fleet.Ended, host, u.exit.trouble(u.Deadline)
	case u.held && u.keeper != nil:
		s.State, s.Node = fleet.Running, host
	case u.alive():
		s.State, s.Node = fleet.Pending, host
	case u.keeper != nil:
		s.State, s.Node, s.Trouble = fleet.Ended, host, u.keeper.lost()
	case !u.launched:
		s.State = fleet.Launching
	default:
		s.State = fleet.Pending
		if short != "" {
			s.Trouble = &fleet.Trouble{Cause: fleet.CauseUnschedulable, Message: short}
		}
	}
	return s
}

// lost is the trouble of a unit whose keeper was killed. Its runner is dead as well; what
// that has started ends with it, which nobody has seen to, unless the machine was
// restarted since.
func (i *identity) lost() *fleet.Trouble {
	t := &fleet.Trouble{Cause: fleet.CauseEvicted, Final: true, Message: "its keeper was killed"}
	if boot, err := bootID(); err == nil && boot != i.Boot {
		t.Message, t.Dead = "the machine was restarted", true
	}
	return t
}

// trouble is what is wrong with a runner that has ended; nil: nothing.
func (e *ending) trouble(deadline time.Duration) *fleet.Trouble {
	t := &fleet.Trouble{Cause: fleet.CauseExited, Final: true, Dead: e.Left == 0, ExitCode: &e.Code, Message: fmt.Sprintf("exit code %d", e.Code)}
	if e.Signal != "" {
		t.Message = "ended by signal: " + e.Signal
	}
	switch {
	case e.Failed != "":
		t.Cause, t.Message, t.ExitCode = fleet.CauseStart, e.Failed, nil
	case e.Late:
		t.Cause, t.Message = fleet.CauseDeadline, fmt.Sprintf("it was stopped at its deadline of %v; %s", deadline, t.Message)
	case e.Code == 0 && e.Signal == "":
		if e.Left == 0 {
			return nil
		}
	case e.OutOfMemory && !e.Killed && e.Signal == "killed":
		t.Cause, t.Message = fleet.CauseOOM, "the kernel ended it for want of memory"
	case e.Asked:
		t.Cause, t.Message = fleet.CauseEvicted, "it was told to end; "+t.Message
	}
	if e.Left > 0 {
		t.Message += fmt.Sprintf("; %d processes of it do not end", e.Left)
	}
	return t
}

// readJSON reads a file of a unit; false: it is not there.
func readJSON(dir, name string, to any) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, to); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// writeJSON writes a file of a unit, whole or not at all.
func writeJSON(dir, name string, doc any) error {
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return writeFile(dir, name, b)
}

// writeFile writes a file of a unit, durably, whole or not at all.
func writeFile(dir, name string, b []byte) error {
	f, err := os.CreateTemp(dir, making)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
