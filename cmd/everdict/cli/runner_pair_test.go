package cli

import (
	"slices"
	"strings"
	"testing"
)

// --pair alone is a flag of its own, and with a value as it always was.
func TestPairArgs(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"runner --pair":                          "runner --pair",
		"runner --pair --api-url http://x":       "runner --pair --api-url http://x",
		"runner --pair -":                        "runner --pair=-",
		"runner --pair file:token -q":            "runner --pair=file:token -q",
		"runner --pair=fd:3 --api-url http://x":  "runner --pair=fd:3 --api-url http://x",
		"runner --api-url http://x --pair fd:3":  "runner --api-url http://x --pair=fd:3",
		"submit -- --pair x":                     "submit -- --pair x",
		"runner --pair -- x":                     "runner --pair -- x",
		"runs list":                              "runs list",
		"runner --pair -o json":                  "runner --pair -o json",
		"runner --pool-token file:x --pair rnr_": "runner --pool-token file:x --pair=rnr_",
	} {
		args := strings.Fields(given)
		before := slices.Clone(args)
		if got := strings.Join(pairArgs(args), " "); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
		if !slices.Equal(before, args) {
			t.Errorf("%s: the arguments themselves were changed", given)
		}
	}
}
