//go:build unix && !darwin

package install

func here(cfg Config) system { return xdg{cfg} }
