//go:build kube

package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// These are not tests: e2e/k8s/bench.sh runs them, and docs/benchmarks.md has the figures.

// bench is a coordinator's program that launches on the cluster through a proxy which
// counts its calls.
type bench struct {
	*testing.B
	p     *house.Process
	api   *client.Client
	debug string // the coordinator's socket for profiles
	ns    string
	calls atomic.Int64
}

func benching(b *testing.B) *bench {
	b.Helper()
	binary := filepath.Join(b.TempDir(), "everdict")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/everdict").CombinedOutput(); err != nil {
		b.Fatalf("build everdict: %v: %s", err, out)
	}
	k := &bench{B: b, ns: namespace(b, true), debug: filepath.Join(b.TempDir(), "debug.sock")}
	address := house.FreeAddress(b)
	url := "http://" + address
	k.p = house.Coordinator(b, binary, address, "--runner-url="+url, "--debug-socket="+k.debug, "--kube-host-network", "--kube-image-pull-policy=Never")
	var err error
	if k.api, err = client.New(client.Config{BaseURL: url, Retries: -1}); err != nil {
		b.Fatal(err)
	}
	doc := k.proxy()
	house.Eventually(b, "the coordinator answers", func() bool {
		return k.api.SetSecret(context.Background(), "cluster-config", protocol.SecretRequest{Value: doc}) == nil
	})
	return k
}

// proxy is the kubeconfig of the API server with every call counted.
func (k *bench) proxy() string {
	k.Helper()
	return through(k, func() { k.p.Kill() }, func(w http.ResponseWriter, r *http.Request, forward http.Handler) { // it would come back again and again
		k.calls.Add(1)
		forward.ServeHTTP(w, r)
	})
}

// pool registers a runtime with 20 slots.
func (k *bench) pool(id, more string) {
	k.Helper()
	spec := fmt.Sprintf(`{"kind":"k8s","id":%q,"version":"1.0.0","image":%q,"namespace":%q,"kubeconfigSecret":"cluster-config","maxConcurrent":20%s}`, id, runnerImage, k.ns, more)
	if _, err := k.api.RegisterRuntime(context.Background(), []byte(spec)); err != nil {
		k.Fatal(err)
	}
}

// submit queues n runs of one second.
func (k *bench) submit(runtime string, n int) []string {
	k.Helper()
	ids := make([]string, n)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range ids {
		group.Go(func() error {
			req := house.Scripted("run sleep 1")
			req.Runtime, req.Priority = runtime, protocol.ClassBatch
			req.Case.Resources = &protocol.Resources{MemoryMB: 64}
			run, err := k.api.Submit(context.Background(), req)
			if err == nil {
				ids[i] = run.RunID
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		k.Fatal(err)
	}
	return ids
}

// cpu is how long the coordinator's process has run on a core.
func (k *bench) cpu() time.Duration {
	k.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(k.p.Pid()) + "/stat")
	if err != nil {
		k.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100
}

// looking is how long the fleet has looked at its pools, in seconds.
func (k *bench) looking() float64 {
	k.Helper()
	resp, err := http.Get(k.api.BaseURL() + "/metrics")
	if err != nil {
		k.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		k.Fatal(err)
	}
	const name = "\neverdict_fleet_look_seconds_total "
	_, rest, _ := strings.Cut(string(text), name)
	line, _, _ := strings.Cut(rest, "\n")
	seconds, err := strconv.ParseFloat(line, 64)
	if err != nil {
		k.Fatalf("metrics have no%s: %v", name, err)
	}
	return seconds
}

// profile is what the fleet takes of a core for a while, in percent, by what it does: the
// label "fleet" of a CPU profile, and "queue" for what the looks have the queue's one
// writer do, which has no label.
func (k *bench) profile(d time.Duration) (map[string]float64, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", k.debug)
	}}}
	resp, err := c.Get(fmt.Sprintf("http://everdict/debug/pprof/profile?seconds=%d", int(d.Seconds())))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	p, err := profile.Parse(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("profile (%s): %w", resp.Status, err)
	}
	shares := map[string]float64{}
	asked := func(s *profile.Sample) bool {
		return slices.ContainsFunc(s.Location, func(l *profile.Location) bool {
			return slices.ContainsFunc(l.Line, func(line profile.Line) bool {
				return strings.Contains(line.Function.Name, "lease.(*Queue).Demand.") || strings.Contains(line.Function.Name, "lease.(*Queue).Explain.")
			})
		})
	}
	for _, s := range p.Sample {
		if len(s.Label["fleet"]) == 0 && asked(s) {
			shares["queue"] += 100 * float64(s.Value[1]) / float64(p.DurationNanos)
		}
		for _, what := range s.Label["fleet"] {
			shares[what] += 100 * float64(s.Value[1]) / float64(p.DurationNanos) // nanoseconds on a core
		}
	}
	return shares, nil
}

