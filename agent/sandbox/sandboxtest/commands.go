//go:build unix

package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

var commandCases = []testCase{
	{name: "exit codes", run: exitCodes},
	{name: "signals", run: signals},
	{name: "signal a process", run: signalProcess},
	{name: "no such command", run: noSuchCommand},
	{name: "environment is complete and nothing is inherited", run: environmentComplete},
	{name: "path is the command's own", run: pathIsOwn},
	{name: "working directory", run: workingDirectory},
	{name: "arguments arrive as they are", run: argumentsVerbatim},
	{name: "P15_mistakes are refused", run: mistakes},
}

func exitCodes(b *bench) {
	x := b.start()
	for _, code := range []int{0, 1, 2, 77, 126, 127, 255} {
		exit, _, _ := x.run(sh(fmt.Sprintf("exit %d", code)))
		if exit.Code != code || exit.Signal != "" || exit.Reason != sandbox.ReasonNone || exit.Success() != (code == 0) {
			b.Errorf("exit %d came back as %+v", code, exit)
		}
		if exit.Started.IsZero() || exit.Ended.Before(exit.Started) || exit.Ran <= 0 || exit.Ran > patience || exit.Frozen != 0 {
			b.Errorf("exit %d: times of %+v make no sense", code, exit)
		}
	}
}

func signals(b *bench) {
	x := b.start()
	for _, sig := range []string{"SIGTERM", "SIGKILL", "SIGSEGV", "SIGABRT"} {
		exit, _, _ := x.run(sh("ulimit -c 0; kill -" + strings.TrimPrefix(sig, "SIG") + " $$"))
		if exit.Signal != sig || exit.Code != -1 || exit.Reason != sandbox.ReasonNone || exit.Success() {
			b.Errorf("a command that died of %s came back as %+v", sig, exit)
		}
	}
}

func signalProcess(b *bench) {
	x := b.start()
	r := x.roll()
	p := x.exec(sh(`trap 'exit 9' USR1; ` + hold + `while :; do sleep 0.01; done`))
	r.joined(1)
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		b.Fatalf("signal: %v", err)
	}
	if exit := b.wait(p); exit.Code != 9 || exit.Reason != sandbox.ReasonNone {
		b.Errorf("trapped signal: %+v, wanted code 9", exit)
	}
	if err := p.Signal(syscall.SIGUSR1); !errors.Is(err, sandbox.ErrEnded) {
		b.Errorf("signal after the end: %v, wanted ErrEnded", err)
	}
}

func noSuchCommand(b *bench) {
	x := b.start()
	if err := os.WriteFile(filepath.Join(x.dir, "script"), []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	for _, args := range [][]string{{"everdict-no-such-command"}, {"./nothing"}, {"/no/such/file", "x"}, {"./script"}} {
		_, err := x.Exec(b.Context(), sandbox.Command{Args: args})
		if !errors.Is(err, sandbox.ErrNotFound) {
			b.Errorf("exec %q: %v, wanted ErrNotFound", args, err)
		}
	}
	_, err := x.Exec(b.Context(), sandbox.Command{Args: []string{"true"}, Dir: "no/such/dir"})
	if !errors.Is(err, sandbox.ErrNotFound) {
		b.Errorf("exec in a missing directory: %v, wanted ErrNotFound", err)
	}
	if exit, _, _ := x.run(sh("true")); !exit.Success() {
		b.Errorf("after failed starts: %+v, wanted success", exit)
	}
}

func environmentComplete(b *bench) {
	var attempt string
	x := b.start(func(s *sandbox.Spec) {
		attempt = s.Attempt
		s.Env = append(s.Env, "BASE=1", "BOTH=base", "EMPTY=", "ODD=a=b\nc\td \xff")
	})
	c := sandbox.Command{Args: []string{"env", "-0"}, Env: []string{"BOTH=command", "MORE=x", "MORE=y"}}
	exit, out, errOut := x.run(c)
	if !exit.Success() {
		b.Fatalf("env: %+v %s", exit, errOut)
	}
	var got []string
	for kv := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		if !strings.HasPrefix(kv, "EVERDICT_") {
			got = append(got, kv)
		}
	}
	slices.Sort(got)
	want := []string{"BASE=1", "BOTH=command", "EMPTY=", "LC_ALL=C", "MORE=y", "ODD=a=b\nc\td \xff", "PATH=" + b.lane.Path}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Errorf("environment is %q\nwanted %q", got, want)
	}
	if !strings.Contains("\x00"+out, "\x00"+sandbox.EnvAttempt+"="+attempt+"\x00") {
		b.Errorf("environment %q does not name the attempt %s", out, attempt)
	}
}

