package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/everdict/everdict/protocol"
)

// Diff compares what two versions of a harness resolve to, field by field.
func (r *Registry) Diff(ctx context.Context, workspace, id, base, candidate string) (protocol.SpecDiff, error) {
	before, err := r.Resolve(ctx, workspace, protocol.HarnessRef{ID: id, Version: base})
	if err != nil {
		return protocol.SpecDiff{}, err
	}
	after, err := r.Resolve(ctx, workspace, protocol.HarnessRef{ID: id, Version: candidate})
	if err != nil {
		return protocol.SpecDiff{}, err
	}
	diff := protocol.SpecDiff{ID: id, Base: before.Version, Candidate: after.Version, Changes: []protocol.SpecChange{}}
	x, err := fields(before)
	if err != nil {
		return protocol.SpecDiff{}, err
	}
	y, err := fields(after)
	if err != nil {
		return protocol.SpecDiff{}, err
	}
	paths := maps.Clone(x)
	maps.Copy(paths, y)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if path == "version" {
			continue // two versions always differ in it
		}
		b, inBase := x[path]
		c, inCandidate := y[path]
		switch {
		case !inBase:
			diff.Changes = append(diff.Changes, protocol.SpecChange{Path: path, Op: "added", Candidate: c})
		case !inCandidate:
			diff.Changes = append(diff.Changes, protocol.SpecChange{Path: path, Op: "removed", Base: b})
		case !reflect.DeepEqual(b, c):
			diff.Changes = append(diff.Changes, protocol.SpecChange{Path: path, Op: "changed", Base: b, Candidate: c})
		}
	}
	return diff, nil
}

// fields maps the path of each leaf of a spec's JSON form to its value.
func fields(spec protocol.HarnessSpec) (map[string]any, error) {
	b, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("registry: compare %s: %w", spec.ID, err)
	}
	var tree any
	if err := json.Unmarshal(b, &tree); err != nil {
		return nil, fmt.Errorf("registry: compare %s: %w", spec.ID, err)
	}
	leaves := make(map[string]any)
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, child := range v {
				at := name
				if path != "" {
					at = path + "." + name
				}
				walk(at, child)
			}
		case []any:
			for i, child := range v {
				walk(path+"["+strconv.Itoa(i)+"]", child)
			}
		default:
			leaves[path] = v
		}
	}
	walk("", tree)
	return leaves, nil
}
