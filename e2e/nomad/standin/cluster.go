// Package standin is a stand-in of a Nomad cluster for tests: its HTTP API as far as
// the fleet uses it, over servers and clients in this process that really run the
// tasks, as processes and as containers of the local engine. It is written from the
// types of github.com/hashicorp/nomad/api, Nomad's public documentation, and what a
// Nomad 1.6.1 was seen to answer; nothing of Nomad's server is in it.
//
// A server can die and come back on the state that it wrote; a client can be lost and
// come back; both leave tasks running. What real clusters only do when they are in
// trouble, methods of Cluster make them do.
package standin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	docker "github.com/docker/docker/client"
	"github.com/hashicorp/nomad/api"
)

// Config of a Cluster. Dir is required.
type Config struct {
	// Dir is for the state and for the allocations.
	Dir string
	// Address to listen on. Default a free port of loopback.
	Address string
	// Version that the agents say they are. Default 1.8.2. Before 1.8 there is no
	// disconnect block.
	Version string
	// Token with all rights; empty: ACLs are off.
	Token string
	// Clients of the cluster. Default one with 8,000 MHz in 8 cores and 8 GiB.
	Clients []Client
	// Docker is the engine of the docker driver; nil: no client has it.
	Docker *docker.Client
	// Runtimes are container runtimes that the docker driver allows (allow_runtimes) beside
	// those it allows by itself, and what the engine calls what it runs for each.
	Runtimes map[string]string
	// Certificate makes the API one of TLS.
	Certificate *tls.Certificate
	// LogLag is how long after its start the log of a task is nowhere.
	LogLag time.Duration
	Log    *slog.Logger
}

// Client is a machine of the cluster.
type Client struct {
	Name, Datacenter    string
	MHz, Cores          int
	MemoryMB            int
	GPUs                int
	Attributes          map[string]string
	HasNoRawExec, Drain bool
}

// Cluster is a stand-in. Close it.
type Cluster struct {
	cfg     Config
	address string

	mu      sync.Mutex
	s       *state
	changed chan struct{} // closed with each change of the state
	server  *http.Server  // nil: down
	served  chan struct{}
	lost    map[string]bool // clients that do not answer, by node id
	noPath  map[string]bool // clients whose first log request is answered with 404
	work    map[string]*work
	events  []event // the last ones
	wg      sync.WaitGroup
}

// state is what the servers keep, on disk.
type state struct {
	Index      uint64
	Tables     map[string]uint64
	Jobs       map[string]*api.Job // by namespace and id, as summaries
	Summaries  map[string]*api.JobSummary
	Allocs     map[string]*api.Allocation
	Evals      map[string]*api.Evaluation
	Nodes      map[string]*node
	Variables  map[string]*api.Variable
	Namespaces map[string]*api.Namespace
	Policies   map[string]*api.ACLPolicy
	Tokens     map[string]*api.ACLToken // by secret
	Quotas     map[string]int           // MiB of memory by namespace
}

type node struct {
	ID     string
	Client Client
	Status string
}

// Start brings a cluster up.
func Start(cfg Config) (*Cluster, error) {
	cfg.Version = cmp.Or(cfg.Version, "1.8.2")
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Clients == nil {
		cfg.Clients = []Client{{Name: "client-1", MHz: 8000, Cores: 8, MemoryMB: 8192}}
	}
	c := &Cluster{cfg: cfg, address: cmp.Or(cfg.Address, "127.0.0.1:0"), changed: make(chan struct{}),
		lost: map[string]bool{}, noPath: map[string]bool{}, work: map[string]*work{}}
	if err := c.Up(); err != nil {
		return nil, err
	}
	return c, nil
}

// URL is where the API answers.
func (c *Cluster) URL() string {
	if c.cfg.Certificate != nil {
		return "https://" + c.address
	}
	return "http://" + c.address
}

// Close ends the cluster and everything that it runs.
func (c *Cluster) Close() {
	c.Down()
	c.mu.Lock()
	for _, w := range c.work {
		w.kill(0)
	}
	c.mu.Unlock()
	c.wg.Wait()
}

// Down is the death of every server: the API is gone, tasks go on.
func (c *Cluster) Down() {
	c.mu.Lock()
	server, served := c.server, c.served
	c.server, c.s, c.events = nil, nil, nil
	c.wake()
	c.mu.Unlock()
	if server != nil {
		server.Close()
		<-served
	}
}

// Up brings the servers back, on the state that they had written.
func (c *Cluster) Up() error {
	s, err := c.load()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.address)
	if err != nil {
		return err
	}
	c.address = listener.Addr().String()
	if c.cfg.Certificate != nil {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*c.cfg.Certificate}})
	}
	server := &http.Server{Handler: c.handler(), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(c.cfg.Log.Handler(), slog.LevelDebug)}
	served := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s, c.server, c.served = s, server, served
	for id := range s.Nodes {
		c.noPath[id] = len(c.work) > 0 // the client has to connect again
	}
	for id := range s.Nodes {
		c.hear(id)
	}
	c.evaluate("")
	go func() {
		defer close(served)
		_ = server.Serve(listener) // it ends with Down
	}()
	return nil
}

