//go:build kube

package kube

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// TestManifests applies what deploy/kubernetes renders to, as a dry run that the API server
// validates strictly, and lets it admit the Pods to a namespace that enforces the
// restricted standard.
func TestManifests(t *testing.T) {
	t.Parallel()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig(t)))
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetesClient(t)
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	ns := namespace(t, false)
	// A Pod is admitted with its account: the one that the manifests make is there in a dry run only.
	_, err = client.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "everdict-coordinator"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"coordinator", "pool"} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../deploy/kubernetes/"+dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range built.Resources() {
			doc, err := r.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			o := new(unstructured.Unstructured)
			if err := o.UnmarshalJSON(doc); err != nil {
				t.Fatal(err)
			}
			mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
			if err != nil {
				t.Fatal(err)
			}
			if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
				t.Errorf("%s %s is not of a namespace: whoever deploys needs rights over the whole cluster", o.GetKind(), o.GetName())
			}
			_, err = dyn.Resource(mapping.Resource).Namespace(ns).Patch(t.Context(), o.GetName(), types.ApplyPatchType, doc, metav1.PatchOptions{
				FieldManager: "everdict-test", FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
			})
			if err != nil {
				t.Errorf("apply %s %s of %s: %v", o.GetKind(), o.GetName(), dir, err)
			}
			if o.GetKind() != "StatefulSet" {
				continue
			}
			var set appsv1.StatefulSet
			d := json.NewDecoder(bytes.NewReader(doc))
			d.DisallowUnknownFields()
			if err := d.Decode(&set); err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
			pod.Name = strings.ToLower(dir)
			for _, claim := range set.Spec.VolumeClaimTemplates { // as the set's controller does
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name},
				}})
			}
			if _, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("the Pod of %s is not admitted: %v", dir, err)
			}
		}
	}
}
