package executor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// binDir is first on the PATH of jobs outside of containers, below the attempt's directory: no other attempt's commands
// are looked for there.
const binDir = "bin"

// layBin makes the directory that holds the everdict command, anew for the graders: what the agent has put there, or in
// the directory's place, must not stand in for their programs.
func (x *execution) layBin() error {
	if x.cfg.Program == "" || x.in.Container {
		return nil
	}
	if err := x.tryBin(); err != nil {
		return fmt.Errorf("link the everdict command: %w", err)
	}
	return nil
}

func (x *execution) tryBin() error {
	// A job may have taken away the right to write, and put another directory in this one's place.
	if err := x.files.Chmod(".", 0o700); err != nil {
		return err
	}
	own, err := x.files.Stat(".")
	if err != nil {
		return err
	}
	if there, err := os.Lstat(x.root); err != nil || !os.SameFile(own, there) {
		return errors.New("something else is in the place of the attempt's directory")
	}
	// To be renamed, unlike to be removed, a directory need not be readable. It goes with the attempt.
	if err := x.files.Rename(binDir, binDir+"-"+rand.Text()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	name := "everdict"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if err := x.files.Mkdir(binDir, 0o700); err != nil {
		return err
	}
	return x.files.Symlink(x.cfg.Program, filepath.Join(binDir, name))
}
