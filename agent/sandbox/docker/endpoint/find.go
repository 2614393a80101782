package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ProbeTimeout is how long an engine may take to answer (F36). All candidates are asked at the same time. One that has
// answered has DescribeTimeout to say what it is: Podman looks at every container for that, waits for those that are being
// started, and asks the system for the packages of its parts.
const (
	ProbeTimeout    = 3 * time.Second
	DescribeTimeout = 3 * ProbeTimeout
)

// MinAPI is the oldest API version that is of use: that of Docker 20.10.
const MinAPI = "1.41"

// maxAnswer bounds what is read of an engine's answer; a usual one has some KiB.
const maxAnswer = 4 << 20

// Engine is what an engine says of itself.
type Engine struct {
	// Name is "Docker Engine - Community", "Podman Engine", ...
	Name       string `json:"name"`
	Version    string `json:"version"`
	APIVersion string `json:"apiVersion"`
	// OS and Arch are those of containers, in Go's words.
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// System is the operating system that the engine runs on, for people.
	System        string `json:"system,omitempty"`
	Kernel        string `json:"kernel,omitempty"`
	StorageDriver string `json:"storageDriver,omitempty"`
	CgroupDriver  string `json:"cgroupDriver,omitempty"`
	CgroupVersion string `json:"cgroupVersion,omitempty"`
	// Runtimes are the OCI runtimes that a container can name, sorted.
	Runtimes       []string `json:"runtimes"`
	DefaultRuntime string   `json:"defaultRuntime,omitempty"`
	Rootless       bool     `json:"rootless,omitempty"`
	UserNamespaces bool     `json:"userNamespaces,omitempty"`
	Seccomp        bool     `json:"seccomp"`
	// LimitsMemory, LimitsPIDs and LimitsCPU say what its containers can be limited in.
	LimitsMemory bool  `json:"limitsMemory"`
	LimitsPIDs   bool  `json:"limitsPids"`
	LimitsCPU    bool  `json:"limitsCpu"`
	CPUs         int   `json:"cpus,omitempty"`
	MemoryBytes  int64 `json:"memoryBytes,omitempty"`
	// Warnings are the engine's own.
	Warnings []string `json:"warnings,omitempty"`
}

// Hardened are the runtimes of the engine that put a kernel of their own between a container and the host's.
func (e *Engine) Hardened() []string {
	var out []string
	for _, r := range e.Runtimes {
		if strings.Contains(r, "runsc") || strings.Contains(r, "kata") {
			out = append(out, r)
		}
	}
	return out
}

// Found is the result of Find.
type Found struct {
	// Chosen is nil when no engine answered.
	Chosen *Candidate `json:"chosen"`
	// Engine is what the chosen one said.
	Engine *Engine `json:"engine,omitempty"`
	// Candidates are all places, with what became of each.
	Candidates []Candidate `json:"candidates"`
}

// ErrNone says that no engine answered.
var ErrNone = errors.New("endpoint: no container engine answers")

// Err is nil when an engine was chosen, else an error that wraps ErrNone and says why the first place that matters was
// passed over.
func (f Found) Err() error {
	if f.Chosen != nil {
		return nil
	}
	if c := f.blamed(); c != nil {
		return fmt.Errorf("%w: %s: %s", ErrNone, c, c.Reason)
	}
	return ErrNone
}

// Mend is what helps when no engine was chosen.
func (f Found) Mend() string {
	if c := f.blamed(); c != nil && c.Mend != "" && (c.Source != FromDefault || c.Reason != noSocket) {
		return c.Mend
	}
	switch runtime.GOOS {
	case "linux":
		return "install Docker (https://docs.docker.com/engine/install/), then: sudo systemctl start docker"
	default:
		return "install Docker Desktop (https://docs.docker.com/get-started/get-docker/) and start it"
	}
}

// blamed is the place whose fault it is that no engine was chosen: the one that somebody named, else the first that is
// there and does not answer, else the default.
func (f Found) blamed() *Candidate {
	var first *Candidate
	for i := range f.Candidates {
		c := &f.Candidates[i]
		switch {
		case c.Source == FromHostVariable, c.Source == FromContextVariable, c.Source == FromCurrentContext && c.Mend != "":
			return c
		case c.Source == FromDefault && first == nil, c.Reason != noSocket && (first == nil || first.Reason == noSocket):
			first = c
		}
	}
	return first
}

