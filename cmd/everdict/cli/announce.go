package cli

import (
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/everdict/everdict/cmd/everdict/config"
)

// service is what a coordinator that is ready has.
type service struct {
	dataDir string
	// auth says that it wants API keys, runner that it has a runner of its own.
	auth, runner bool
	// isolation is how workspaces are kept apart.
	isolation string
}

// aRun is a whole run on one line, for where there is no file of one.
const aRun = `{"harness":{"id":"scripted"},"case":{"id":"c1","env":{"kind":"repo","source":{"files":{}}},"task":"Create ok.txt with the text done","graders":[{"id":"tests-pass","config":{"cmd":"grep -q done ok.txt"}}]}}`

// announce says that requests are answered, and what to do with that.
func (a *app) announce(base string, s service) {
	if a.quiet {
		return
	}
	here, everywhere := reachable(base)
	if a.forPrograms() {
		// One line, so that a program that starts this one knows when and where.
		a.output = "jsonl"
		_ = a.json(map[string]string{"ready": here})
		return
	}
	p := a.palette(a.err)
	fmt.Fprintf(a.err, "%s is ready\n", p.bold(firstOf(everywhere, here)))
	line := func(label, format string, args ...any) {
		fmt.Fprintf(a.err, "  %-16s %s\n", label+":", fmt.Sprintf(format, args...))
	}
	if everywhere != "" {
		line("on this machine", "%s", here)
	}
	line("data", "%s", s.dataDir)
	if s.auth {
		line("with a key", "export EVERDICT_API_KEY=ak_..., or --api-key-file FILE")
	} else {
		line("login", "none: whoever reaches it can submit runs; --require-auth changes that")
	}
	line("trust zones", "%s", s.isolation)
	if !s.runner {
		line("pair a runner", "%s runners pair%s", a.program, a.urlFlag(here))
	}
	line("submit a run", "%s", a.submitExample(here))
	line("API description", "%s/openapi.json", here)
	line("stop", "Ctrl-C, or kill %d", os.Getpid())
}

// showFirstKey shows the key that everything else begins with, to people also when they want quiet: nobody can see it
// again.
func (a *app) showFirstKey(key string) error {
	if a.forPrograms() {
		a.output = "jsonl"
		return a.json(map[string]string{"apiKey": key})
	}
	_, err := fmt.Fprintf(a.out, "The first API key of this coordinator (admin, shown this once):\n\n  %s\n\n", key)
	return err
}

// submitExample is a command that works where this one was started.
func (a *app) submitExample(base string) string {
	for _, file := range []string{"run.json", "examples/run.json"} {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return fmt.Sprintf("%s submit -f %s --wait%s", a.program, file, a.urlFlag(base))
		}
	}
	return fmt.Sprintf("echo %s | %s submit -f - --wait%s", quoteArg(aRun), a.program, a.urlFlag(base))
}

// reachable turns the address that a service listens on into those that a client
// can use: here on this machine and, where every address is listened on, by the
// name of this machine.
func reachable(base string) (here, everywhere string) {
	u, err := url.Parse(base)
	if err != nil {
		return base, ""
	}
	ip := net.ParseIP(u.Hostname())
	if ip == nil || !ip.IsUnspecified() {
		return base, ""
	}
	port := u.Port()
	u.Host = net.JoinHostPort("127.0.0.1", port)
	named := *u
	named.Host = net.JoinHostPort(thisHost(), port)
	return u.String(), named.String()
}

// urlFlag is what a command needs to reach base, nothing when it is the default.
func (a *app) urlFlag(base string) string {
	for _, k := range a.schema {
		if k.Name == config.APIURL && k.Default == base {
			return ""
		}
	}
	return " --api-url " + base
}
