package nomad

import (
	"archive/tar"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	docker "github.com/docker/docker/client"
	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/coordinator/fleet/nomad"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/e2e/nomad/standin"
	"github.com/everdict/everdict/protocol"
)

// caseImage is one that has no runner in it.
const caseImage = "test/busybox:1"

// made is what the tests run on clusters, built once.
var made struct {
	once   sync.Once
	err    error
	dir    string
	engine *docker.Client
	// unit and runner are programs; unitImage, runnerImage and impatientImage have them
	// as their entry points, the last gives its result up after 2 s.
	unit, runner                           string
	unitImage, runnerImage, impatientImage string
}

func TestMain(m *testing.M) {
	flag.Parse()
	// They wait for leases and graces far more than they work.
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	for _, name := range []string{made.unitImage, made.runnerImage, made.impatientImage} {
		if name != "" {
			_, _ = made.engine.ImageRemove(context.Background(), name, image.RemoveOptions{Force: true})
		}
	}
	if made.dir != "" {
		os.RemoveAll(made.dir)
	}
	os.Exit(code)
}

// build builds the programs and their images.
func build(t testing.TB) {
	t.Helper()
	made.once.Do(func() {
		if made.dir, made.err = os.MkdirTemp("", "everdict-nomad-"); made.err != nil {
			return
		}
		made.unit, made.runner = filepath.Join(made.dir, "unit"), filepath.Join(made.dir, "job-runner")
		for program, from := range map[string]string{made.unit: "../k8s/unit/main.go", made.runner: "../../cmd/job-runner"} {
			cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, from)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				made.err = fmt.Errorf("build %s: %w: %s", from, err, out)
				return
			}
		}
		if made.engine, made.err = docker.NewClientWithOpts(docker.FromEnv, docker.WithAPIVersionNegotiation()); made.err != nil {
			return
		}
		tag := strings.ToLower(protocol.NewID(""))
		made.unitImage, made.err = bake("everdict-test/unit:"+tag, made.unit, "/usr/local/bin/unit")
		if made.err == nil {
			made.runnerImage, made.err = bake("everdict-test/runner:"+tag, made.runner, "/usr/local/bin/job-runner")
		}
		if made.err == nil {
			made.impatientImage, made.err = bake("everdict-test/impatient:"+tag, made.runner, "/usr/local/bin/job-runner", "ENV EVERDICT_DELIVER_TIMEOUT=2s")
		}
	})
	if made.err != nil {
		t.Fatal(made.err)
	}
}

// bake makes an image of caseImage and a program, its entry point.
func bake(name, program, at string, changes ...string) (string, error) {
	ctx := context.Background()
	b, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"usr/local/", "usr/local/bin/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return "", err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(at, "/"), Mode: 0o755, Size: int64(len(b))}); err != nil {
		return "", err
	}
	if _, err := w.Write(b); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	box, err := made.engine.ContainerCreate(ctx, &container.Config{Image: caseImage, Cmd: []string{"true"}}, nil, nil, nil, "")
	if err != nil {
		return "", err
	}
	defer made.engine.ContainerRemove(ctx, box.ID, container.RemoveOptions{Force: true})
	if err := made.engine.CopyToContainer(ctx, box.ID, "/", &layer, container.CopyToContainerOptions{}); err != nil {
		return "", err
	}
	_, err = made.engine.ContainerCommit(ctx, box.ID, container.CommitOptions{Reference: name,
		Changes: append(changes, fmt.Sprintf("ENTRYPOINT [%q]", at), "CMD []", "ENV PATH=/usr/local/bin:/usr/bin:/bin")})
	return name, err
}

// cluster is a Nomad cluster under test.
type cluster struct {
	// Client has all rights.
	*api.Client
	// standin is nil for a real one.
	standin *standin.Cluster
	url     string
	// ns is a namespace that lives as long as the test, and token one that has the
	// rights of docs/nomad.md in it.
	ns, token string
}

// manager is the token with all rights on a stand-in.
const manager = "00000000-0000-4000-8000-000000000001"

// start is a real cluster, if there is one, or a stand-in.
func start(t testing.TB, configure ...func(*standin.Config)) *cluster {
	t.Helper()
	if url := os.Getenv("NOMAD_ADDR"); url != "" {
		build(t)
		return newCluster(t, &cluster{url: url}, os.Getenv("NOMAD_TOKEN"))
	}
	return pretend(t, configure...)
}

// pretend is a stand-in.
func pretend(t testing.TB, configure ...func(*standin.Config)) *cluster {
	t.Helper()
	build(t)
	cfg := standin.Config{Dir: t.TempDir(), Token: manager, Docker: made.engine, LogLag: 100 * time.Millisecond, Log: house.Log(t, "nomad")}
	for _, f := range configure {
		f(&cfg)
	}
	s, err := standin.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return newCluster(t, &cluster{url: s.URL(), standin: s}, cfg.Token)
}

