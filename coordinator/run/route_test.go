package run

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// TestP9_Requirements: what a case and its harness declare is what a runner must
// offer; the case's own word about memory goes before the harness's.
func TestP9_Requirements(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		c    protocol.Case
		h    protocol.HarnessSpec
		want lease.Requirements
	}{
		"a prompt":           {c: protocol.Case{Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}}},
		"a repository":       {c: protocol.Case{Env: protocol.EnvSpec{Kind: protocol.EnvRepo}}, want: lease.Requirements{Capabilities: []string{protocol.CapGit}}},
		"an image":           {c: protocol.Case{Image: "alpine"}, want: lease.Requirements{Capabilities: []string{protocol.CapDocker}}},
		"a harness's image":  {c: protocol.Case{Image: "alpine"}, h: protocol.HarnessSpec{Image: "agent"}, want: lease.Requirements{Capabilities: []string{protocol.CapDocker}}},
		"memory":             {c: protocol.Case{Resources: &protocol.Resources{MemoryMB: 100}}, want: lease.Requirements{MemoryMB: 100}},
		"cpu":                {c: protocol.Case{Resources: &protocol.Resources{CPU: 500}}, h: protocol.HarnessSpec{Resources: &protocol.Resources{CPU: 2000}}, want: lease.Requirements{CPU: 500}},
		"a harness's memory": {h: protocol.HarnessSpec{Resources: &protocol.Resources{MemoryMB: 200}}, want: lease.Requirements{MemoryMB: 200}},
		"both": {c: protocol.Case{Resources: &protocol.Resources{MemoryMB: 100, GPU: 1}}, h: protocol.HarnessSpec{Resources: &protocol.Resources{MemoryMB: 200, GPU: 2}},
			want: lease.Requirements{Capabilities: []string{protocol.CapGPU}, MemoryMB: 100}},
		"windows": {c: protocol.Case{Placement: &protocol.Placement{OS: "windows"}}, want: lease.Requirements{Capabilities: []string{protocol.CapOSWindows}, OS: "windows"}},
		"macos":   {c: protocol.Case{Placement: &protocol.Placement{OS: "macos"}}, want: lease.Requirements{Capabilities: []string{protocol.CapOSMacOS}, OS: "darwin"}},
		"linux":   {c: protocol.Case{Placement: &protocol.Placement{OS: "linux"}}, want: lease.Requirements{OS: "linux"}},
	} {
		if d := cmp.Diff(row.want, Requirements(&row.c, &row.h)); d != "" {
			t.Errorf("%s (-want):\n%s", name, d)
		}
	}
}

// TestP15_Capable: a run is refused only for what no machine that it can go to has
// or can get; the rest waits, and says why.
func TestP15_Capable(t *testing.T) {
	t.Parallel()
	with := func(capabilities ...string) protocol.Runner { return protocol.Runner{Capabilities: capabilities} }
	for name, row := range map[string]struct {
		runners []protocol.Runner
		needs   []string
		refused bool
	}{
		"nothing needed":                   {runners: []protocol.Runner{with()}},
		"one has it":                       {runners: []protocol.Runner{with(), with("gpu")}, needs: []string{"gpu"}},
		"none has a GPU":                   {runners: []protocol.Runner{with("git"), with("docker")}, needs: []string{"git", "gpu"}, refused: true},
		"none has docker yet":              {runners: []protocol.Runner{with("git")}, needs: []string{"docker"}},
		"each there, on different runners": {runners: []protocol.Runner{with("gpu"), with("git")}, needs: []string{"git", "gpu"}},
	} {
		err := capable(row.runners, row.needs)
		if got := code(err) == protocol.CodeBadRequest; got != row.refused || err != nil && !row.refused {
			t.Errorf("%s: %v, refused: want %v", name, err, row.refused)
		}
	}
}