// Find asks the open candidates of s and takes the first that answers. It takes ProbeTimeout at most where none does, and
// DescribeTimeout more where one takes its time to say what it is. That there is no engine is no error: see Found.Err.
func Find(ctx context.Context, s System) Found {
	return find(ctx, s.Candidates(), ProbeTimeout, DescribeTimeout)
}

func find(ctx context.Context, candidates []Candidate, answer, describe time.Duration) Found {
	engines, errs := make([]*Engine, len(candidates)), make([]error, len(candidates))
	var wg sync.WaitGroup
	for i, c := range candidates {
		if c.State == Open {
			wg.Go(func() { engines[i], errs[i] = probe(ctx, c, answer, describe) })
		}
	}
	wg.Wait()
	f := Found{Candidates: candidates}
	for i := range candidates {
		c := &candidates[i]
		switch {
		case c.State != Open:
		case errs[i] != nil:
			c.State, c.Reason = Passed, sentence(errs[i])
			if errors.Is(errs[i], fs.ErrPermission) {
				c.Mend = permissionMend(*c)
			}
		case f.Chosen != nil:
			c.State, c.Reason, c.Mend = Passed, fmt.Sprintf("%s answers, too, and comes first", f.Chosen.Source), ""
		default:
			c.State, c.Reason, c.Mend = Chosen, "first that answers, as for the docker command", ""
			if !slices.Contains([]Source{FromHostVariable, FromContextVariable, FromCurrentContext, FromDefault}, c.Source) {
				c.Reason = "nobody answers on the default socket, and this one does"
			} else if c.Source != FromDefault {
				c.Reason = "it is named, as for the docker command"
			}
			f.Engine, f.Chosen = engines[i], c
		}
	}
	return f
}

// probe asks an engine whether it is there, and then what it is.
func probe(ctx context.Context, c Candidate, answer, describe time.Duration) (*Engine, error) {
	ping := func(ctx context.Context, c Candidate) (*Engine, error) { return nil, Ping(ctx, c) }
	if _, err := within(ctx, c, &slowError{"it did not answer", answer}, ping); err != nil {
		return nil, err
	}
	return within(ctx, c, &slowError{"it answers, but did not say what it is", describe}, Ask)
}

func within(ctx context.Context, c Candidate, slow *slowError, ask func(context.Context, Candidate) (*Engine, error)) (*Engine, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, slow.limit, slow)
	defer cancel()
	e, err := ask(ctx, c)
	if errors.Is(err, context.DeadlineExceeded) {
		err = context.Cause(ctx)
	}
	return e, err
}

// slowError is a probe that was cut.
type slowError struct {
	what  string
	limit time.Duration
}

func (e *slowError) Error() string { return fmt.Sprintf("%s within %s", e.what, e.limit) }

const noSocket = "there is no such socket"

// sentence says what kept a candidate from answering.
func sentence(err error) string {
	var slow *slowError
	var dns *net.DNSError
	switch {
	case errors.As(err, &slow):
		return slow.Error()
	case errors.Is(err, fs.ErrPermission):
		return "this user may not open it"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nobody listens there"
	case errors.Is(err, fs.ErrNotExist):
		return noSocket
	case errors.As(err, &dns):
		return fmt.Sprintf("the host %s is not known here", dns.Name)
	}
	var of *url.Error
	if errors.As(err, &of) { // without the URL, which is ours
		err = of.Err
	}
	return fmt.Sprintf("it does not answer as an engine does: %v", err)
}

func permissionMend(c Candidate) string {
	if c.Source == FromPodman {
		return "start a rootless one instead: systemctl --user start podman.socket"
	}
	return `sudo usermod -aG docker "$USER", then log in again`
}

// Client is an HTTP client whose requests go to the engine, whatever host their URL names; its scheme is that of URL.
// Idle connections are the caller's to close.
func (c Candidate) Client() (*http.Client, error) {
	tlsConfig, err := c.TLSConfig()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, Proxy: http.ProxyFromEnvironment}
	scheme, rest, _ := strings.Cut(c.Host, "://")
	switch scheme {
	case "unix":
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", rest)
		}
	case "npipe":
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialPipe(ctx, rest) }
	}
	return &http.Client{Transport: transport}, nil
}

