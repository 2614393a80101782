package install

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// system is how one system is installed on.
type system interface {
	install(context.Context) (Report, error)
	uninstall(context.Context) (Report, error)
	atLogin(ctx context.Context, on bool) (Report, error)
	startsAtLogin(context.Context) (bool, error)
}

var (
	_ system = xdg{}
	_ system = mac{}
	_ system = windows{}
)

func install(ctx context.Context, cfg Config) (Report, error)   { return here(cfg).install(ctx) }
func uninstall(ctx context.Context, cfg Config) (Report, error) { return here(cfg).uninstall(ctx) }

func atLogin(ctx context.Context, cfg Config, on bool) (Report, error) {
	return here(cfg).atLogin(ctx, on)
}

func startsAtLogin(ctx context.Context, cfg Config) (bool, error) {
	return here(cfg).startsAtLogin(ctx)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
