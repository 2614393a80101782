package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Free space, in bytes.
const (
	// roomFew is what an outbox may come to hold before a runner refuses runs (outbox.Config.MaxBytes).
	roomFew = 4 << 30
	// roomNone does not hold an ordinary checkout.
	roomNone = 64 << 20
)

// needs are the checks of what every runner needs.
func (m *machine) needs() []check {
	out := []check{{id: "process-sandbox", required: m.Sandbox != "docker", run: m.checkProcess}}
	if m.StateDir != "" {
		out = append(out, check{id: "state-dir", required: true, run: directory(m.StateDir)})
	}
	if m.WorkDir != "" {
		out = append(out, check{id: "work-dir", required: true, run: directory(m.WorkDir)})
	}
	if m.URL == "" {
		return out
	}
	c := &coordinator{machine: m, asked: make(chan struct{})}
	return append(out,
		check{id: "certificates", required: m.CAFile != "", run: m.checkCertificates},
		check{id: "proxy", run: m.checkProxy},
		check{id: "coordinator", required: true, run: c.checkReachable},
		check{id: "credential", required: true, run: c.checkCredential},
	)
}

// checkProcess starts a process sandbox, runs a command in it, and says what encloses it.
func (m *machine) checkProcess(ctx context.Context) Check {
	dir, err := os.MkdirTemp("", "everdict-doctor-")
	if err != nil {
		return missing(fmt.Sprintf("no directory can be made for a try: %v", err), "")
	}
	defer os.RemoveAll(dir)
	work, hidden := filepath.Join(dir, "work"), filepath.Join(dir, "hidden")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Mkdir(hidden, 0o700)); err != nil {
		return missing(fmt.Sprintf("no directory can be made for a try: %v", err), "")
	}
	roster := m.RosterDir
	if _, err := os.Stat(roster); err != nil {
		roster = "" // no runner has been here yet, and nothing is to be changed
	}
	driver := process.New(process.Config{Slots: m.Slots, Roster: roster})
	defer driver.Close()
	info, err := try(ctx, driver, sandbox.Spec{Attempt: protocol.NewID("doctor_") + ".1", Dir: work, Hide: []string{hidden}})
	if err != nil {
		mend := ""
		if runtime.GOOS == "windows" {
			mend = "use --sandbox docker"
		}
		return missing(fmt.Sprintf("a job cannot be started: %v", err), mend)
	}
	c := ok("enclosed by %s, frozen by %s", info.Enclosure, orNone(info.Freezer))
	var limits []string
	for _, l := range info.Limits { // all of them defaults
		switch l.Name {
		case "memory":
			limits = append(limits, size(uint64(l.Value))+" of memory")
		case "pids":
			limits = append(limits, fmt.Sprintf("%d processes", l.Value))
		}
	}
	if limits != nil {
		c.Evidence += ", a job that declares nothing has at most " + strings.Join(limits, " and ")
	}
	if len(info.NotHidden) == 0 {
		c.Evidence += ", the runner's secrets are hidden from jobs"
	} else {
		c.Status = Warn
		c.Evidence += ", the runner's secrets cannot be hidden from jobs: " + info.NotHidden[0].Reason
	}
	if info.Enclosure != "cgroup2" { // the one that bounds memory and finds every process
		c.Status = Warn
	}
	for _, note := range info.Notes {
		c.Evidence += "; " + note
	}
	if c.Status == Warn && runtime.GOOS == "linux" {
		c.Mend = "start the runner as a systemd service with Delegate=yes and a user of its own, or use --sandbox docker"
	}
	return c
}

// try starts a sandbox, runs a command that does nothing, and releases it.
func try(ctx context.Context, driver sandbox.Driver, spec sandbox.Spec) (info sandbox.Info, err error) {
	h, err := driver.Start(ctx, spec)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, h.Release(context.WithoutCancel(ctx))) }()
	p, err := h.Exec(ctx, sandbox.Command{Args: []string{"/bin/sh", "-c", "exit 0"}})
	if err != nil {
		return info, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return info, ctx.Err()
	}
	exit, err := p.Wait()
	if err == nil && (exit.Code != 0 || exit.Signal != "") {
		err = fmt.Errorf("/bin/sh -c 'exit 0' ended with code %d %s", exit.Code, exit.Signal)
	}
	return h.Info(), err
}

