package kube

import (
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// TestTheFileOfTheToken: the runner's user can read it, and where a group is set up for that,
// nobody else can.
func TestTheFileOfTheToken(t *testing.T) {
	t.Parallel()
	for user, want := range map[int64]int32{20250: 0o440, -1: 0o444} {
		j := job(&Config{User: user}, fleet.Target{Spec: &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "r"}}, fleet.Order{Unit: "u"})
		spec := j.Spec.Template.Spec
		if got := *spec.Volumes[0].Secret.DefaultMode; got != want || (spec.SecurityContext.FSGroup == nil) != (user < 0) {
			t.Errorf("user %d: mode %o, group %v; want %o", user, got, spec.SecurityContext.FSGroup, want)
		}
	}
}
