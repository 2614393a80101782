package docker

import (
	"slices"
	"strings"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/mount"
)

// Podman speaks Docker's API, and says of some requests that it carries them out, but does not, or refuses what it can do
// when it is said in other words. This file has those words.

func isPodman(v types.Version) bool {
	return slices.ContainsFunc(v.Components, func(c types.ComponentVersion) bool { return c.Name == "Podman Engine" })
}

// podmanMounts says mounts in other words. Podman writes a mount down as a list with commas and reads that: one whose path
// has a comma is said as a bind, which is written with colons. Into a tmpfs it copies what lies below, unless told not to:
// in our case what is to be hidden.
func (p *planned) podmanMounts() error {
	var kept []mount.Mount
	for _, m := range p.host.Mounts {
		paths := m.Source + m.Target
		switch {
		case m.Type == mount.TypeTmpfs && strings.Contains(paths, ":"):
			return refuse("hidden path", m.Target, "Podman hides no directory that has a colon in its path")
		case m.Type == mount.TypeTmpfs:
			if p.host.Tmpfs == nil {
				p.host.Tmpfs = make(map[string]string)
			}
			p.host.Tmpfs[m.Target] = "ro,notmpcopyup"
		case !strings.Contains(paths, ","):
			kept = append(kept, m)
		case strings.Contains(paths, ":"):
			return refuse("mount", m.Target, "Podman mounts no path that has a comma and a colon in it")
		default:
			bind := m.Source + ":" + m.Target
			if m.ReadOnly {
				bind += ":ro"
			}
			p.host.Binds = append(p.host.Binds, bind)
		}
	}
	p.host.Mounts = kept
	return nil
}