// directory looks at a directory that is there, or at where it will be made.
func directory(path string) func(context.Context) Check {
	return func(context.Context) Check {
		at, exists := path, true
		for {
			info, err := os.Stat(at)
			if err == nil && !info.IsDir() {
				return missing(at+" is not a directory", "choose another with the flag, or move the file away")
			}
			if err == nil {
				break
			}
			parent := filepath.Dir(at)
			if !errors.Is(err, fs.ErrNotExist) || parent == at {
				return missing(fmt.Sprintf("%s cannot be looked at: %v", path, pathless(err)), "choose a directory of your own")
			}
			at, exists = parent, false
		}
		if !writable(at) {
			return missing(fmt.Sprintf("this user may not write to %s", at), "choose a directory of your own, or: sudo chown \"$USER\" "+at)
		}
		free, err := FreeBytes(at)
		if err != nil {
			return warn(fmt.Sprintf("%s: the free space cannot be told: %v", path, err), "")
		}
		evidence := fmt.Sprintf("%s, %s free", path, size(free))
		if !exists {
			evidence += ", will be made"
		}
		switch {
		case free < roomNone:
			return missing(evidence, "make room, or choose a directory on another disk")
		case free < roomFew:
			return warn(evidence, "make room, or choose a directory on another disk")
		}
		return ok("%s", evidence)
	}
}

func size(n uint64) string {
	const unit = 1 << 10
	f, i := float64(n), 0
	for f >= unit && i < 4 {
		f, i = f/unit, i+1
	}
	format := "%.3g %s"
	if f >= 100 {
		format = "%.0f %s"
	}
	return fmt.Sprintf(format, f, []string{"B", "KiB", "MiB", "GiB", "TiB"}[i])
}

// checkCertificates looks at what is trusted beside the system's certificates.
func (m *machine) checkCertificates(context.Context) Check {
	if m.CAFile == "" {
		return ok("the system's; no CA file is given")
	}
	b, err := os.ReadFile(m.CAFile)
	if err != nil {
		return missing(fmt.Sprintf("the CA file %s cannot be read: %v", m.CAFile, pathless(err)), "give a file with PEM certificates in --ca-file or EVERDICT_CA_FILE")
	}
	n := 0
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			n++
		}
	}
	if n == 0 {
		return missing(m.CAFile+" holds no PEM certificate", "give a file with PEM certificates in --ca-file or EVERDICT_CA_FILE")
	}
	passed := "jobs do not get it (--pass-ca gives it to them)"
	if m.PassCA {
		passed = "jobs get it, too"
	}
	return ok("the system's and %s with %d more; %s", m.CAFile, n, passed)
}

// checkProxy says which proxy the runner goes through to its coordinator.
func (m *machine) checkProxy(context.Context) Check {
	r, err := http.NewRequest(http.MethodGet, m.URL, nil)
	if err != nil {
		return missing("the address of the coordinator cannot be understood", "check --api-url and EVERDICT_API_URL")
	}
	passed := ""
	if slices.ContainsFunc([]string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"}, func(n string) bool { return m.getenv(n) != "" }) {
		passed = "; jobs do not get the proxy's variables"
		if m.PassProxy {
			passed = "; jobs get the proxy's variables, too (--pass-proxy=false keeps them)"
		}
	}
	proxy, err := http.ProxyFromEnvironment(r)
	switch {
	case err != nil: // the error may repeat a password
		return missing("the proxy's variable cannot be understood", "set HTTPS_PROXY to http://host:port")
	case proxy == nil:
		return ok("none for %s%s", r.URL.Hostname(), passed)
	}
	return ok("%s for %s%s", withoutUser(proxy), r.URL.Hostname(), passed)
}

func withoutUser(u *url.URL) string {
	c := *u
	if c.User != nil {
		c.User = url.User("...")
	}
	return c.String()
}

// coordinator is what the two checks that need it share: one request.
type coordinator struct {
	*machine
	asked chan struct{} // closed when the fields below are set

	token    link.Credential
	tokenErr error
	err      error
	took     time.Duration
}

// placeholder is sent when there is no credential: being told that nobody knows it is proof of a coordinator, too.
const placeholder = link.Secret("rnr_doctor")

