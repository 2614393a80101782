package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"

	"github.com/everdict/everdict/agent/sandbox"
)

// Sweep implements sandbox.Driver. It removes containers, networks and volumes with our labels that nobody holds: of a
// runner that is known to have ended at once, of any other when they have not been running for the grace. A container
// ends with its runner's connection, so one that runs has a living runner.
func (d *Driver) Sweep(ctx context.Context, keep func(attempt string) bool) ([]sandbox.Swept, error) {
	e, err := d.found(ctx)
	if err != nil {
		return nil, err
	}
	s := &sweep{d: d, e: e, keep: keep, label: filters.NewArgs(filters.Arg("label", LabelAttempt))}
	err = errors.Join(s.containers(ctx), s.networks(ctx), s.volumes(ctx))
	slices.SortFunc(s.swept, func(a, b sandbox.Swept) int {
		return cmp.Or(strings.Compare(a.Attempt, b.Attempt), strings.Compare(a.Kind, b.Kind))
	})
	return s.swept, err
}

type sweep struct {
	d     *Driver
	e     *engine
	keep  func(string) bool
	label filters.Args
	swept []sandbox.Swept
}

// held reports whether somebody still wants what is labelled so; idle is since when it has not been used. keep is asked
// last: what it is asked about would go.
func (s *sweep) held(labels map[string]string, idle time.Time) bool {
	attempt, by := labels[LabelAttempt], owner(labels[LabelRunner])
	switch {
	case by == s.d.owner && s.d.holds(attempt), !by.gone() && time.Since(idle) < s.d.cfg.SweepGrace:
		return true
	}
	return s.keep != nil && s.keep(attempt)
}

func (s *sweep) note(labels map[string]string, kind string, processes int) {
	s.swept = append(s.swept, sandbox.Swept{Attempt: labels[LabelAttempt], Kind: kind, Processes: processes})
}

func (s *sweep) containers(ctx context.Context) error {
	list, err := s.e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: s.label})
	if err != nil {
		return fmt.Errorf("docker: sweep: list containers: %w", err)
	}
	var errs []error
	for _, c := range list {
		idle := time.Unix(c.Created, 0)
		running := c.State == "running" || c.State == "paused" || c.State == "restarting"
		switch {
		case running:
			idle = time.Now()
		case c.State == "exited" || c.State == "dead":
			// One that is being killed and started again by its runner is not running for a moment.
			if full, err := s.e.api.ContainerInspect(ctx, c.ID); err == nil && full.State != nil {
				if t, err := time.Parse(time.RFC3339Nano, full.State.FinishedAt); err == nil {
					idle = t
				}
			}
		}
		if s.held(c.Labels, idle) {
			continue
		}
		processes := 0
		if running {
			if top, err := s.e.api.ContainerTop(ctx, c.ID, nil); err == nil {
				processes = len(top.Processes)
			}
		}
		if err := ignoreMissing(s.e.remove(ctx, c.ID)); err != nil {
			errs = append(errs, fmt.Errorf("docker: sweep %s: %w", c.Labels[LabelAttempt], err))
			continue
		}
		s.note(c.Labels, "container", processes)
	}
	return errors.Join(errs...)
}

func (s *sweep) networks(ctx context.Context) error {
	list, err := s.e.api.NetworkList(ctx, network.ListOptions{Filters: s.label})
	if err != nil {
		return fmt.Errorf("docker: sweep: list networks: %w", err)
	}
	var errs []error
	for _, n := range list {
		if s.held(n.Labels, n.Created) {
			continue
		}
		if err := ignoreMissing(s.e.api.NetworkRemove(ctx, n.ID)); err != nil {
			errs = append(errs, fmt.Errorf("docker: sweep network %s: %w", n.Name, err))
			continue
		}
		s.note(n.Labels, "network", 0)
	}
	return errors.Join(errs...)
}

func (s *sweep) volumes(ctx context.Context) error {
	list, err := s.e.api.VolumeList(ctx, volume.ListOptions{Filters: s.label})
	if err != nil {
		return fmt.Errorf("docker: sweep: list volumes: %w", err)
	}
	var errs []error
	for _, v := range list.Volumes {
		created, err := time.Parse(time.RFC3339, v.CreatedAt)
		if err != nil {
			created = time.Now()
		}
		if s.held(v.Labels, created) {
			continue
		}
		if err := ignoreMissing(s.e.api.VolumeRemove(ctx, v.Name, false)); err != nil {
			errs = append(errs, fmt.Errorf("docker: sweep volume %s: %w", v.Name, err))
			continue
		}
		s.note(v.Labels, "volume", 0)
	}
	return errors.Join(errs...)
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
