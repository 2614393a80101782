package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// pairArgs makes --pair VALUE one argument: the flag may stand alone, and what follows
// such a flag is not taken for its value otherwise.
func pairArgs(args []string) []string {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	i := slices.Index(args[:end], "--pair")
	if i < 0 || i+1 >= end || strings.HasPrefix(args[i+1], "-") && args[i+1] != "-" {
		return args
	}
	return slices.Concat(args[:i], []string{"--pair=" + args[i+1]}, args[i+2:])
}

// pairing shows a person where the machine that they start is approved, and then once a
// minute how much time is left.
func (a *app) pairing() func(PairingProgress) {
	left := 0
	return func(p PairingProgress) {
		minutes := int((p.Until.Sub(a.now()) + time.Minute - 1) / time.Minute)
		if p.Started != nil {
			left = minutes
			a.showPairing(p.Started)
			return
		}
		if minutes >= left || minutes < 1 {
			return
		}
		left = minutes
		a.hint("still waiting: %s left", plural(left, "minute"))
	}
}

// showPairing is seen also by who wants quiet: without it there is nothing to wait for.
func (a *app) showPairing(s *protocol.PairingStarted) {
	if a.forPrograms() {
		a.output = "jsonl"
		_ = a.json(map[string]any{"pairing": s})
		return
	}
	p := a.palette(a.err)
	fmt.Fprintf(a.err, "To make this machine a runner of yours, open\n\n    %s\n\nsign in, and type in the code  %s\n", p.bold(cell(s.EnterURL)), p.bold(cell(s.UserCode)))
	fmt.Fprintf(a.err, "The page shows the number  %s  and this machine's name: approve it only if both are right.\n\n", p.bold(cell(s.Number)))
	a.hint("or open %s at once", safeText(s.URL))
	a.hint("waiting for at most %s; Ctrl-C stops", plural(s.ExpiresInSec/60, "minute"))
}

// paired says that the machine is a runner now.
func (a *app) paired(runner string, account protocol.Account) {
	if a.forPrograms() {
		a.output = "jsonl"
		_ = a.json(map[string]any{"paired": map[string]any{"runner": runner, "account": account}})
		return
	}
	p := a.palette(a.err)
	fmt.Fprintf(a.err, "%s: this machine is %s of %s in workspace %s\n", p.green("paired"), p.bold(cell(runner)), cell(account.Subject), cell(account.Workspace))
	a.hint("run something here: everdict submit -f run.json --wait --runtime %s%s", protocol.TargetSelfPrefix, safeText(runner))
}
