package kube

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/everdict/everdict/coordinator/fleet"
)

// failedCreate selects the events that say why a Job got no Pod: a quota, a policy.
var failedCreate = fields.Set{"involvedObject.kind": "Job", "reason": "FailedCreate"}.String()

// watched is what the cluster has for the target, as its watches tell.
type watched struct{ jobs, pods, events cache.Store }

// Watch implements fleet.Provider.
func (p *provider) Watch(ctx context.Context, changed func()) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	units := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithNamespace(p.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = p.selector }))
	events := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithNamespace(p.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = failedCreate }))
	defer units.Shutdown()
	defer events.Shutdown()
	defer stop(nil) // first: Shutdown waits for what it ends
	all := []cache.SharedIndexInformer{units.Batch().V1().Jobs().Informer(), units.Core().V1().Pods().Informer(), events.Core().V1().Events().Informer()}
	tell := func(any) { changed() }
	for _, i := range all {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, _ any) { changed() }}); err != nil {
			return fmt.Errorf("kube: watch: %w", err)
		}
		err := i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			p.cfg.Log.Debug("watch ended, trying again", "runtime", p.t.Spec.ID, "err", err)
			if auth, ok := p.err("watch", err).(*fleet.AuthError); ok {
				stop(auth) // trying again with the same credential is of no use
			}
		})
		if err != nil {
			return fmt.Errorf("kube: watch: %w", err)
		}
	}
	units.Start(ctx.Done())
	events.Start(ctx.Done())
	if cache.WaitForCacheSync(ctx.Done(), all[0].HasSynced, all[1].HasSynced, all[2].HasSynced) {
		w := &watched{all[0].GetStore(), all[1].GetStore(), all[2].GetStore()}
		p.watched.Store(w)
		changed()
		p.followNodes(ctx, func() []corev1.Pod { return listed[corev1.Pod](w.pods) }, changed)
	}
	<-ctx.Done()
	p.watched.Store(nil)
	if auth, ok := context.Cause(ctx).(*fleet.AuthError); ok {
		return auth
	}
	return nil
}

// List implements fleet.Provider.
func (p *provider) List(ctx context.Context) ([]fleet.Unit, error) {
	if w := p.watched.Load(); w != nil {
		var known doubts
		if d := p.doubts.Load(); d != nil {
			known = *d
		}
		return units(listed[batchv1.Job](w.jobs), listed[corev1.Pod](w.pods), listed[corev1.Event](w.events), known), nil
	}
	o := metav1.ListOptions{LabelSelector: p.selector}
	jobs, err := p.client.BatchV1().Jobs(p.namespace).List(ctx, o)
	if err != nil {
		return nil, p.err("list Jobs", err)
	}
	pods, err := p.client.CoreV1().Pods(p.namespace).List(ctx, o)
	if err != nil {
		return nil, p.err("list Pods", err)
	}
	events, err := p.client.CoreV1().Events(p.namespace).List(ctx, metav1.ListOptions{FieldSelector: failedCreate})
	if err != nil {
		return nil, p.err("list events", err)
	}
	return units(jobs.Items, pods.Items, events.Items, nil), nil
}

// listed are copies of what a store has: the informers' own objects are shared.
func listed[T any](s cache.Store) []T {
	items := s.List()
	list := make([]T, 0, len(items))
	for _, i := range items {
		list = append(list, *i.(*T))
	}
	return list
}
