package window

import (
	"os/exec"
)

func ways(Options) []way {
	return []way{
		{WebView, "WKWebView", webkit},
		{Browser, "default browser", tab},
	}
}

func endWithUs(*exec.Cmd) {}

func openURL(address string) error { return exec.Command("/usr/bin/open", address).Run() }
