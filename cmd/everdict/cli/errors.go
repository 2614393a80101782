package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/cmd/everdict/config"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
	"github.com/everdict/everdict/protocol/link"
)

// usageError is a command line that is wrong.
type usageError struct {
	cmd  *cobra.Command
	what string
}

func (e *usageError) Error() string { return e.what }

// notNegative refuses flags whose numbers and durations are below 0.
func notNegative(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if v := cmd.Flags().Lookup(name).Value.String(); strings.HasPrefix(v, "-") {
			return &usageError{cmd, fmt.Sprintf("--%s is 0 or more, not %s", name, v)}
		}
	}
	return nil
}

// adviceError is an error with what to do next.
type adviceError struct {
	err    error
	advice string
}

func (e *adviceError) Error() string { return e.err.Error() }
func (e *adviceError) Unwrap() error { return e.err }

// Advise is err with the next step, for hooks.
func Advise(err error, step string) error { return &adviceError{err, step} }

// report says what went wrong and what to do next: two lines for a person, a
// problem document for a program.
func (a *app) report(cmd *cobra.Command, err error) {
	message, advice := messageOf(err), a.advice(cmd, err)
	code := protocol.CodeBadRequest
	var p *protocol.Problem
	switch {
	case errors.As(err, &p):
		code = p.Code
	case interrupted(cmd.Context()) != 0:
		code = protocol.CodeCancelled
	}
	if a.forPrograms() {
		var unreachable *client.UnreachableError
		if errors.As(err, &unreachable) {
			code = protocol.CodeUpstreamError
		}
		b, _ := json.Marshal(protocol.Problem{Code: code, Message: message, Hint: advice})
		fmt.Fprintf(a.err, "%s\n", b)
		return
	}
	p2 := a.palette(a.err)
	if all := faults(p); len(all) > 1 && message == strings.Join(all, "; ") {
		message = plural(len(all), "mistake") + ":"
		for _, fault := range all {
			message += "\n  " + fault
		}
	}
	fmt.Fprintf(a.err, "%s %s\n", p2.red("everdict:"), safeText(message))
	fmt.Fprintf(a.err, "  %s %s\n", p2.dim("next:"), safeText(advice))
}

// faults are the sentences of a problem that has several.
func faults(p *protocol.Problem) []string {
	if p == nil {
		return nil
	}
	switch all := p.Data["faults"].(type) {
	case []string: // found by this program
		return all
	case []any: // by a coordinator
		var out []string
		for _, fault := range all {
			out = append(out, fmt.Sprint(fault))
		}
		return out
	}
	return nil
}

// messageOf is the text of err without the hints of the problems in it, which are
// shown apart.
func messageOf(err error) string {
	text := err.Error()
	var walk func(error)
	walk = func(err error) {
		if p, ok := err.(*protocol.Problem); ok {
			text = strings.Replace(text, p.Error(), p.Message, 1)
		}
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			if inner := u.Unwrap(); inner != nil {
				walk(inner)
			}
		case interface{ Unwrap() []error }:
			for _, inner := range u.Unwrap() {
				walk(inner)
			}
		}
	}
	walk(err)
	return plain(err, text)
}

// plain is text in the words of a user, who knows no packages: an error of those that end a runner for the sake of its
// token says what happened, any other begins after the name of its package.
func plain(err error, text string) string {
	var (
		revoked *link.RevokedError
		taken   *link.TakenOverError
	)
	switch {
	case errors.As(err, &revoked):
		return "the coordinator turned this runner away: " + revoked.Message
	case errors.As(err, &taken):
		return "another process uses this runner's token: " + taken.Message
	}
	for _, name := range []string{"agent: ", "link: ", "config: ", "coordinator: ", "store: "} {
		if rest, found := strings.CutPrefix(text, name); found {
			return rest
		}
	}
	return together(text)
}

// advice is one line of what to do about err. Every error has one.
func (a *app) advice(cmd *cobra.Command, err error) string {
	var usage *usageError
	if errors.As(err, &usage) {
		return "see " + usage.cmd.CommandPath() + " --help"
	}
	var advised *adviceError
	if errors.As(err, &advised) {
		return advised.advice
	}
	if s := adviceOnRunner(err); s != "" {
		return s
	}
	var p *protocol.Problem
	if errors.As(err, &p) {
		return a.adviceOnProblem(cmd, p)
	}
	if s := a.adviceOnConnection(err); s != "" {
		return s
	}
	if s := adviceOnFiles(err); s != "" {
		return s
	}
	return "see " + cmd.CommandPath() + " --help"
}