func pathIsOwn(b *bench) {
	x := b.start()
	if err := os.Mkdir(filepath.Join(x.dir, "tools"), 0o755); err != nil {
		b.Fatal(err)
	}
	tool := filepath.Join(x.dir, "tools", "everdict-tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho tool $1\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	exit, out, errOut := x.run(sandbox.Command{
		Args: []string{"everdict-tool", "ran"},
		Env:  []string{"PATH=" + filepath.Join(x.dir, "tools") + ":" + b.lane.Path},
	})
	if !exit.Success() || out != "tool ran\n" {
		b.Errorf("a tool in the command's PATH: %+v, output %q, stderr %q", exit, out, errOut)
	}
}

func workingDirectory(b *bench) {
	odd := "a b\n\"c\" $(d) é ☃ -e"
	x := b.start(func(s *sandbox.Spec) {
		s.Dir = filepath.Join(s.Dir, odd)
		if err := os.MkdirAll(filepath.Join(s.Dir, odd, "sub"), 0o755); err != nil {
			b.Fatal(err)
		}
	})
	for _, c := range []struct{ dir, want string }{
		{"", x.dir},
		{odd, filepath.Join(x.dir, odd)},
		{filepath.Join(odd, "sub"), filepath.Join(x.dir, odd, "sub")},
		{filepath.Join(x.dir, odd), filepath.Join(x.dir, odd)},
	} {
		cmd := sh("printf %s \"$(pwd -P; printf .)\"; echo here >made")
		cmd.Dir = c.dir
		exit, out, errOut := x.run(cmd)
		want, err := filepath.EvalSymlinks(c.want)
		if err != nil {
			b.Fatal(err)
		}
		if !exit.Success() || out != want+"\n." {
			b.Errorf("dir %q: %+v, pwd %q, wanted %q; stderr %q", c.dir, exit, out, want+"\n.", errOut)
		}
		if got, err := os.ReadFile(filepath.Join(c.want, "made")); err != nil || string(got) != "here\n" {
			b.Errorf("dir %q: the file that the command made is %q, %v", c.dir, got, err)
		}
	}
}

func argumentsVerbatim(b *bench) {
	x := b.start()
	args := []string{"", " ", "a b", "$HOME", "`id`", "*", "\"'\\", "new\nline", "\xff\xfe", "é", "-n", "--"}
	got := x.ok(`for a; do printf '<%s>' "$a"; done`, args...)
	if want := "<" + strings.Join(args, "><") + ">"; got != want {
		b.Errorf("arguments arrived as %q, wanted %q", got, want)
	}
}

func mistakes(b *bench) {
	for name, change := range map[string]func(*sandbox.Spec){
		"no attempt":       func(s *sandbox.Spec) { s.Attempt = "" },
		"attempt climbs":   func(s *sandbox.Spec) { s.Attempt = "../x" },
		"attempt slash":    func(s *sandbox.Spec) { s.Attempt = "a/b" },
		"relative dir":     func(s *sandbox.Spec) { s.Dir = "x" },
		"bad env":          func(s *sandbox.Spec) { s.Env = []string{"NOVALUE"} },
		"NUL in env":       func(s *sandbox.Spec) { s.Env = []string{"A=\x00"} },
		"negative memory":  func(s *sandbox.Spec) { s.Resources.MemoryMB = -1 },
		"unknown network":  func(s *sandbox.Spec) { s.Network = "vpn" },
		"relative to hide": func(s *sandbox.Spec) { s.Hide = []string{"secret"} },
	} {
		s := b.spec()
		change(&s)
		h, err := b.driver.Start(b.Context(), s)
		var bad *sandbox.SpecError
		if !errors.As(err, &bad) {
			b.Errorf("start with %s: handle %v, error %v, wanted a *SpecError", name, h, err)
		}
	}
	s := b.spec()
	s.Dir = filepath.Join(s.Dir, "missing")
	if _, err := b.driver.Start(b.Context(), s); err == nil {
		b.Errorf("start with a workspace that does not exist succeeded")
	}
	x := b.start()
	for name, c := range map[string]sandbox.Command{
		"no args":          {},
		"NUL in args":      {Args: []string{"echo", "a\x00b"}},
		"NUL in dir":       {Args: []string{"true"}, Dir: "\x00"},
		"bad env":          {Args: []string{"true"}, Env: []string{"=x"}},
		"negative timeout": {Args: []string{"true"}, Timeout: -time.Second},
	} {
		_, err := x.Exec(b.Context(), c)
		var bad *sandbox.SpecError
		if !errors.As(err, &bad) {
			b.Errorf("exec with %s: %v, wanted a *SpecError", name, err)
		}
	}
}
