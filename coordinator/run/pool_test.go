package run

import "testing"

// TestP1_PoolNamesComeBack: a name in the database means the same pool after a
// restart, whatever the subject is called.
func TestP1_PoolNamesComeBack(t *testing.T) {
	t.Parallel()
	subjects := []string{"ann", "user:ann", "a/b", "", "self of x", "auto for x", "default/auto for y", "Ünï cödé"}
	pools := []Pool{RunnerPool("rnr_1"), sharedPool("rnr_1"), RuntimeHome("local"), workspacePool("default"), RuntimePool("default", "local")}
	for _, s := range subjects {
		pools = append(pools, selfPool("default", s), autoPool("w 2", s))
	}
	seen := map[string]Pool{}
	for _, p := range pools {
		name := p.String()
		if other, ok := seen[name]; ok {
			t.Errorf("%+v and %+v are both called %q", p, other, name)
		}
		seen[name] = p
		if got, ok := parsePool(name); !ok || got != p {
			t.Errorf("parsePool(%q) = %+v, %v; want %+v", name, got, ok, p)
		}
	}
	for _, name := range []string{"", "default", "default/", "default/self", "/", "runners x", "default/runner rnr_1"} {
		if got, ok := parsePool(name); ok {
			t.Errorf("parsePool(%q) = %+v, want none", name, got)
		}
	}
	// Names of jobs that older coordinators have queued.
	for name, want := range map[string]Pool{
		"runner rnr_1":          RunnerPool("rnr_1"),
		"default/self:ws":       workspacePool("default"),
		"default/self of ann":   selfPool("default", "ann"),
		"default/runtime local": RuntimePool("default", "local"),
		"default/auto for ann":  autoPool("default", "ann"),
	} {
		if got := want.String(); got != name {
			t.Errorf("%+v is called %q, want %q", want, got, name)
		}
	}
}
