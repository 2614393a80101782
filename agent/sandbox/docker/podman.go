package docker

import (
	"context"
	"strings"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/mount"

	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
)

// Podman speaks Docker's API, and says of some requests that it carries them out, but does not, or refuses what it can do
// when it is said in other words. This file has those words.

// askPodman corrects what Podman says in Docker's words by what it says in its own. Of another engine it does nothing.
func (e *engine) askPodman(ctx context.Context, version types.Version) error {
	for _, c := range version.Components {
		v, ok := endpoint.PodmanDetails(c.Name, c.Details)
		if !ok {
			continue
		}
		p, err := endpoint.AskPodman(ctx, e.api.HTTPClient(), e.base, v)
		if err != nil {
			return err
		}
		e.podman = true
		if p.Rootless && !e.secured("rootless") {
			e.info.SecurityOptions = append(e.info.SecurityOptions, "name=rootless")
		}
		e.info.MemoryLimit, e.info.SwapLimit = p.Limits("memory"), e.info.SwapLimit && p.Limits("memory")
		e.info.PidsLimit = p.Limits("pids")
		e.info.CPUCfsQuota, e.info.CPUShares = p.Limits("cpu"), p.Limits("cpu")
	}
	return nil
}

// podmanMounts says mounts in other words. Podman writes a mount down as a line of CSV without quoting it and reads that, so
// that a comma, a quote or a line's end in a path breaks it: binds are said as such, which only a colon breaks. Into a tmpfs
// it copies what lies below, unless told not to: in our case what is to be hidden. And over a read-only root it puts
// directories that can be written, unless there is something.
func (p *planned) podmanMounts() error {
	if p.host.ReadonlyRootfs {
		p.host.Tmpfs["/run"], p.host.Tmpfs["/var/tmp"] = "ro", "ro"
	}
	var kept []mount.Mount
	for _, m := range p.host.Mounts {
		colon := strings.Contains(m.Source+m.Target, ":")
		switch {
		case m.Type == mount.TypeTmpfs && colon:
			return refuse("hidden path", m.Target, "Podman puts nothing over a directory that has a colon in its path")
		case m.Type == mount.TypeTmpfs:
			p.host.Tmpfs[m.Target] = "ro,notmpcopyup"
		case !colon:
			bind := m.Source + ":" + m.Target
			if m.ReadOnly {
				bind += ":ro"
			}
			p.host.Binds = append(p.host.Binds, bind)
		case strings.ContainsAny(m.Source+m.Target, ",\"\r\n"):
			return refuse("mount", m.Target, "Podman mounts no path that has a colon in it beside a comma, a quote or a line's end")
		default:
			kept = append(kept, m)
		}
	}
	p.host.Mounts = kept
	return nil
}
