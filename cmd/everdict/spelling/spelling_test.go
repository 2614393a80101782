package spelling

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"run", "runs", "submit", "coordinator", "timeoutSec", "lease_ttl"}
	for typed, want := range map[string]string{
		"rnus": "runs", "runz": "run", "sumbit": "submit", "coord": "coordinator", "timeoutSecs": "timeoutSec", "TIMEOUTSEC": "timeoutSec",
		"lease_tl": "lease_ttl", "zzz": "", "x": "", "": "",
	} {
		if got := Nearest(typed, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", typed, got, want)
		}
	}
}

func TestSlips(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "ab", 1}, {"abc", "abxc", 1}, {"abc", "xbc", 1}, {"kitten", "sitting", 3}} {
		if got := Slips(row.a, row.b); got != row.want {
			t.Errorf("between %q and %q: %d slips, want %d", row.a, row.b, got, row.want)
		}
		if got := Slips(row.b, row.a); got != row.want {
			t.Errorf("between %q and %q: %d slips, want %d", row.b, row.a, got, row.want)
		}
	}
}
