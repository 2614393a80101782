package main

import "strings"

// environ is what jobs may inherit: without the runner's own settings.
func environ(env []string) []string {
	var rest []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "EVERDICT_") && !strings.HasPrefix(kv, "KUBERNETES_") {
			rest = append(rest, kv)
		}
	}
	return rest
}
