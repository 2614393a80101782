package deploy_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"os"
)

// kinds are those that manifests may have, with the type that each is decoded into.
var kinds = map[string]func() any{
	"v1 Service":                               func() any { return new(corev1.Service) },
	"v1 ServiceAccount":                        func() any { return new(corev1.ServiceAccount) },
	"v1 Secret":                                func() any { return new(corev1.Secret) },
	"apps/v1 StatefulSet":                      func() any { return new(appsv1.StatefulSet) },
	"networking.k8s.io/v1 NetworkPolicy":       func() any { return new(networkingv1.NetworkPolicy) },
	"rbac.authorization.k8s.io/v1 Role":        func() any { return new(rbacv1.Role) },
	"rbac.authorization.k8s.io/v1 RoleBinding": func() any { return new(rbacv1.RoleBinding) },
}

// render builds a kustomization and decodes what comes strictly: a key that the API does
// not have is a fault.
func render(t *testing.T, dir string) []any {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}
	var all []any
	for _, r := range built.Resources() {
		doc, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, manifest(t, dir, doc))
	}
	return all
}

func manifest(t *testing.T, where string, doc []byte) any {
	t.Helper()
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(doc, &head); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	make := kinds[head.APIVersion+" "+head.Kind]
	if make == nil {
		t.Fatalf("%s has a %s of %s, which this test does not know", where, head.Kind, head.APIVersion)
	}
	v := make()
	if err := yaml.UnmarshalStrict(doc, v); err != nil {
		t.Fatalf("%s: %s: %v", where, head.Kind, err)
	}
	return v
}

// only is the one manifest of a type.
func only[T any](t *testing.T, all []any) *T {
	t.Helper()
	var found []*T
	for _, v := range all {
		if one, ok := v.(*T); ok {
			found = append(found, one)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d manifests are a %v, want one", len(found), reflect.TypeFor[T]())
	}
	return found[0]
}

// restricted checks a Pod against what the restricted Pod security standard wants, and
// that it gets no token of the API unless it launches.
func restricted(t *testing.T, pod *corev1.PodSpec, launches bool) {
	t.Helper()
	rule := func(ok bool, what string) {
		t.Helper()
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	s := pod.SecurityContext
	rule(s != nil && s.RunAsNonRoot != nil && *s.RunAsNonRoot && s.RunAsUser != nil && *s.RunAsUser > 0, "it runs as a user that is not root")
	rule(s != nil && s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "seccomp is RuntimeDefault")
	rule(!pod.HostNetwork && !pod.HostPID && !pod.HostIPC, "it shares nothing with its host")
	automount := pod.AutomountServiceAccountToken
	rule(launches == (pod.ServiceAccountName != "") && (launches || automount != nil && !*automount), "only what launches has a token of the API")
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		cs := c.SecurityContext
		rule(cs != nil && cs.AllowPrivilegeEscalation != nil && !*cs.AllowPrivilegeEscalation, "no privilege escalation")
		rule(cs != nil && cs.Capabilities != nil && slices.Equal(cs.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(cs.Capabilities.Add) == 0, "no capabilities")
		rule(cs == nil || cs.Privileged == nil, "not privileged")
		rule(!c.Resources.Limits.Memory().IsZero() && !c.Resources.Requests.Memory().IsZero(), "its memory is bounded")
		rule(c.Image == "registry.example/everdict:1", "its image is what the kustomization says, not "+c.Image)
	}
	for _, v := range pod.Volumes {
		rule(v.HostPath == nil, "nothing of the host is mounted")
	}
}

// mounted says whether a path of a container lies on a mounted volume.
func mounted(c *corev1.Container, path string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(path+"/", m.MountPath+"/") })
}

