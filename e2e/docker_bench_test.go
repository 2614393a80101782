package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// BenchmarkDocker compares a whole run in a container with the engine's own
// `docker run --rm IMAGE true`, and with the process sandbox, in one benchmark.
func BenchmarkDocker(b *testing.B) {
	h := house.New(b)
	registerNoop(b, h)
	h.Runner("bench", containers(b))
	var bare, container, process durations
	for b.Loop() {
		from := time.Now()
		if out, err := exec.Command("docker", "run", "--rm", busybox, "true").CombinedOutput(); err != nil {
			b.Fatalf("docker run: %v: %s", err, out)
		}
		bare.add(time.Since(from))
		for _, c := range []struct {
			image string
			took  *durations
		}{{busybox, &container}, {"", &process}} {
			req := noop(repoEnv)
			req.Case.Image = c.image
			from := time.Now()
			run := h.Settled(h.Submit(req))
			c.took.add(time.Since(from))
			if run.Verdict == nil || !*run.Verdict {
				b.Fatalf("run: %+v", run.Failure)
			}
		}
	}
	b.ReportMetric(bare.median(), "bare-ms")
	b.ReportMetric(container.median(), "run-ms")
	b.ReportMetric(process.median(), "process-ms")
	b.ReportMetric(container.median()-bare.median(), "over-bare-ms")
	b.ReportMetric(container.median()-process.median(), "over-process-ms")
}

// BenchmarkStartInContainer measures accepted -> harness process started in a container, on an idle runner that keeps
// containers ready (--warm) and on one that does not.
func BenchmarkStartInContainer(b *testing.B) {
	for name, warm := range map[string]int{"warm": 2, "cold": 0} {
		b.Run(name, func(b *testing.B) {
			h := house.New(b)
			registerNoop(b, h)
			h.Runner("bench", containers(b), func(c *agent.Config) {
				driver := docker.New(docker.Config{StateDir: c.StateDir, Warm: warm, WarmRoot: agent.WorkRoot(c.WorkDir)})
				b.Cleanup(func() { driver.Close() })
				c.Images = driver
			})
			req := noop(repoEnv)
			req.Case.Image = busybox
			h.Settled(h.Submit(req)) // says what to keep ready
			var took durations
			for b.Loop() {
				if warm > 0 {
					house.Eventually(b, "containers are ready", func() bool {
						out, err := exec.Command("docker", "ps", "-q", "--filter", "name=warm-", "--filter", "status=running").Output()
						return err == nil && len(strings.Fields(string(out))) >= warm
					})
				}
				took.add(startOf(b, h.Settled(h.Submit(req))))
			}
			took.report(b)
		})
	}
}

// BenchmarkLogFromContainer measures output from a container into the coordinator's store beside the docker CLI's into
// a pipe, both less what the same takes that prints nothing. What is below the log's cap is stored whole; of more, head
// and tail are.
func BenchmarkLogFromContainer(b *testing.B) {
	for name, size := range map[string]int64{"whole": 24e6, "capped": 400e6} {
		b.Run(name, func(b *testing.B) {
			h := house.New(b)
			registerNoop(b, h)
			spec := fmt.Sprintf(`{"kind":"command","id":"print","version":"1","command":"yes %s | head -c %d"}`, strings.Repeat("x", 78), size)
			if _, err := h.Client.RegisterHarness(context.Background(), []byte(spec)); err != nil {
				b.Fatal(err)
			}
			h.Runner("bench", containers(b))
			run := func(harness string) time.Duration {
				req := noop(promptEnv)
				req.Harness.ID, req.Case.Image, req.Case.Graders = harness, busybox, nil
				from := time.Now()
				run := h.Settled(h.Submit(req))
				took := time.Since(from)
				if run.Status != protocol.StatusSucceeded {
					b.Fatalf("run: %s %+v", run.Status, run.Failure)
				}
				return took
			}
			bare := func(script string) time.Duration {
				cmd := exec.Command("docker", "run", "--rm", "--pull=never", busybox, "sh", "-c", script)
				var n counter
				cmd.Stdout = &n
				from := time.Now()
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				return time.Since(from)
			}
			script := fmt.Sprintf("yes %s | head -c %d", strings.Repeat("x", 78), size)
			var ours, theirs durations
			for b.Loop() {
				ours.add(run("print") - run("noop"))
				theirs.add(bare(script) - bare("true"))
			}
			rate := func(d durations) float64 { return float64(size) / 1e3 / d.median() }
			b.ReportMetric(rate(ours), "ours-MB/s")
			b.ReportMetric(rate(theirs), "docker-run-MB/s")
			b.ReportMetric(rate(ours)/rate(theirs), "ratio")
		})
	}
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
