package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everdict/everdict/coordinator/fleet"
)

// provider is a cluster as one runtime uses it.
type provider struct {
	cfg        Config
	t          fleet.Target
	client     kubernetes.Interface
	namespace  string
	host       string
	credential string
	selector   string
	// expires is when the client certificate does; zero: there is none.
	expires time.Time
	// watched is what Watch keeps current; nil before it has read everything.
	watched atomic.Pointer[watched]
	// doubts is what Watch has found out about nodes; nil: nothing yet.
	doubts atomic.Pointer[doubts]
}

var _ fleet.Located = (*provider)(nil)

// Location implements fleet.Located.
func (p *provider) Location() string { return p.host + " " + p.namespace }

func newProvider(cfg Config, t fleet.Target, client kubernetes.Interface, a access) *provider {
	return &provider{cfg: cfg, t: t, client: client, namespace: a.namespace, host: a.config.Host, credential: a.credential, expires: expiry(a.config), selector: ours(t).String()}
}

// Launch implements fleet.Provider: a suspended Job, then the Secret that it owns with
// the token or the payload, then the Job goes. A launch that was cut off is found suspended.
func (p *provider) Launch(ctx context.Context, o fleet.Order) error {
	if o.Reused && p.cfg.User < 0 {
		return &fleet.RefusedError{Cause: fleet.CausePolicy, Message: "a Pod that may run as root is not reused"}
	}
	if err := o.TooLarge(payloadLimit, "a Secret of Kubernetes"); err != nil {
		return err
	}
	made := job(&p.cfg, p.t, o)
	if closed(o) {
		if why := p.cfg.lacksNetwork(); why != "" {
			return &fleet.RefusedError{Cause: fleet.CausePolicy, Message: "network none: " + why}
		}
		hosts, err := aliases(ctx, o.URL)
		if err != nil {
			return err
		}
		made.Spec.Template.Spec.HostAliases = hosts
	}
	jobs := p.client.BatchV1().Jobs(p.namespace)
	j, err := jobs.Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		j, err = p.own(ctx, o.Unit)
		if err == nil && j == nil {
			err = &fleet.RefusedError{Cause: fleet.CauseStart, Message: fmt.Sprintf("a Job %s is there already, and is not this coordinator's", o.Unit)}
		}
	}
	if err != nil {
		return p.unmade("create the Job", err)
	}
	if j.Spec.Suspend == nil || !*j.Spec.Suspend {
		return nil
	}
	doc, err := o.Document(ctx)
	if err != nil {
		return err
	}
	secrets := p.client.CoreV1().Secrets(p.namespace)
	_, err = secrets.Create(ctx, secret(j, &o, doc), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // of the launch that was cut off; its token is dead
		err = secrets.Delete(ctx, j.Name, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			_, err = secrets.Create(ctx, secret(j, &o, doc), metav1.CreateOptions{})
		}
	}
	if err != nil {
		return p.unmade("create the Secret of the unit", err)
	}
	if closed(o) { // before there is a Pod
		if err := p.closeNetwork(ctx, j); err != nil {
			return p.unmade("create the NetworkPolicy", err)
		}
	}
	_, err = jobs.Patch(ctx, j.Name, types.StrategicMergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{})
	return p.err("start the Job", err)
}