func TestKubernetesCoordinator(t *testing.T) {
	t.Parallel()
	all := render(t, "kubernetes/coordinator")
	set, service := only[appsv1.StatefulSet](t, all), only[corev1.Service](t, all)
	pod := &set.Spec.Template.Spec
	restricted(t, pod, true)
	c := &pod.Containers[0]
	got := ask(t, c.Args)
	if got.Command != "coordinator" || !got.RequireAuth || !mounted(c, got.DataDir) || *set.Spec.Replicas != 1 {
		t.Errorf("%d replicas of %+v, want one coordinator that asks for keys and keeps its data on a volume", *set.Spec.Replicas, got)
	}
	if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("its own file system can be written to")
	}
	_, port, _ := strings.Cut(got.Listen, ":")
	if len(c.Ports) != 1 || port != "8787" || c.Ports[0].ContainerPort != 8787 || c.Ports[0].Name != service.Spec.Ports[0].TargetPort.StrVal {
		t.Errorf("it listens on %s, its port is %+v and the service's %+v", got.Listen, c.Ports, service.Spec.Ports)
	}
	if want := "http://" + service.Name + ":8787"; got.RunnerURL != want {
		t.Errorf("runners find it at %s, want %s", got.RunnerURL, want)
	}
	labels := set.Spec.Template.Labels
	if !cmp.Equal(service.Spec.Selector, labels) || !cmp.Equal(set.Spec.Selector.MatchLabels, labels) || set.Spec.ServiceName != service.Name ||
		!cmp.Equal(only[networkingv1.NetworkPolicy](t, all).Spec.PodSelector.MatchLabels, labels) {
		t.Error("service, set and network policy do not select the same Pods")
	}
	for name, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe, "/healthz ": c.StartupProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != strings.TrimSpace(name) || probe.HTTPGet.Port.StrVal != c.Ports[0].Name {
			t.Errorf("probe of %s: %+v", name, probe)
		}
	}
	role, binding, account := only[rbacv1.Role](t, all), only[rbacv1.RoleBinding](t, all), only[corev1.ServiceAccount](t, all)
	if pod.ServiceAccountName != account.Name || binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 || binding.Subjects[0].Name != account.Name {
		t.Errorf("the Pod has the account %s, and %+v binds %s to it", pod.ServiceAccountName, binding.Subjects, binding.RoleRef.Name)
	}
	// The end-to-end tests launch with the rules of launcher.yaml: these are the same.
	if diff := cmp.Diff(only[rbacv1.Role](t, launcher(t)).Rules, role.Rules); diff != "" {
		t.Errorf("what it may do is not what launcher.yaml permits (-launcher +coordinator):\n%s", diff)
	}
	for _, rule := range role.Rules {
		if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") {
			t.Errorf("it may do anything: %+v", rule)
		}
		if slices.Contains(rule.Resources, "secrets") && slices.ContainsFunc(rule.Verbs, func(v string) bool { return v == "get" || v == "list" || v == "watch" }) {
			t.Errorf("it may read secrets: %v", rule.Verbs)
		}
	}
}

// launcher is what a coordinator outside of the cluster is given.
func launcher(t *testing.T) []any {
	t.Helper()
	doc, err := os.ReadFile("kubernetes/launcher.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	for part := range bytes.SplitSeq(doc, []byte("\n---\n")) {
		all = append(all, manifest(t, "launcher.yaml", part))
	}
	return all
}

func TestKubernetesPool(t *testing.T) {
	t.Parallel()
	all := render(t, "kubernetes/pool")
	set := only[appsv1.StatefulSet](t, all)
	pod := &set.Spec.Template.Spec
	restricted(t, pod, false)
	c := &pod.Containers[0]
	got := ask(t, c.Args)
	file, isFile := strings.CutPrefix(got.PoolToken, "file:")
	if got.Command != "runner" || !isFile || !mounted(c, file) {
		t.Errorf("%+v: want a runner whose token is a file on a volume", got)
	}
	if !mounted(c, got.StateDir) || !mounted(c, got.WorkDir) || len(set.Spec.VolumeClaimTemplates) != 1 || set.Spec.VolumeClaimTemplates[0].Name != c.VolumeMounts[0].Name {
		t.Errorf("what it keeps is in %s and %s, mounted are %+v", got.StateDir, got.WorkDir, c.VolumeMounts)
	}
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < got.Drain+10*time.Second {
		t.Errorf("it drains for %v, and is killed after %v", got.Drain, grace)
	}
	if want := ask(t, only[appsv1.StatefulSet](t, render(t, "kubernetes/coordinator")).Spec.Template.Spec.Containers[0].Args).RunnerURL; got.APIURL != want {
		t.Errorf("it looks for the coordinator at %s, which is at %s", got.APIURL, want)
	}
	policy := only[networkingv1.NetworkPolicy](t, all)
	if len(policy.Spec.Ingress) != 0 || !slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Errorf("the policy lets in %+v", policy.Spec.Ingress)
	}
}
