package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"

	"github.com/everdict/everdict/agent/sandbox"
)

// pulled is an image that the engine has.
type pulled struct {
	id, digest, platform, arch string
	env                        []string
}

// ensure returns the image, after pulling it when the engine does not have it.
func (e *engine) ensure(ctx context.Context, cfg Config, name string, log io.Writer) (pulled, error) {
	if _, err := reference.ParseAnyReference(name); err != nil {
		return pulled{}, &sandbox.ImageError{Image: name, Words: err.Error()}
	}
	img, err := e.inspect(ctx, name)
	if cerrdefs.IsNotFound(err) {
		if err := e.pull(ctx, cfg, name, log); err != nil {
			return pulled{}, err
		}
		img, err = e.inspect(ctx, name)
	}
	if err != nil {
		// Podman has no status of its own for a name that is none.
		if cerrdefs.IsInvalidArgument(err) || cerrdefs.IsNotFound(err) || strings.Contains(err.Error(), "invalid reference format") {
			return pulled{}, &sandbox.ImageError{Image: name, Words: words(err)}
		}
		return pulled{}, fmt.Errorf("docker: inspect image %s: %w", name, err)
	}
	if img.arch != e.arch && !cfg.AllowEmulation {
		return pulled{}, mismatch(name, []string{img.platform}, e.arch)
	}
	return img, nil
}

func (e *engine) inspect(ctx context.Context, name string) (pulled, error) {
	got, err := e.api.ImageInspect(ctx, name)
	if err != nil {
		return pulled{}, err
	}
	img := pulled{id: got.ID, digest: got.ID, arch: got.Architecture, platform: got.Os + "/" + got.Architecture}
	if got.Variant != "" {
		img.platform += "/" + got.Variant
	}
	if len(got.RepoDigests) > 0 {
		if _, d, ok := strings.Cut(got.RepoDigests[0], "@"); ok {
			img.digest = d
		}
	}
	if got.Config != nil {
		img.env = got.Config.Env
	}
	return img, nil
}

func mismatch(name string, has []string, want string) error {
	return &sandbox.ImageError{Image: name, Words: fmt.Sprintf("it is for %s, this engine runs linux/%s, and emulation is not allowed",
		strings.Join(has, ", "), want)}
}

// Waits between tries of a pull that may succeed later.
var pullPauses = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second}

// silentTries is how often a registry that nobody listens at is asked.
const silentTries = 2

// pull brings the image. What cannot succeed fails at once, with the registry's words; the rest is tried again.
func (e *engine) pull(ctx context.Context, cfg Config, name string, log io.Writer) error {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return &sandbox.ImageError{Image: name, Words: err.Error()}
	}
	ref = reference.TagNameOnly(ref)
	ctx, cancel := context.WithTimeout(ctx, cfg.PullTimeout)
	defer cancel()
	auth := credentials(ref)
	var last *sandbox.ImageError
	for try := 0; ; try++ {
		err := e.pullOnce(ctx, cfg, ref, auth, log)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			if last != nil && !errors.Is(ctx.Err(), context.Canceled) {
				last.Words = fmt.Sprintf("not pulled within %s: %s", cfg.PullTimeout, last.Words)
				return last
			}
			return fmt.Errorf("docker: pull %s: %w", name, context.Cause(ctx))
		}
		if unreachable(err) {
			return fmt.Errorf("docker: pull %s: %w", name, err)
		}
		if errors.As(err, &last) {
			return last
		}
		last = &sandbox.ImageError{Image: name, Words: words(err), Retryable: true}
		kind := judge(last.Words)
		last.Retryable = kind != permanent
		if kind == permanent || kind == silent && try+1 >= silentTries {
			return last
		}
		pause := pullPauses[min(try, len(pullPauses)-1)]
		progress(log, "pull of %s failed, trying again in %s: %s", name, pause, last.Words)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (e *engine) pullOnce(ctx context.Context, cfg Config, ref reference.Named, auth string, log io.Writer) error {
	if !cfg.AllowEmulation && !e.podman {
		// The list of platforms is a few KiB: a mismatch is refused before layers come. Podman does not ask for it.
		list, err := e.api.DistributionInspect(ctx, ref.String(), auth)
		if err == nil {
			var has []string
			for _, p := range list.Platforms {
				if p.OS != "unknown" { // an attestation
					has = append(has, p.OS+"/"+p.Architecture)
				}
			}
			if len(has) > 0 && !slices.Contains(has, "linux/"+e.arch) {
				return mismatch(reference.FamiliarString(ref), has, e.arch)
			}
		} else if judge(words(err)) == permanent || unreachable(err) {
			return err
		}
	}
	progress(log, "pulling %s", reference.FamiliarString(ref))
	body, err := e.api.ImagePull(ctx, ref.String(), image.PullOptions{RegistryAuth: auth})
	if err != nil {
		return err
	}
	defer body.Close()
	return follow(body, log)
}

// follow reads the engine's report of a pull to its end: a pull fails in its body, not in its answer.
func follow(body io.Reader, log io.Writer) error {
	dec := json.NewDecoder(bufio.NewReader(body))
	for {
		var line struct {
			ID, Status, Error string
			ErrorDetail       struct{ Message string }
		}
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the engine's report: %w", err)
		}
		switch {
		case line.Error != "":
			return errors.New(line.Error)
		case line.Status == "Downloading" || line.Status == "Extracting" || line.Status == "Waiting":
			// a line per percent would bury the run's own log
		case line.ID != "":
			progress(log, "%s: %s", line.ID, line.Status)
		default:
			progress(log, "%s", line.Status)
		}
	}
}

// words are what the registry or the engine said, without what our client says around it.
func words(err error) string {
	return strings.TrimPrefix(err.Error(), "Error response from daemon: ")
}

type verdict int

const (
	transient verdict = iota
	silent            // nobody answers at the address
	permanent
)

// judge sorts a refusal. Engines put a registry's answer into a sentence, so that a sentence is all there is to judge.
func judge(words string) verdict {
	w := strings.ToLower(words)
	has := func(list ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(w, s) })
	}
	switch {
	case has("manifest unknown", "name unknown", "not found", "does not exist", "no such image", "unauthorized", "denied",
		"authentication required", "no basic auth credentials", "invalid reference", "no matching manifest", "no image found in", "invalid repository name",
		"name invalid", "does not match the specified platform", "unsupported manifest media type", "server gave http response to https client",
		"certificate signed by unknown authority"):
		// "no such host" never says "not found"; a registry's 404 does.
		return permanent
	case has("no such host", "connection refused", "no route to host", "network is unreachable"):
		return silent
	}
	return transient
}

// defaultPath is what the engine itself gives the commands of an image that names no
// PATH.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