func newCluster(t testing.TB, c *cluster, token string) *cluster {
	t.Helper()
	var err error
	if c.Client, err = api.NewClient(&api.Config{Address: c.url, SecretID: token}); err != nil {
		t.Fatal(err)
	}
	c.ns = strings.ToLower(protocol.NewID("everdict-test-"))
	if _, err := c.Namespaces().Register(&api.Namespace{Name: c.ns}, nil); err != nil {
		t.Fatal(err)
	}
	c.token = c.grant(t, policy(t, c.ns))
	t.Cleanup(func() {
		jobs, _, err := c.Jobs().List(&api.QueryOptions{Namespace: c.ns})
		if err != nil {
			return // a stand-in that a test has ended
		}
		for _, j := range jobs {
			if !j.Stop { // a stopped one is removed by whoever watches, and nobody does any more
				t.Errorf("job %s is left in namespace %s", j.ID, c.ns)
			}
			_, _, _ = c.Jobs().Deregister(j.ID, true, &api.WriteOptions{Namespace: c.ns})
		}
		house.Eventually(t, "the namespace can go", func() bool {
			_, err := c.Namespaces().Delete(c.ns, nil)
			return err == nil
		})
	})
	return c
}

// policy is the one that docs/nomad.md says, for a namespace.
func policy(t testing.TB, ns string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/nomad.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```hcl\n(namespace.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/nomad.md has no policy")
	}
	return strings.ReplaceAll(string(found[1]), `"evals"`, `"`+ns+`"`)
}

// grant makes a token with the rights of a policy, which goes when the test ends.
func (c *cluster) grant(t testing.TB, rules string) string {
	t.Helper()
	name := strings.ToLower(protocol.NewID("everdict-test-"))
	if _, err := c.ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		t.Fatal(err)
	}
	token, _, err := c.ACLTokens().Create(&api.ACLToken{Name: name, Type: "client", Policies: []string{name}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = c.ACLTokens().Delete(token.AccessorID, nil) // a test may have ended the cluster
		_, _ = c.ACLPolicies().Delete(name, nil)
	})
	return token.SecretID
}

// allocs are the allocations of a unit.
func (c *cluster) allocs(unit string) ([]*api.AllocationListStub, error) {
	all, _, err := c.Jobs().Allocations(unit, true, &api.QueryOptions{Namespace: c.ns})
	return all, err
}

// stopAlloc is nomad alloc stop, for all allocations of a unit.
func (c *cluster) stopAlloc(unit string) error {
	all, err := c.allocs(unit)
	for _, a := range all {
		if err == nil {
			_, err = c.Allocations().Stop(&api.Allocation{ID: a.ID}, &api.QueryOptions{Namespace: c.ns})
		}
	}
	return err
}

// empty waits until nothing of ours is in the namespace.
func (c *cluster) empty(t testing.TB) {
	t.Helper()
	house.Eventually(t, "nothing is left on the cluster", func() bool {
		q := &api.QueryOptions{Namespace: c.ns}
		jobs, _, err := c.Jobs().List(q)
		if err != nil || len(jobs) > 0 {
			return false
		}
		vars, _, err := c.Variables().List(q)
		return err == nil && len(vars) == 0
	})
}

// secrets of every workspace.
type secrets map[string]string

func (s secrets) Secret(_ context.Context, _, name string) (string, error) {
	v, ok := s[name]
	if !ok {
		return "", fleet.ErrNoSecret
	}
	return v, nil
}

// swallow is an address that takes connections and answers nothing.
func swallow(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

// TestConformance: the suite of every provider, with the rights of docs/nomad.md and no
// others, as containers and as processes.
func TestConformance(t *testing.T) {
	t.Parallel()
	build(t)
	for driver, change := range map[string]func(*fleettest.Subject){
		protocol.NomadDocker: func(s *fleettest.Subject) { s.Spec.Image = made.unitImage },
		protocol.NomadRawExec: func(s *fleettest.Subject) {
			s.Spec.Driver, s.Spec.Command, s.Processes = protocol.NomadRawExec, made.unit, true
		},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			perCore := 1000
			s := fleettest.Subject{
				Opener: nomad.New(nomad.Config{Secrets: secrets{"cluster": c.token, "stale": "00000000-0000-4000-8000-000000000000"}, Log: quiet}),
				Spec:   protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, Addr: c.url, Namespace: c.ns, AuthSecret: "cluster", CPUMHzPerCore: &perCore},
				Names:  "authSecret stale", MissingImage: "everdict-test/nowhere:0", BadImage: "UPPER::bad", OtherImage: caseImage, NoRoom: `dimension "memory" exhausted`,
				Evict: func(_ context.Context, unit string) error { return c.stopAlloc(unit) },
			}
			change(&s)
			s.Wrong = s.Spec
			s.Wrong.AuthSecret = "stale"
			silent := s.Spec
			silent.Addr = swallow(t)
			s.Silent = &silent
			fleettest.Run(t, s)
		})
	}
}

// quiet is a log that nobody reads; EVERDICT_TEST_DEBUG shows it.
var quiet = func() *slog.Logger {
	out := io.Discard
	if os.Getenv("EVERDICT_TEST_DEBUG") != "" {
		out = os.Stderr
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}()
