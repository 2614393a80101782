package docker

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
)

// Labels of everything that a sandbox makes. They are set when it is made, not after: what a crash leaves carries
// them already (F14).
const (
	LabelAttempt = "dev.everdict.attempt"
	LabelRunner  = "dev.everdict.runner"  // who made it: see owner
	LabelCreated = "dev.everdict.created" // RFC 3339
)

// owner is a runner's process, as a label says it: "host/boot/pid/start/random". With it any runner of the same
// machine can tell that the maker is gone; of another machine's nothing can be told.
type owner string

func thisProcess() owner {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-" + rand.Text()
	}
	return owner(fmt.Sprintf("%s/%s/%d/%s/%s", host, bootID(), os.Getpid(), startTime(os.Getpid()), rand.Text()[:8]))
}

// gone reports whether the process is known to have ended: it ran on this machine, and either the machine was
// started anew since, or nobody has its number, or another process has.
func (o owner) gone() bool {
	f := strings.Split(string(o), "/")
	host, err := os.Hostname()
	if len(f) != 5 || err != nil || f[0] != host {
		return false
	}
	if f[1] != bootID() {
		return true
	}
	var pid int
	if _, err := fmt.Sscan(f[2], &pid); err != nil || pid <= 0 {
		return false
	}
	return !alive(pid) || f[3] != startTime(pid)
}