// closeNetwork makes the network policy of a unit. One that is there is of the launch that
// was cut off: Jobs of one name that follow each other take theirs with them.
func (p *provider) closeNetwork(ctx context.Context, j *batchv1.Job) error {
	made, err := policy(&p.cfg, j)
	if err != nil {
		return err
	}
	_, err = p.client.NetworkingV1().NetworkPolicies(p.namespace).Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// own is a Job of the target; nil if there is none of that name, or another's.
func (p *provider) own(ctx context.Context, unit string) (*batchv1.Job, error) {
	j, err := p.client.BatchV1().Jobs(p.namespace).Get(ctx, unit, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for k, v := range ours(p.t) {
		if j.Labels[k] != v {
			return nil, nil
		}
	}
	return j, nil
}

// Terminate implements fleet.Provider. The Job is seen until its Pod is gone.
func (p *provider) Terminate(ctx context.Context, unit string) error {
	j, err := p.own(ctx, unit)
	if err != nil {
		return p.err("find the Job", err)
	}
	if j != nil {
		err := p.client.BatchV1().Jobs(p.namespace).Delete(ctx, unit, metav1.DeleteOptions{
			PropagationPolicy: ptr(metav1.DeletePropagationForeground), Preconditions: metav1.NewUIDPreconditions(string(j.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return p.err("delete the Job", err)
		}
		return nil
	}
	// A Pod whose Job somebody else has removed.
	err = p.client.CoreV1().Pods(p.namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: p.selector + "," + labelUnit + "=" + unit})
	return p.err("delete the Pods", err)
}

// Forget implements fleet.Provider. A second Pod of the Job waits for the Secret and never
// has it.
func (p *provider) Forget(ctx context.Context, unit string) error {
	j, err := p.own(ctx, unit)
	if err != nil || j == nil {
		return p.err("find the Job", err)
	}
	err = p.client.CoreV1().Secrets(p.namespace).Delete(ctx, unit, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return p.err("delete the Secret of the unit", err)
}

// tailLines bounds what of a unit's output is read to get its end.
const tailLines = 2000

// Output implements fleet.Provider.
func (p *provider) Output(ctx context.Context, unit string, limit int64) ([]byte, error) {
	pods, err := p.client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: p.selector + "," + labelUnit + "=" + unit})
	if err != nil {
		return nil, p.err("find the Pod", err)
	}
	// Of two Pods of one unit, either may have the result.
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	var all []byte
	var failed error
	for i := range pods.Items {
		out, err := p.output(ctx, pods.Items[i].Name, limit)
		failed = errors.Join(failed, err)
		all = append(all, out...)
	}
	return all[max(0, int64(len(all))-limit):], failed
}

func (p *provider) output(ctx context.Context, pod string, limit int64) ([]byte, error) {
	logs, err := p.client.CoreV1().Pods(p.namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, TailLines: ptr(int64(tailLines))}).Stream(ctx)
	if noOutput(err) {
		return nil, nil
	}
	if err != nil {
		return nil, p.err("read the output", err)
	}
	defer logs.Close()
	out, err := tail(logs, limit)
	return out, p.err("read the output", err)
}

// noOutput says that a Pod has no container yet, or no more. A kubelet that does not know
// the Pod (404), as for a moment after its restart, or does not reach what runs its
// containers, says nothing of that; a Pod that is gone is not listed the next time.
func noOutput(err error) bool {
	return apierrors.IsBadRequest(err) && (!strings.Contains(err.Error(), "rpc error") || strings.Contains(err.Error(), "code = NotFound"))
}

// tail is the end of a stream.
func tail(r io.Reader, limit int64) ([]byte, error) {
	var kept []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Read(chunk)
		kept = append(kept, chunk[:n]...)
		if extra := int64(len(kept)) - limit; extra > 0 {
			kept = append(kept[:0], kept[extra:]...)
		}
		if errors.Is(err, io.EOF) {
			return kept, nil
		}
		if err != nil {
			return kept, err
		}
	}
}

// err says what an error of the cluster means; nil stays nil.
func (p *provider) err(action string, err error) error {
	var refused *fleet.RefusedError
	switch {
	case err == nil, errors.As(err, &refused):
		return err
	case apierrors.IsUnauthorized(err) && p.expires.Before(time.Now()) && !p.expires.IsZero():
		// The cluster does not say so.
		return &fleet.AuthError{Credential: p.credential, Err: fmt.Errorf("%w: its client certificate expired at %s", err, p.expires.UTC().Format(time.RFC3339))}
	case apierrors.IsUnauthorized(err), denied(err):
		return &fleet.AuthError{Credential: p.credential, Err: err}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return &fleet.RefusedError{Cause: fleet.CauseStart, Message: err.Error()}
	case overQuota(err):
		return &fleet.QuotaError{Message: err.Error()}
	case apierrors.IsForbidden(err):
		return &fleet.RefusedError{Cause: fleet.CausePolicy, Message: err.Error()}
	}
	if code := status(err); code >= 300 && code < 400 {
		return fmt.Errorf("kube: %s: what answers sends elsewhere (%d), which is not followed: it would take the credential along", action, code)
	}
	if foreign(err) {
		return fmt.Errorf("kube: %s: what answers is no Kubernetes API server", action)
	}
	return fmt.Errorf("kube: %s: %w", action, err)
}

// unmade is err for what was to be created. Its namespace may not be there, which no waiting
// mends.
func (p *provider) unmade(action string, err error) error {
	var answer apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &answer) {
		if of := answer.Status().Details; of != nil && of.Kind == "namespaces" {
			return &fleet.RefusedError{Cause: fleet.CauseStart, Message: err.Error()}
		}
	}
	return p.err(action, err)
}

// status is the HTTP code of an answer that was an error; 0: there was none.
func status(err error) int {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return int(answer.Status().Code)
	}
	return 0
}

// foreign says that an error comes of an answer that Kubernetes does not give, and may
// quote it.
func foreign(err error) bool {
	return runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) || runtime.IsNotRegisteredError(err) || strings.Contains(err.Error(), "json parse error")
}

// overQuota says that a quota of the namespace is used up.
func overQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "is forbidden: exceeded quota: ")
}

// unauthorized are the words of an API server whose authorization refuses a request.
// Policies are asked after it, forbid with the same code, and say what they like.
// https://github.com/kubernetes/kubernetes/blob/v1.34.4/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go
var unauthorized = regexp.MustCompile(`^([^ ]+( "[^"]*")? is )?forbidden: User "(\\.|[^"\\])*" cannot `)

// denied says that the credential is known and may not do this.
func denied(err error) bool {
	var answer apierrors.APIStatus // what is around it has words of its own
	return apierrors.IsForbidden(err) && errors.As(err, &answer) && unauthorized.MatchString(answer.Status().Message)
}
