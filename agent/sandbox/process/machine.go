//go:build unix

package process

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// machine is what the driver found out about its host, once.
type machine struct {
	// instance names this process among all that ever ran on this host.
	instance string
	now      func() stopwatch.Reading
	seq      *atomic.Uint64
	spawners *spawners
	base     sandbox.Info
	platform
}

// sequence numbers commands over all drivers of this process, because marks are compared between them.
var sequence atomic.Uint64

// marker is the value of EnvMarker for command seq.
func (m *machine) marker(seq uint64) string { return fmt.Sprintf("%s.%d", m.instance, seq) }

func (m *machine) info() sandbox.Info {
	i := m.base
	i.Limits, i.Notes = slices.Clone(i.Limits), slices.Clone(i.Notes)
	return i
}
