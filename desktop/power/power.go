// Package power says whether this machine runs on its battery.
package power

import (
	"context"
	"errors"
)

// ErrUnknown says that this machine does not tell.
var ErrUnknown = errors.New("the power source is not known here")

// OnBattery says whether the machine runs on its battery. A machine without one does not.
func OnBattery(ctx context.Context) (bool, error) { return onBattery(ctx) }

// Changes sends when the power source may have changed, until ctx ends, which closes the
// channel. It wakes nobody otherwise. Where that cannot be had it returns ErrUnknown, and
// OnBattery has to be asked from time to time.
func Changes(ctx context.Context) (<-chan struct{}, error) { return changes(ctx) }
