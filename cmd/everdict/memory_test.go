package main

import "testing"

func TestGCPercent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		live uint64
		want int
	}{
		{"nothing lives", 0, 100},
		{"as much as the headroom", headroom, 100},
		{"a little more", headroom + 1, 95},
		{"twice the headroom", 2 * headroom, 50},
		{"a fleet of 5,000", 5000 * 28_000, 15},
		{"a huge heap", 10 << 30, minGCPercent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := gcPercent(tt.live); got != tt.want {
				t.Errorf("gcPercent(%d) = %d, want %d", tt.live, got, tt.want)
			}
		})
	}
}
