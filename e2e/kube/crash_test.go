//go:build kube

package kube

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// TestP4_TheCoordinatorIsKilledWhileItLaunches: kill -9, five times, at the moments at
// which units are being made. Each run is done, and nothing is left.
func TestP4_TheCoordinatorIsKilledWhileItLaunches(t *testing.T) {
	t.Parallel()
	ns := namespace(t, true)
	binary := filepath.Join(t.TempDir(), "everdict")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/everdict").CombinedOutput(); err != nil {
		t.Fatalf("build everdict: %v: %s", err, out)
	}
	address := house.FreeAddress(t)
	url := "http://" + address
	p := house.Coordinator(t, binary, address, append([]string{"--runner-url=" + url, "--kube-host-network", "--kube-image-pull-policy=Never"}, house.LastingFlags...)...)
	api, err := client.New(client.Config{BaseURL: url, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	house.Eventually(t, "the coordinator answers", func() bool {
		return api.SetSecret(ctx, "cluster-config", protocol.SecretRequest{Value: kubeconfig(t)}) == nil
	})
	spec := fmt.Sprintf(`{"kind":"k8s","id":"cluster","version":"1.0.0","image":%q,"namespace":%q,"kubeconfigSecret":"cluster-config","maxConcurrent":3}`, runnerImage, ns)
	if _, err := api.RegisterRuntime(ctx, []byte(spec)); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 8 {
		run, err := api.Submit(ctx, on("say hello"))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.RunID)
	}
	c := kubernetesClient(t)
	for range 5 {
		jobs, err := c.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before := len(jobs.Items)
		house.Eventually(t, "something changes on the cluster", func() bool {
			jobs, err := c.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
			return err == nil && len(jobs.Items) != before
		})
		p.Kill()
		p.Start()
	}
	for _, id := range ids {
		var run *protocol.Run
		house.Eventually(t, id+" settles", func() bool {
			run, err = api.Run(ctx, id)
			return err == nil && run.Status.Terminal()
		})
		if run.Status != protocol.StatusSucceeded {
			t.Errorf("%s is %s, %+v; want it done (unit %s)", id, run.Status, run.Failure, fleet.UnitName(id, run.Attempt))
		}
	}
	noUnits(t, ns)
}