func (c *coordinator) checkReachable(ctx context.Context) Check {
	defer close(c.asked)
	if c.tokenErr = os.ErrNotExist; c.ReadCredential != nil && c.CredentialFile != "" {
		c.token, c.tokenErr = c.ReadCredential(c.CredentialFile)
	}
	token := c.token
	if c.tokenErr != nil {
		token = placeholder
	}
	bound, cancel := context.WithTimeout(ctx, networkBound)
	defer cancel()
	from := time.Now()
	c.err = link.Check(bound, link.DialConfig{URL: c.URL, Credential: token, CAFile: c.CAFile, UserAgent: "everdict-doctor/" + c.Version})
	c.took = time.Since(from)
	return c.reachable()
}

// reachable judges what came back. Nothing in it compares two clocks: how long the answer took is this machine's own
// monotonic time, and a certificate's dates are TLS's affair.
func (c *coordinator) reachable() Check {
	const where = "check --api-url and EVERDICT_API_URL"
	var (
		revoked  *link.RevokedError
		update   *link.UpdateRequiredError
		draining *link.DrainingError
		other    *link.HTTPError
		config   *link.ConfigError
		dns      *net.DNSError
		unknown  x509.UnknownAuthorityError
		name     x509.HostnameError
		invalid  x509.CertificateInvalidError
		timeout  net.Error
	)
	err := c.err
	switch {
	case err == nil, errors.As(err, &revoked):
		return ok("%s answers within %s", c.URL, c.took.Round(100*time.Microsecond))
	case errors.As(err, &update):
		return missing(c.URL+" does not serve runners of this version", "update everdict")
	case errors.As(err, &draining):
		return warn(c.URL+" is going away or restarting", "try again in a moment")
	case errors.As(err, &other):
		if other.Status == http.StatusProxyAuthRequired {
			return missing("the proxy asks for a login", "put user and password into the proxy's variable")
		}
		if other.Code != "" && other.Status >= 500 {
			return warn(fmt.Sprintf("%s cannot take runners now: %s", c.URL, other.Message), "look at the coordinator's log")
		}
		return missing(fmt.Sprintf("what answers at %s with status %d is no coordinator", c.URL, other.Status), where)
	case errors.As(err, &config):
		return missing(config.Message, where)
	case errors.As(err, &dns):
		return missing(fmt.Sprintf("the host %s is not known here", dns.Name), where)
	case errors.As(err, &unknown):
		return missing("the coordinator's certificate is of a CA that is not trusted here", "give the CA's certificate with --ca-file")
	case errors.As(err, &name):
		return missing("the coordinator's certificate is for another name", where)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return missing("the coordinator's certificate is not valid by the clock of this machine", "renew the certificate, or set the clock right")
	case errors.Is(err, syscall.ECONNREFUSED):
		mend := where
		if u, err := url.Parse(c.URL); err == nil && (u.Hostname() == "127.0.0.1" || u.Hostname() == "localhost") {
			mend = "everdict up"
		}
		return missing("nobody listens at "+c.URL, mend)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return missing(fmt.Sprintf("%s did not answer within %s", c.URL, networkBound), where)
	}
	var of *url.Error
	if errors.As(err, &of) { // without the URL again
		err = of.Err
	}
	return missing(fmt.Sprintf("%s cannot be reached: %v", c.URL, err), where)
}

func (c *coordinator) checkCredential(ctx context.Context) Check {
	const pair = "everdict runner --pair"
	select {
	case <-c.asked:
	case <-ctx.Done():
		return missing("the coordinator did not answer in time", "")
	}
	switch {
	case errors.Is(c.tokenErr, fs.ErrNotExist):
		return missing("this machine is not paired: there is no "+c.CredentialFile, pair)
	case c.tokenErr != nil:
		return missing(fmt.Sprintf("the credential cannot be used: %v", c.tokenErr), pair)
	}
	var revoked *link.RevokedError
	if errors.As(c.err, &revoked) {
		return missing("the coordinator does not accept the credential: "+revoked.Message, pair)
	}
	result := ok("%s is accepted by the coordinator", c.CredentialFile)
	if c.err != nil {
		result = ok("%s is there; whether the coordinator accepts it is not known", c.CredentialFile)
	}
	if info, err := os.Stat(c.CredentialFile); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return warn(result.Evidence+", and other users can read it", "chmod 600 "+c.CredentialFile)
	}
	return result
}
