//go:build kube

package kube

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/coordinator/fleet/kube"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// Images that e2e/k8s/images.sh makes.
const (
	unitImage   = "docker.io/everdict-test/unit:1"
	runnerImage = "docker.io/everdict-test/runner:1"
	caseImage   = "docker.io/everdict-test/case:1"
	// ownImage is runnerImage with a user of its own.
	ownImage = "docker.io/everdict-test/own:1"
	// impatientImage is runnerImage, which gives its result up after 2 s.
	impatientImage = "docker.io/everdict-test/impatient:1"
)

// kubeconfig is the admin's of the cluster under test.
func kubeconfig(t testing.TB) string {
	t.Helper()
	path := os.Getenv("EVERDICT_KUBECONFIG")
	if path == "" {
		t.Fatal("EVERDICT_KUBECONFIG names no cluster: make test-k8s")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func kubernetesClient(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig(t)))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 200, 400
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// namespace makes one that lives as long as the test. It enforces the restricted Pod
// security standard, unless privileged.
func namespace(t testing.TB, privileged bool) string {
	t.Helper()
	level := "restricted"
	if privileged {
		level = "privileged"
	}
	ns, err := kubernetesClient(t).CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "everdict-test-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kubernetesClient(t).CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	house.Eventually(t, "the namespace has its service account", func() bool {
		_, err := kubernetesClient(t).CoreV1().ServiceAccounts(ns.Name).Get(context.Background(), "default", metav1.GetOptions{})
		return err == nil
	})
	return ns.Name
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

// unitPods are the Pods of a unit.
func unitPods(ctx context.Context, c *kubernetes.Clientset, ns, unit string) ([]corev1.Pod, error) {
	pods, err := c.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "everdict.dev/unit=" + unit})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// force deletes the Pods of a unit as kubectl delete pod --force does.
func force(ctx context.Context, c *kubernetes.Clientset, ns, unit string) error {
	pods, err := unitPods(ctx, c, ns, unit)
	for _, p := range pods {
		zero := int64(0)
		err = c.CoreV1().Pods(ns).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	}
	return err
}

// withToken is the kubeconfig of whoever has a token.
func withToken(t testing.TB, token string) string {
	t.Helper()
	return strings.Split(kubeconfig(t), "users:")[0] + "users: [{name: u, user: {token: " + token + "}}]\n" +
		"contexts: [{name: everdict, context: {cluster: everdict, user: u}}]\ncurrent-context: everdict\n"
}

// through puts something between the API server, as an admin sees it, and who has the
// kubeconfig that it returns. before runs before it is closed; it may be nil.
func through(t testing.TB, before func(), answer func(w http.ResponseWriter, r *http.Request, forward http.Handler)) string {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig(t)))
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Authorization")
		}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, forward) }))
	t.Cleanup(func() {
		if before != nil {
			before()
		}
		s.CloseClientConnections()
		s.Close()
	})
	return "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: " + s.URL + "}}]\nusers: [{name: u, user: {token: none}}]\n" +
		"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
}

// launcher makes what deploy/kubernetes/launcher.yaml says in a namespace, and returns
// its token.
func launcher(t testing.TB, ns string) string {
	t.Helper()
	c, ctx := kubernetesClient(t), context.Background()
	doc, err := os.ReadFile("../../deploy/kubernetes/launcher.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(doc), "\n---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
		if err != nil {
			t.Fatalf("read launcher.yaml: %v", err)
		}
		switch o := object.(type) {
		case *corev1.ServiceAccount:
			_, err = c.CoreV1().ServiceAccounts(ns).Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.Role:
			_, err = c.RbacV1().Roles(ns).Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			o.Subjects[0].Namespace = ns
			_, err = c.RbacV1().RoleBindings(ns).Create(ctx, o, metav1.CreateOptions{})
		case *corev1.Secret:
			_, err = c.CoreV1().Secrets(ns).Create(ctx, o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatalf("make %T: %v", object, err)
		}
	}
	var token string
	house.Eventually(t, "the launcher has its token", func() bool {
		s, err := c.CoreV1().Secrets(ns).Get(ctx, "everdict-launcher", metav1.GetOptions{})
		if err == nil {
			token = string(s.Data["token"])
		}
		return token != ""
	})
	return token
}

// swallow is an address that takes connections and answers nothing.
func swallow(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "https://" + l.Addr().String()
}

// TestConformance: the suite of every provider, against the real thing, in a namespace
// that enforces the restricted Pod security standard, with the rights of
// deploy/kubernetes/launcher.yaml and no others.
func TestConformance(t *testing.T) {
	t.Parallel()
	ns := namespace(t, false)
	opener := kube.New(kube.Config{Secrets: secrets{"cluster": withToken(t, launcher(t, ns)), "stale": withToken(t, "nonsense"), "token": "nonsense"}, ImagePullPolicy: "Never", Log: quiet})
	spec := protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, Image: unitImage, Namespace: ns, KubeconfigSecret: "cluster"}
	bad, silent := spec, spec
	bad.KubeconfigSecret = "stale"
	silent.KubeconfigSecret, silent.Server, silent.AuthSecret = "", swallow(t), "token"
	c := kubernetesClient(t)
	fleettest.Run(t, fleettest.Subject{
		Opener: opener, Spec: spec, Wrong: bad, Names: "kubeconfigSecret stale", Silent: &silent,
		MissingImage: "docker.io/everdict-test/nowhere:0", BadImage: "UPPER::bad", OtherImage: caseImage,
		Evict:    func(ctx context.Context, unit string) error { return force(ctx, c, ns, unit) },
		Patience: 90 * time.Second,
	})
}