// over measures the coordinator for a while: its share of a core in percent, and its
// calls of the cluster's API.
func (k *bench) over(d time.Duration) (share float64, calls int64) {
	k.Helper()
	cpu, n, began := k.cpu(), k.calls.Load(), time.Now()
	time.Sleep(d)
	return 100 * float64(k.cpu()-cpu) / float64(time.Since(began)), k.calls.Load() - n
}

// slots follows the units of a namespace as the cluster tells of them.
type slots struct {
	mu      sync.Mutex
	live    map[string]bool // Pods that have not ended, by name
	most    int
	freed   []time.Time // slots that nobody has taken again
	refills []time.Duration
	jobs    int
	// echo makes an object at the end of each Pod; bare are how long the cluster took to
	// tell of it, which is the least that a refill can take just then.
	echo  func(name string)
	bare  []time.Duration
	asked map[string]time.Time
}

// follow watches until the benchmark ends.
func (k *bench) follow() *slots {
	k.Helper()
	s := &slots{live: map[string]bool{}, asked: map[string]time.Time{}}
	done := make(chan struct{})
	c := kubernetesClient(k)
	var echoes sync.WaitGroup
	k.Cleanup(func() {
		close(done)
		echoes.Wait()
	})
	s.echo = func(name string) {
		echoes.Go(func() {
			_, err := c.CoreV1().ConfigMaps(k.ns).Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil {
				k.Error(err)
			}
		})
	}
	all := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(k.ns))
	pods, jobs, echo := all.Core().V1().Pods().Informer(), all.Batch().V1().Jobs().Informer(), all.Core().V1().ConfigMaps().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.pod(o, false) },
		UpdateFunc: func(_, o any) { s.pod(o, false) },
		DeleteFunc: func(o any) { s.pod(o, true) },
	})
	if err == nil {
		_, err = jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { s.job() }})
	}
	if err == nil {
		_, err = echo.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: s.echoed})
	}
	if err != nil {
		k.Fatal(err)
	}
	all.Start(done)
	all.WaitForCacheSync(done)
	return s
}

func (s *slots) pod(o any, deleted bool) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return // one whose end was missed, and of which the next list knows nothing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live := !deleted && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	for _, c := range p.Status.ContainerStatuses {
		live = live && c.State.Terminated == nil
	}
	if s.live[p.Name] && !live {
		s.freed = append(s.freed, time.Now())
		s.asked[p.Name] = time.Now()
		s.echo(p.Name)
	}
	if _, known := s.live[p.Name]; !known || !live {
		s.live[p.Name] = live
	}
	n := 0
	for _, l := range s.live {
		if l {
			n++
		}
	}
	s.most = max(s.most, n)
}

func (s *slots) job() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs++; s.jobs <= 20 {
		return
	}
	if len(s.freed) == 0 { // the Pod's end is about to be told: the two watches are not one
		s.refills = append(s.refills, 0)
		s.freed = append(s.freed, time.Time{})
	} else {
		s.refills = append(s.refills, time.Since(s.freed[0]))
	}
	s.freed = s.freed[1:]
}

