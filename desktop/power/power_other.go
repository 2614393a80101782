//go:build !linux && !windows && !darwin

package power

import "context"

func onBattery(context.Context) (bool, error) { return false, ErrUnknown }

func changes(context.Context) (<-chan struct{}, error) { return nil, ErrUnknown }
