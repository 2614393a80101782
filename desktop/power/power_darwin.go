package power

import (
	"context"
	"fmt"
	"os/exec"
)

func onBattery(ctx context.Context) (bool, error) {
	out, err := exec.CommandContext(ctx, "/usr/bin/pmset", "-g", "batt").Output()
	if err != nil {
		return false, fmt.Errorf("pmset: %w", err)
	}
	return Pmset(string(out))
}

func changes(context.Context) (<-chan struct{}, error) { return nil, ErrUnknown }
