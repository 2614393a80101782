package sandbox

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestP15_ErrorsKeepValuesOut(t *testing.T) {
	t.Parallel()
	// A value in a broken entry may be a secret: errors name the field, not what is in it.
	for _, env := range [][]string{{"=hunter2"}, {"TOKEN=hunter2\x00"}, {"hunter2"}} {
		err := Spec{Attempt: "a", Dir: "/", Env: env}.Validate()
		var bad *SpecError
		if !errors.As(err, &bad) || bad.Field != "env" {
			t.Errorf("env %q: %v, wanted a *SpecError of env", env, err)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error of env %q shows its value: %v", env, err)
		}
	}
}

func TestValidAttempt(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"run_x.1": true, "a": true, "A-b_c.9": true, strings.Repeat("a", 128): true,
		"": false, ".": false, "..": false, ".a": false, "-a": false, "a/b": false, "a b": false, "ä": false, "a\n": false,
		strings.Repeat("a", 129): false,
	} {
		if got := ValidAttempt(s); got != want {
			t.Errorf("ValidAttempt(%q) = %v", s, got)
		}
	}
}

func TestP6_F19_AHurriedLadderTakesHalf(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Ladder{"the default": DefaultLadder, "none": nil, "one of its own": {{Grace: 4 * time.Second, Tree: true}}, "kill at once": {}} {
		whole := l
		if whole == nil {
			whole = DefaultLadder
		}
		got := l.Hurried()
		if got == nil || len(got) != len(whole) {
			t.Errorf("%s: got %v of %v", name, got, whole)
			continue
		}
		for i, r := range got {
			if r.Grace != whole[i].Grace/2 || r.Signal != whole[i].Signal || r.Tree != whole[i].Tree {
				t.Errorf("%s: rung %d is %+v of %+v", name, i, r, whole[i])
			}
		}
	}
}

func TestP6_DefaultLadderLeavesTimeForTheKill(t *testing.T) {
	t.Parallel()
	sum := 0.0
	for _, r := range DefaultLadder {
		sum += r.Grace.Seconds()
	}
	if sum > 8 {
		t.Errorf("the default ladder's graces take %.0f s of the 10 s of P6", sum)
	}
}
