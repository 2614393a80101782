package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// Labels of everything that is ours. A pool's label is a digest, because the names of
// workspaces and runtimes need not be labels; the annotations have them.
const (
	labelManaged     = "app.kubernetes.io/managed-by"
	labelCoordinator = "everdict.dev/coordinator"
	labelPool        = "everdict.dev/pool"
	labelUnit        = "everdict.dev/unit"
	labelAttempt     = "everdict.dev/attempt"
	noteRun          = "everdict.dev/run"
	noteWorkspace    = "everdict.dev/workspace"
	noteRuntime      = "everdict.dev/runtime"
	noteOrder        = "everdict.dev/note"
	managedBy        = "everdict"
)

const (
	// container is the one that runs the runner.
	container = "runner"
	// keepFinished is how long a finished Job stays if no coordinator removes it, with
	// the result that its runner could not deliver.
	keepFinished = int32(3600)
	// terminationGrace is what a runner has between SIGTERM and SIGKILL; it drains for
	// drainTimeout of it.
	terminationGrace = int64(30)
	drainTimeout     = 15 * time.Second

	tokenDir  = "/var/run/everdict"
	tokenKey  = "token"
	homeDir   = "/everdict"
	binDir    = "/everdict-bin"
	runnerBin = "job-runner"

	// payloadVolume is where the runner finds its payload and removes it; the Secret that it
	// comes from is in its init container alone.
	payloadVolume = "payload"
	payloadDir    = "/var/run/everdict-payload"
	payloadKey    = "payload.json"

	gpuResource = corev1.ResourceName("nvidia.com/gpu")
)

// poolLabel is the label of a runtime of a workspace.
func poolLabel(t fleet.Target) string {
	sum := sha256.Sum256([]byte(t.Workspace + "\x00" + t.Spec.ID))
	return hex.EncodeToString(sum[:12])
}

// ours selects what belongs to a target.
func ours(t fleet.Target) labels.Set {
	return labels.Set{labelManaged: managedBy, labelCoordinator: t.Coordinator, labelPool: poolLabel(t)}
}

// job is the Job of a unit, suspended: its token has to be there first.
func job(cfg *Config, t fleet.Target, o fleet.Order) *batchv1.Job {
	set := ours(t)
	set[labelUnit], set[labelAttempt] = o.Unit, strconv.FormatInt(o.Attempt, 10)
	meta := metav1.ObjectMeta{Name: o.Unit, Labels: set,
		Annotations: map[string]string{noteRun: o.Job, noteWorkspace: t.Workspace, noteRuntime: t.Spec.ID}}
	if o.Note != "" {
		meta.Annotations[noteOrder] = o.Note
	}
	template := corev1.PodTemplateSpec{ObjectMeta: *meta.DeepCopy(), Spec: pod(cfg, t, o)}
	template.Name = ""
	deadline := max(1, int64(o.Deadline/time.Second))
	replace := batchv1.Failed // never two Pods of one unit at a time
	j := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
		BackoffLimit: ptr(int32(0)), Completions: ptr(int32(1)), Parallelism: ptr(int32(1)),
		TTLSecondsAfterFinished: ptr(keepFinished), PodReplacementPolicy: &replace,
		Suspend: ptr(true), Template: template,
	}}
	if o.Deadline > 0 {
		j.Spec.ActiveDeadlineSeconds = &deadline
	}
	return j
}

func pod(cfg *Config, t fleet.Target, o fleet.Order) corev1.PodSpec {
	spec := corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr(false),
		EnableServiceLinks:           ptr(false),
		// A unit has a grace of its own, and none where nothing runs any more.
		TerminationGracePeriodSeconds: ptr(terminationGrace),
		HostNetwork:                   cfg.HostNetwork,
		NodeSelector:                  t.Spec.NodeSelector,
		Tolerations:                   tolerations(t.Spec.Tolerations),
		SecurityContext:               &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Volumes: []corev1.Volume{
			{Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: o.Unit, DefaultMode: ptr(secretMode(cfg))}}},
			{Name: "everdict", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		Containers: []corev1.Container{{
			Name: container, Image: t.Spec.Image, ImagePullPolicy: corev1.PullPolicy(cfg.ImagePullPolicy),
			Env: []corev1.EnvVar{
				{Name: "EVERDICT_API_URL", Value: o.URL},
				{Name: "EVERDICT_JOIN_TOKEN_FILE", Value: tokenDir + "/" + tokenKey},
				{Name: "EVERDICT_DRAIN_TIMEOUT", Value: drainTimeout.String()},
				{Name: "EVERDICT_RUNNER_DIR", Value: homeDir},
				{Name: "HOME", Value: homeDir},
			},
			Resources: resources(t.Spec, o),
			VolumeMounts: []corev1.VolumeMount{
				{Name: "token", MountPath: tokenDir, ReadOnly: true},
				{Name: "everdict", MountPath: homeDir},
				{Name: "tmp", MountPath: "/tmp"},
			},
			SecurityContext: restricted(),
		}},
	}
	if t.Spec.RuntimeClass != "" {
		spec.RuntimeClassName = &t.Spec.RuntimeClass
	}
	if cfg.User >= 0 {
		s := spec.SecurityContext
		s.RunAsNonRoot, s.RunAsUser, s.RunAsGroup, s.FSGroup = ptr(true), &cfg.User, &cfg.User, &cfg.User
	}
	c := &spec.Containers[0]
	for _, name := range slices.Sorted(maps.Keys(o.Env)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: o.Env[name]})
	}
	if closed(o) {
		c.Env = append(c.Env, corev1.EnvVar{Name: networkNone, Value: protocol.NetworkNone})
	}
	if o.Reused {
		c.SecurityContext.ReadOnlyRootFilesystem = ptr(true)
	}
	if o.Image != "" {
		carry(&spec, cfg, t, o.Image)
	}
	if o.Payload != nil {
		give(&spec, cfg, t)
	}
	return spec
}

