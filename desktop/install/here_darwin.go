package install

func here(cfg Config) system { return mac{cfg} }
