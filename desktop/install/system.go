package install

import "context"

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