// URL is the base of the engine's API for Client, without a slash at its end.
func (c Candidate) URL() string {
	u, err := url.Parse(c.Host)
	if err != nil || u.Scheme != "tcp" {
		return "http://docker"
	}
	u.Scheme = "http"
	if c.TLS() {
		u.Scheme = "https"
	}
	return strings.TrimSuffix(u.String(), "/")
}

// Ping returns when the engine behind c has answered, whatever it said, or ctx has ended.
func Ping(ctx context.Context, c Candidate) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/_ping", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Ask has the engine behind c say what it is, until ctx ends.
func Ask(ctx context.Context, c Candidate) (*Engine, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	var version struct {
		Version, APIVersion, Os, Arch, KernelVersion string
		Platform                                     struct{ Name string }
		Components                                   []struct {
			Name    string
			Details map[string]string
		}
	}
	var info struct {
		OperatingSystem, Driver, CgroupDriver, CgroupVersion, DefaultRuntime string
		Runtimes                                                             map[string]json.RawMessage
		SecurityOptions, Warnings                                            []string
		NCPU                                                                 int
		MemTotal                                                             int64
		MemoryLimit, PidsLimit, CPUCfsQuota                                  bool
	}
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = get(ctx, client, c.URL()+"/version", &version) })
	wg.Go(func() { errs[1] = get(ctx, client, c.URL()+"/info", &info) })
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, firstOf(errs[:])
	}
	if !atLeast(version.APIVersion, MinAPI) {
		return nil, fmt.Errorf("it speaks API %q, and %s (Docker 20.10) or newer is needed", version.APIVersion, MinAPI)
	}
	e := &Engine{
		Name: version.Platform.Name, Version: version.Version, APIVersion: version.APIVersion, OS: version.Os, Arch: version.Arch,
		Kernel: version.KernelVersion, System: info.OperatingSystem, StorageDriver: info.Driver,
		CgroupDriver: info.CgroupDriver, CgroupVersion: info.CgroupVersion, DefaultRuntime: info.DefaultRuntime,
		CPUs: info.NCPU, MemoryBytes: info.MemTotal, Warnings: info.Warnings, Runtimes: []string{},
		LimitsMemory: info.MemoryLimit, LimitsPIDs: info.PidsLimit, LimitsCPU: info.CPUCfsQuota,
	}
	podman := false
	for _, part := range version.Components {
		if v, ok := PodmanDetails(part.Name, part.Details); ok {
			podman = true
			p, err := AskPodman(ctx, client, c.URL(), v)
			if err != nil {
				return nil, err
			}
			e.Rootless = p.Rootless
			e.LimitsMemory, e.LimitsPIDs, e.LimitsCPU = p.Limits("memory"), p.Limits("pids"), p.Limits("cpu")
		}
	}
	// Debian's engine leaves its platform's name out.
	if len(version.Components) > 0 && (e.Name == "" || podman) {
		e.Name = version.Components[0].Name
	}
	if e.Name == "" || e.Name == "Engine" {
		e.Name = "Docker Engine"
	}
	for name := range info.Runtimes {
		// Podman's are those that it has heard of, and a request can name none but the one that it runs anyhow.
		if !podman || name == info.DefaultRuntime {
			e.Runtimes = append(e.Runtimes, name)
		}
	}
	slices.Sort(e.Runtimes)
	for _, o := range info.SecurityOptions {
		e.Rootless = e.Rootless || strings.Contains(o, "name=rootless")
		e.UserNamespaces = e.UserNamespaces || strings.Contains(o, "name=userns")
		e.Seccomp = e.Seccomp || strings.Contains(o, "name=seccomp")
	}
	return e, nil
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func get(ctx context.Context, client *http.Client, address string, to any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(to)
}

// atLeast compares API versions: 1.41 is above 1.5.
func atLeast(version, least string) bool {
	v, ok := apiNumber(version)
	l, _ := apiNumber(least)
	return ok && v >= l
}

func apiNumber(version string) (int, bool) {
	major, minor, _ := strings.Cut(version, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return a*1000 + b, err == nil && err2 == nil
}