func (s *slots) echoed(o any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ours := s.asked[o.(*corev1.ConfigMap).Name]; ours {
		s.bare = append(s.bare, time.Since(at))
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// BenchmarkPool: 500 runs of one second on a pool of 20.
func BenchmarkPool(b *testing.B) {
	const n = 500
	k := benching(b)
	k.pool("cluster", "")
	s := k.follow()
	for b.Loop() {
		cpu, calls, began := k.cpu(), k.calls.Load(), time.Now()
		ids := k.submit("cluster", n)
		for _, id := range ids {
			for { // not Eventually: the last of them waits for minutes
				run, err := k.api.Run(context.Background(), id)
				if err != nil {
					b.Fatal(err)
				}
				if run.Status.Terminal() {
					if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
						b.Errorf("%s is %s, attempt %d, %+v", id, run.Status, run.Attempt, run.Failure)
					}
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		took := time.Since(began)
		s.mu.Lock()
		b.ReportMetric(took.Seconds(), "s")
		b.ReportMetric(float64(s.most), "units-at-most")
		b.ReportMetric(float64(s.jobs), "units")
		b.ReportMetric(float64(quantile(s.refills, .5).Milliseconds()), "refill-p50-ms")
		b.ReportMetric(float64(quantile(s.refills, .99).Milliseconds()), "refill-p99-ms")
		b.ReportMetric(float64(quantile(s.refills, 1).Milliseconds()), "refill-max-ms")
		b.ReportMetric(float64(quantile(s.bare, .5).Milliseconds()), "bare-p50-ms")
		b.ReportMetric(float64(quantile(s.bare, .99).Milliseconds()), "bare-p99-ms")
		b.ReportMetric(float64(quantile(s.bare, 1).Milliseconds()), "bare-max-ms")
		b.ReportMetric(float64(k.calls.Load()-calls)/n, "calls/run")
		b.ReportMetric(100*float64(k.cpu()-cpu)/float64(took), "cpu-%")
		s.mu.Unlock()
	}
}

// BenchmarkStart: from submit to started, against the same Pod made by hand until the
// cluster says that it runs; one after the other, by turns. Then with a runner that is
// kept ready.
func BenchmarkStart(b *testing.B) {
	const n = 10
	k := benching(b)
	k.pool("cluster", "")
	ctx := context.Background()
	c := kubernetesClient(b)
	var ours, bare []time.Duration
	var like *corev1.Pod
	for b.Loop() {
		for i := range n + 1 {
			began := time.Now()
			id := k.submit("cluster", 1)[0]
			var run *protocol.Run
			house.Eventually(b, id+" settles", func() bool {
				var err error
				run, err = k.api.Run(ctx, id)
				if like == nil && err == nil && run.Status == protocol.StatusRunning {
					if pods, err := unitPods(ctx, c, k.ns, fleet.UnitName(id, 1)); err == nil && len(pods) == 1 {
						like = &pods[0]
					}
				}
				return err == nil && run.Status.Terminal()
			})
			all, err := k.api.Attempts(ctx, id)
			if err != nil || len(all) != 1 || all[0].StartedAt == nil {
				b.Fatalf("attempts %+v, %v", all, err)
			}
			emptied(b, k.ns)
			if like == nil {
				b.Fatal("the Pod of a run was not seen")
			}
			if i > 0 { // the first warms both up
				ours = append(ours, all[0].StartedAt.Sub(began))
				bare = append(bare, byHand(b, k.ns, like))
				emptied(b, k.ns)
			}
		}
	}
	k.pool("ready", `,"warm":1,"warmSize":{"memoryMb":64}`)
	var ready []time.Duration
	for range n {
		house.Eventually(b, "a runner is ready", func() bool {
			pools, err := k.api.Pools(ctx)
			return err == nil && slices.ContainsFunc(pools, func(p protocol.Pool) bool {
				return p.Runtime == "ready" && slices.ContainsFunc(p.Runners, func(r protocol.Runner) bool { return r.Online && r.Busy == 0 && r.Job == "" })
			})
		})
		began := time.Now()
		id := k.submit("ready", 1)[0]
		house.Eventually(b, id+" settles", func() bool {
			run, err := k.api.Run(ctx, id)
			return err == nil && run.Status.Terminal()
		})
		all, err := k.api.Attempts(ctx, id)
		if err != nil || len(all) != 1 || all[0].StartedAt == nil {
			b.Fatalf("attempts %+v, %v", all, err)
		}
		ready = append(ready, all[0].StartedAt.Sub(began))
	}
	b.ReportMetric(float64(quantile(ready, .5).Milliseconds()), "ready-p50-ms")
	x, y := quantile(ours, .5), quantile(bare, .5)
	b.ReportMetric(float64(x.Milliseconds()), "started-p50-ms")
	b.ReportMetric(float64(y.Milliseconds()), "bare-p50-ms")
	b.ReportMetric(float64(x)/float64(y), "ratio")
}

// emptied waits until a namespace has no Pod.
func emptied(tb testing.TB, ns string) {
	house.Eventually(tb, "no Pod is left", func() bool {
		pods, err := kubernetesClient(tb).CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
}

// byHand is how long the cluster takes to run a Pod like a unit's, which sleeps.
func byHand(tb testing.TB, ns string, like *corev1.Pod) time.Duration {
	tb.Helper()
	ctx := context.Background()
	c := kubernetesClient(tb)
	if _, err := c.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, StringData: map[string]string{"token": "t"}}, metav1.CreateOptions{}); err != nil {
		tb.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: *like.Spec.DeepCopy()}
	pod.Spec.NodeName = ""
	for i, v := range pod.Spec.Volumes {
		if v.Secret != nil {
			pod.Spec.Volumes[i].Secret.SecretName = "by-hand"
		}
	}
	pod.Spec.Containers[0].Command = []string{"sleep", "1000"}
	began := time.Now()
	if _, err := c.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		tb.Fatal(err)
	}
	for {
		p, err := c.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			tb.Fatal(err)
		}
		if len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	zero := int64(0)
	if err := c.CoreV1().Pods(ns).Delete(ctx, "by-hand", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		tb.Fatal(err)
	}
	if err := c.CoreV1().Secrets(ns).Delete(ctx, "by-hand", metav1.DeleteOptions{}); err != nil {
		tb.Fatal(err)
	}
	return took
}

// BenchmarkLongQueue: 10,000 runs wait for a pool whose 20 units find no node, and then
// for one whose units work; the coordinator's share of a core, and its calls.
func BenchmarkLongQueue(b *testing.B) {
	const n, window = 10_000, 30 * time.Second
	k := benching(b)
	for b.Loop() {
		k.pool("nowhere", `,"nodeSelector":{"disk":"floppy"}`)
		k.submit("nowhere", 20)
		k.waiting(20)
		share, calls := k.over(window)
		b.ReportMetric(share, "cpu-of-20-%")
		b.ReportMetric(float64(calls), "calls-of-20")
		k.submit("nowhere", n)
		time.Sleep(5 * time.Second) // what the submits themselves have left to do
		share, calls = k.over(window)
		b.ReportMetric(share, "cpu-of-10k-%")
		b.ReportMetric(float64(calls), "calls-of-10k")

		k.pool("cluster", "")
		k.submit("cluster", n)
		time.Sleep(5 * time.Second)
		before, looks := k.done("cluster", n), k.looking()
		var profiled errgroup.Group
		var shares map[string]float64
		profiled.Go(func() (err error) {
			shares, err = k.profile(2 * window)
			return err
		})
		share, calls = k.over(2 * window)
		b.ReportMetric(100*(k.looking()-looks)/(2*window).Seconds(), "looks-working-%")
		ended := k.done("cluster", n) - before
		b.ReportMetric(share, "cpu-working-%")
		if err := profiled.Wait(); err != nil {
			k.Fatal(err)
		}
		for what, share := range shares {
			b.ReportMetric(share, what+"-cpu-working-%")
		}
		b.ReportMetric(float64(calls)/float64(ended), "calls/run")
		b.ReportMetric(float64(ended), "runs-in-60s")
	}
}

// waiting is when n units of a runtime are on the cluster.
func (k *bench) waiting(n int) {
	k.Helper()
	house.Eventually(k, "the units are on the cluster", func() bool {
		pods, err := kubernetesClient(k).CoreV1().Pods(k.ns).List(context.Background(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == n
	})
}

// done is how many of n runs of a runtime have left its pool.
func (k *bench) done(runtime string, n int) int {
	k.Helper()
	pools, err := k.api.Pools(context.Background())
	if err != nil {
		k.Fatal(err)
	}
	for _, p := range pools {
		if p.Runtime == runtime {
			return n - p.Queued - p.Running
		}
	}
	k.Fatal("no such pool")
	return 0
}
