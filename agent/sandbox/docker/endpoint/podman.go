package endpoint

import (
	"context"
	"net/http"
	"slices"
)

// Podman is what Podman says of itself in its own API. In Docker's it tells of the machine's cgroup controllers, not of
// those that a user's containers get, and before 4.4 not that it is rootless.
type Podman struct {
	Rootless bool
	// Controllers are the cgroup controllers that limit its containers.
	Controllers []string
}

// podmanComponent is Podman's name among the components of /version, and minAPI the detail that says how to ask it.
const (
	podmanComponent = "Podman Engine"
	minAPI          = "MinAPIVersion"
)

// PodmanDetails finds Podman's own version of its API among the components of an engine's /version.
func PodmanDetails(component string, details map[string]string) (version string, ok bool) {
	return details[minAPI], component == podmanComponent
}

// AskPodman has Podman say what it is. The client and the base of the API are those of a Candidate; version comes from
// PodmanDetails.
func AskPodman(ctx context.Context, client *http.Client, base, version string) (Podman, error) {
	var info struct {
		Host struct {
			CgroupControllers []string
			Security          struct{ Rootless bool }
		}
	}
	if err := get(ctx, client, base+"/v"+version+"/libpod/info", &info); err != nil {
		return Podman{}, err
	}
	return Podman{Rootless: info.Host.Security.Rootless, Controllers: info.Host.CgroupControllers}, nil
}

// Limits reports whether its containers can be limited by a cgroup controller.
func (p Podman) Limits(controller string) bool { return slices.Contains(p.Controllers, controller) }
