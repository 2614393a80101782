package scripted

import (
	"fmt"
	"strings"
)

// program is the plan as one POSIX shell program. It needs sh and the usual small
// tools (busybox has them all).
//
// The program tells its harness what it is doing by frames on stdout: the byte
// 0x1E, the mark, and a few words up to a line end. The mark is random per run, so
// that no output can be taken for a frame. Frames are
//
//	b N       step N, a tool call, begins: output up to e belongs to it
//	e N CODE  it ended
//	s N       step N is said or thought
//	z         all steps are done
func (p plan) program(mark string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "m() { printf '\\036%s:%%s\\n' \"$*\"; }\n", mark)
	for i, s := range p.steps {
		if i > 0 && p.delay > 0 {
			b.WriteString(sleepLine(p.delay) + "\n")
		}
		switch {
		case s.tool == "bash":
			// As an agent's tool runs it: a shell of its own, both outputs together.
			fmt.Fprintf(&b, "m b %d\nsh -c %s </dev/null 2>&1\nm e %d $?\n", i, quote(s.line), i)
		case s.tool != "":
			// eval, so that nothing in a step can be a syntax error of the program.
			fmt.Fprintf(&b, "m b %d\n( eval %s ) </dev/null 2>&1\nm e %d $?\n", i, quote(s.line), i)
		case s.bare != "":
			b.WriteString(s.bare + "\n")
		}
		if s.say != "" || s.think != nil {
			fmt.Fprintf(&b, "m s %d\n", i)
		}
	}
	b.WriteString("m z\nexit 0\n")
	return b.String()
}