// secretMode is that of the file with the token or the payload, which is root's: whoever the
// runner runs as has to read it, and no group is set up for an image's own user.
func secretMode(cfg *Config) int32 {
	if cfg.User < 0 {
		return 0o444
	}
	return 0o440
}

// give makes the Pod's document a payload. What is in a Secret cannot be removed from
// where it is mounted, and the job is not to find it: an init container copies it into
// memory, from where the runner takes it.
func give(spec *corev1.PodSpec, cfg *Config, t fleet.Target) {
	mount := corev1.VolumeMount{Name: payloadVolume, MountPath: payloadDir}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: payloadVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(2*payloadLimit, resource.BinarySI)},
	}})
	c := &spec.Containers[0]
	token := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "token" })
	spec.InitContainers = append(spec.InitContainers, corev1.Container{
		Name: "payload", Image: t.Spec.Image, ImagePullPolicy: corev1.PullPolicy(cfg.ImagePullPolicy),
		Args:         []string{"copy", tokenDir + "/" + payloadKey, payloadDir + "/" + payloadKey},
		VolumeMounts: []corev1.VolumeMount{c.VolumeMounts[token], mount}, SecurityContext: restricted(), Resources: c.Resources,
	})
	c.VolumeMounts[token] = mount
	for i := range c.Env {
		if c.Env[i].Name == "EVERDICT_JOIN_TOKEN_FILE" {
			c.Env[i] = corev1.EnvVar{Name: "EVERDICT_PAYLOAD_FILE", Value: payloadDir + "/" + payloadKey}
		}
	}
}

// carry makes the job's image the Pod's: the runner, one static program, is brought
// into it from the runtime's image.
func carry(spec *corev1.PodSpec, cfg *Config, t fleet.Target, image string) {
	mount := corev1.VolumeMount{Name: "bin", MountPath: binDir}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "bin", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	spec.InitContainers = []corev1.Container{{
		Name: "install", Image: t.Spec.Image, ImagePullPolicy: corev1.PullPolicy(cfg.ImagePullPolicy), Args: []string{"install", binDir + "/" + runnerBin},
		VolumeMounts: []corev1.VolumeMount{mount}, SecurityContext: restricted(), Resources: spec.Containers[0].Resources,
	}}
	c := &spec.Containers[0]
	c.Image, c.Command = image, []string{binDir + "/" + runnerBin}
	mount.ReadOnly = true
	c.VolumeMounts = append(c.VolumeMounts, mount)
	c.Env = append(c.Env, corev1.EnvVar{Name: "EVERDICT_IMAGE", Value: image})
}

func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// resources are what the job declares, as requests and as limits.
func resources(spec *protocol.RuntimeSpec, o fleet.Order) corev1.ResourceRequirements {
	list := corev1.ResourceList{}
	if o.CPU > 0 {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(o.CPU), resource.DecimalSI)
	}
	if o.MemoryMB > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(int64(o.MemoryMB)<<20, resource.BinarySI)
	}
	gpu := o.GPU
	if gpu == 0 && spec.GPU != nil {
		gpu = *spec.GPU
	}
	if gpu > 0 {
		list[gpuResource] = *resource.NewQuantity(int64(gpu), resource.DecimalSI)
	}
	if len(list) == 0 {
		return corev1.ResourceRequirements{}
	}
	return corev1.ResourceRequirements{Requests: list, Limits: list}
}

func tolerations(of []protocol.Toleration) []corev1.Toleration {
	var all []corev1.Toleration
	for _, t := range of {
		all = append(all, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return all
}

// payloadLimit is what of a Secret's 1 MiB is the payload's.
// https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size
const payloadLimit = 1<<20 - 4<<10

// secret is the one with the token or the payload of a unit, which goes when its Job does.
func secret(j *batchv1.Job, o *fleet.Order, doc []byte) *corev1.Secret {
	key := tokenKey
	if o.Payload != nil {
		key = payloadKey
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name, Labels: j.Labels, OwnerReferences: ownedBy(j)},
		// A payload is to be gone when it is removed: nodes keep what is immutable.
		Immutable: ptr(o.Payload == nil),
		Data:      map[string][]byte{key: doc},
	}
}

// ownedBy makes something go when a Job does.
func ownedBy(j *batchv1.Job) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: j.Name, UID: j.UID}}
}

func ptr[T any](v T) *T { return &v }