func (c *Cluster) load() (*state, error) {
	s := &state{Index: 10, Tables: map[string]uint64{}, Jobs: map[string]*api.Job{}, Summaries: map[string]*api.JobSummary{}, Allocs: map[string]*api.Allocation{},
		Evals: map[string]*api.Evaluation{}, Nodes: map[string]*node{}, Variables: map[string]*api.Variable{}, Policies: map[string]*api.ACLPolicy{},
		Namespaces: map[string]*api.Namespace{api.DefaultNamespace: {Name: api.DefaultNamespace}}, Tokens: map[string]*api.ACLToken{}, Quotas: map[string]int{}}
	b, err := os.ReadFile(c.file())
	switch {
	case errors.Is(err, os.ErrNotExist):
		for _, client := range c.cfg.Clients {
			client.Datacenter = cmp.Or(client.Datacenter, "dc1")
			n := &node{ID: uuid(), Client: client, Status: api.NodeStatusReady}
			s.Nodes[n.ID] = n
		}
		if c.cfg.Token != "" {
			s.Tokens[c.cfg.Token] = &api.ACLToken{AccessorID: uuid(), SecretID: c.cfg.Token, Name: "Bootstrap Token", Type: "management", Global: true}
		}
		return s, nil
	case err != nil:
		return nil, err
	}
	return s, json.Unmarshal(b, s)
}

func (c *Cluster) file() string { return filepath.Join(c.cfg.Dir, "state.json") }

// commit is the end of a change of the state: it is on disk, and whoever waits for one
// of the tables is told. The caller holds mu.
func (c *Cluster) commit(tables ...string) uint64 {
	c.s.Index++
	for _, t := range tables {
		c.s.Tables[t] = c.s.Index
	}
	b, err := json.Marshal(c.s)
	if err == nil {
		part := c.file() + ".part"
		if err = os.WriteFile(part, b, 0o600); err == nil {
			err = os.Rename(part, c.file())
		}
	}
	if err != nil {
		c.cfg.Log.Error("state not written", "err", err)
	}
	c.wake()
	return c.s.Index
}

func (c *Cluster) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Lose makes a client unheard of, as when its agent dies. Its tasks go on.
func (c *Cluster) Lose(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.s.Nodes {
		if n.Client.Name != client {
			continue
		}
		c.lost[n.ID], n.Status = true, api.NodeStatusDown
		for _, a := range c.s.Allocs {
			if a.NodeID != n.ID || ended(a) {
				continue
			}
			// https://developer.hashicorp.com/nomad/docs/job-specification/disconnect
			if d := a.Job.TaskGroups[0].Disconnect; d != nil && d.LostAfter != nil && c.knowsDisconnect() {
				n.Status = api.NodeStatusDisconnected
				a.ClientStatus, a.ClientDescription = api.AllocClientStatusUnknown, "alloc is unknown since its node is disconnected"
			} else {
				a.ClientStatus = api.AllocClientStatusLost
				a.DesiredStatus, a.DesiredDescription = api.AllocDesiredStatusStop, "alloc is lost since its node is down"
			}
			c.touch(a)
		}
	}
	c.commit("nodes")
	c.evaluate("node-update")
}

// Find brings a lost client back. It says what became of its tasks, and ends those
// that are not wanted any more.
func (c *Cluster) Find(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.s.Nodes {
		if n.Client.Name != client {
			continue
		}
		delete(c.lost, id)
		n.Status, c.noPath[id] = api.NodeStatusReady, true
		for _, a := range c.s.Allocs {
			if a.NodeID == id && a.ClientStatus == api.AllocClientStatusUnknown {
				a.ClientStatus, a.ClientDescription = api.AllocClientStatusRunning, ""
				c.touch(a)
			}
		}
		c.commit("nodes")
		c.hear(id)
	}
	c.evaluate("node-update")
}

// Preempt takes the allocation of a job away for one that matters more.
func (c *Cluster) Preempt(namespace, job string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.s.Allocs {
		if a.Namespace == namespace && a.JobID == job && !ended(a) {
			a.PreemptedByAllocation = uuid()
			c.desire(a, api.AllocDesiredStatusEvict, "Preempted by alloc ID "+a.PreemptedByAllocation)
		}
	}
	// What matters more has the room: nothing is placed until something changes.
}

// Quota limits the memory of a namespace, as a quota of Nomad Enterprise does; 0: none.
func (c *Cluster) Quota(namespace string, memoryMB int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Quotas[namespace] = memoryMB
	if memoryMB == 0 {
		delete(c.s.Quotas, namespace)
	}
	c.commit("quotas")
	c.evaluate("quota-update")
}

func (c *Cluster) knowsDisconnect() bool {
	var major, minor int
	_, err := fmt.Sscanf(c.cfg.Version, "%d.%d", &major, &minor)
	return err == nil && (major > 1 || minor >= 8)
}

// await blocks until a table is past index, the wait is over, or the server dies. The
// caller holds mu, which it still does afterwards.
func (c *Cluster) await(ctx context.Context, index uint64, wait time.Duration, tables ...string) (uint64, bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for c.s != nil {
		var now uint64 = 1
		for _, t := range tables {
			now = max(now, c.s.Tables[t])
		}
		if now > index {
			return now, true
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
			c.mu.Lock()
			continue
		case <-ctx.Done():
		case <-timer.C:
		}
		c.mu.Lock()
		return now, c.s != nil
	}
	return 0, false
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func key(namespace, id string) string { return namespace + "/" + id }

func ptr[T any](v T) *T { return &v }