// adviceOnFiles is what to do about what a file system refused.
func adviceOnFiles(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "make room on that disk, or choose a directory on another"
	case errors.Is(err, syscall.EROFS):
		return "nothing can be written there: choose another directory"
	case errors.Is(err, syscall.ENOTDIR):
		return "a part of that path is a file: choose another directory"
	case errors.Is(err, syscall.EISDIR):
		return "that is a directory: name a file in it"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "check the path, and what you may do there"
	}
	return ""
}

// adviceOnRunner is what to do when a runner stopped for the sake of its token, or could
// not begin.
func adviceOnRunner(err error) string {
	var (
		pool    *PoolTokenError
		revoked *link.RevokedError
		taken   *link.TakenOverError
		locked  *agent.LockedError
		update  *link.UpdateRequiredError
		work    *agent.WorkDirError
	)
	switch {
	case errors.As(err, &work):
		return "choose a directory outside of it with --work-dir, or leave that out"
	case errors.As(err, &pool):
		return "make a new token, everdict pools token create --runtime ID, and start the runner with it: everdict runner --pool-token -"
	case errors.As(err, &revoked):
		return "pair this machine again: everdict runners pair, then everdict runner --pair - with the new token"
	case errors.As(err, &taken), errors.As(err, &locked):
		return "end the other process, or pair this machine once more for a runner of its own: everdict runners pair"
	case errors.As(err, &update):
		return "install a newer everdict on this machine, then start the runner again"
	}
	return ""
}

func (a *app) adviceOnProblem(cmd *cobra.Command, p *protocol.Problem) string {
	if p.Status == http.StatusUnauthorized && !a.hasKey() {
		return "set EVERDICT_API_KEY or --api-key-file; the first key is shown when the coordinator first starts, and who has one makes more: everdict keys create"
	}
	if p.Hint != "" {
		if a.forPrograms() {
			return p.Hint
		}
		return asCommands(p.Hint)
	}
	switch {
	case p.Status == http.StatusUnauthorized:
		return "this API key is not good: give another in EVERDICT_API_KEY or --api-key-file; who has one makes more: everdict keys create"
	case p.Status == http.StatusForbidden:
		return "this key or role may not do that: everdict keys list shows scopes and roles; an admin can make a key with more"
	case p.Status == http.StatusNotFound:
		return "list what there is in this workspace: everdict runs list, everdict runners list, everdict harnesses list"
	case p.Status == http.StatusConflict:
		if parent := cmd.Parent(); parent != nil && parent.Name() == "runs" {
			return "everdict runs get shows how it stands"
		}
		return "look at its present state (everdict runs get, everdict harnesses get) before trying again"
	case p.Status == http.StatusRequestEntityTooLarge:
		return fmt.Sprintf("a request is at most %d MiB: give large inputs as a git repository or a path instead of files", protocol.MaxBodyBytes>>20)
	case p.Status == http.StatusTooManyRequests:
		return "wait a little and try again"
	case p.Status >= 500:
		return "look at the coordinator's log, then try again"
	}
	return "see " + cmd.CommandPath() + " --help"
}

// hasKey reports whether requests carry an API key.
func (a *app) hasKey() bool { return a.cfg != nil && a.cfg.String(config.APIKey) != "" }

func (a *app) adviceOnConnection(err error) string {
	where := "check --api-url and EVERDICT_API_URL"
	if a.cfg != nil {
		where = fmt.Sprintf("check the address (%s, from %s)", a.cfg.String(config.APIURL), a.cfg.Origin(config.APIURL))
	}
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var record tls.RecordHeaderError
	var timeout net.Error
	switch {
	case client.IsRefused(err):
		if a.cfg == nil || loopbackURL(a.cfg.String(config.APIURL)) {
			return "is a coordinator running? start one with: everdict up"
		}
		return "is a coordinator running there? " + where
	case errors.As(err, &dns):
		return "the host is not known here: " + where
	case errors.As(err, &authority):
		return "if the coordinator uses a CA of your own, give its certificate with --ca-file"
	case errors.As(err, &invalid), errors.As(err, &hostname):
		return "the coordinator's certificate does not fit: " + where
	case errors.As(err, &record):
		return "the server does not speak TLS there: use http:// instead of https://"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "is the network up, and the coordinator reachable from here? " + where
	}
	var unreachable *client.UnreachableError
	if errors.As(err, &unreachable) {
		return where
	}
	return ""
}
