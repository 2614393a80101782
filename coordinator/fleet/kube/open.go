// Package kube launches units on Kubernetes: one Job for each, whose Pod runs the
// runner's image. It reads what the cluster says of them (Jobs, Pods, the events of
// Jobs) through watches. Only coordinators link it.
package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// Config of the units on every cluster, set by the operator. The zero value is what
// a shared cluster wants.
type Config struct {
	// Secrets that runtimes name; nil: there are none.
	Secrets fleet.Secrets
	// HostNetwork puts units into their node's network, for a coordinator that listens
	// on the node's loopback. The restricted Pod security standard forbids it.
	HostNetwork bool
	// ImagePullPolicy of units: Always, IfNotPresent or Never. Default: the cluster's
	// own choice.
	ImagePullPolicy string
	// User that units run as. Default 20250; negative: the image's own.
	User int64
	// Egress says that clusters enforce network policies, and names the coordinator's
	// addresses as those see them: ranges such as 10.0.0.7/32. Empty: no Pod is held to
	// "network: none". URL is where runners find the coordinator.
	Egress []string
	URL    string
	Log    *slog.Logger
}

const (
	defaultUser = 20250
	// queriesPerSecond and burst bound the calls of one runtime; client-go's own 5 and
	// 10 would stretch the launch of a pool of twenty over ten seconds.
	queriesPerSecond = 100
	burst            = 200
)

// Opener makes providers for runtimes of kind k8s.
type Opener struct{ cfg Config }

var _ fleet.Featured = (*Opener)(nil)

// New returns an opener.
func New(cfg Config) *Opener {
	cfg.User = cmp.Or(cfg.User, defaultUser)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Opener{cfg}
}

// Lacks implements fleet.Featured.
func (o *Opener) Lacks(f fleet.Feature) string {
	switch {
	case f == fleet.FeatureReuse && o.cfg.User < 0:
		return "with --kube-user=-1 a Pod may run as root, and what a job of root leaves in its container cannot be removed for certain"
	case f == fleet.FeatureReuse:
		return ""
	case f == fleet.FeatureNoNetwork:
		return o.cfg.lacksNetwork()
	}
	return fmt.Sprintf("Pods do not hold %q", f)
}

// Open implements fleet.Opener. What authenticates is, in this order: the kubeconfig in
// kubeconfigSecret; server with the token in authSecret; context of the coordinator's
// own kubeconfig; the service account that the coordinator's Pod has. Where neither the
// spec nor a kubeconfig names a namespace, that is the Pod's own in the last case, and
// else "default".
func (o *Opener) Open(ctx context.Context, t fleet.Target) (fleet.Provider, error) {
	if t.Spec.Kind != protocol.RuntimeK8s {
		return nil, fmt.Errorf("kube: runtime %s is of kind %s", t.Spec.ID, t.Spec.Kind)
	}
	a, err := o.access(ctx, t)
	if err != nil {
		return nil, err
	}
	a.config.QPS, a.config.Burst = queriesPerSecond, burst
	a.config.UserAgent = "everdict"
	a.config.Wrap(func(base http.RoundTripper) http.RoundTripper { return fleet.Answers{Base: base, Engine: isStatus} })
	client, err := clientset(a.config)
	if err != nil {
		if t.Spec.KubeconfigSecret != "" {
			err = errUnusable // the error could quote it
		}
		return nil, fmt.Errorf("kube: use %s: %w", a.credential, err)
	}
	return newProvider(o.cfg, t, client, a), nil
}

// clientset is a client that follows no redirection: the credential would go along.
func clientset(c *rest.Config) (kubernetes.Interface, error) {
	plain, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	own := *plain
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return kubernetes.NewForConfigAndClient(c, &own)
}

// isStatus says whether an error is one of a Kubernetes API server, in JSON or in the form
// that the client asks it for (protobuf).
func isStatus(_ *http.Response, body []byte, _ string) bool {
	answer, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	_, ok := answer.(*metav1.Status)
	return err == nil && ok
}

// access is how a cluster is reached.
type access struct {
	config    *rest.Config
	namespace string
	// credential names what authenticates, never its value.
	credential string
}

func (o *Opener) access(ctx context.Context, t fleet.Target) (a access, err error) {
	spec := t.Spec
	switch {
	case spec.KubeconfigSecret != "":
		a.credential = "kubeconfigSecret " + spec.KubeconfigSecret
		var doc string
		if doc, err = o.secret(ctx, t, spec.KubeconfigSecret); err == nil {
			a.config, a.namespace, err = fromKubeconfig([]byte(doc), spec.Context)
		}
	case spec.Server != "" && spec.AuthSecret != "":
		a.credential = "authSecret " + spec.AuthSecret
		a.config = &rest.Config{Host: spec.Server}
		a.config.BearerToken, err = o.secret(ctx, t, spec.AuthSecret)
	case spec.Server != "":
		a.credential, a.config = "no credential", &rest.Config{Host: spec.Server}
	case spec.Context != "":
		a.credential = "context " + spec.Context
		a.config, a.namespace, err = fromContext(spec.Context)
	default:
		a.credential = "the coordinator's service account"
		a.config, err = rest.InClusterConfig()
		switch {
		case errors.Is(err, rest.ErrNotInCluster):
			err = errors.New("the runtime names no kubeconfigSecret, no server and no context, and the coordinator does not run in a cluster")
		case err == nil && spec.Namespace == "":
			a.namespace, err = ownNamespace()
		}
	}
	if err != nil {
		return access{}, fmt.Errorf("kube: use %s: %w", a.credential, err)
	}
	a.namespace = cmp.Or(spec.Namespace, a.namespace, corev1.NamespaceDefault)
	return a, nil
}

// namespaceFile is where a Pod finds the namespace of its service account.
// https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownNamespace is the one that the coordinator's Pod is in.
func ownNamespace() (string, error) {
	b, err := os.ReadFile(namespaceFile)
	if err != nil {
		return "", fmt.Errorf("read the namespace of the coordinator's Pod (or name namespace in the runtime): %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// expiry is when the client certificate of a credential expires; zero: it has none.
func expiry(c *rest.Config) time.Time {
	block, _ := pem.Decode(c.CertData)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{} // the client says what is wrong with it
	}
	return cert.NotAfter
}

func (o *Opener) secret(ctx context.Context, t fleet.Target, name string) (string, error) {
	if o.cfg.Secrets == nil {
		return "", fleet.ErrNoSecret
	}
	return o.cfg.Secrets.Secret(ctx, t.Workspace, name)
}
