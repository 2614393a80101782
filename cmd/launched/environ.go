package launched

import (
	"bytes"
	"encoding/json"
	"strings"
)

// environ is what jobs may inherit: without the runner's own settings.
func environ(env []string) []string {
	var rest []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "EVERDICT_") && !strings.HasPrefix(kv, "KUBERNETES_") && !strings.HasPrefix(kv, "NOMAD_") {
			rest = append(rest, kv)
		}
	}
	return rest
}

// oneLine is a JSON document without line breaks.
func oneLine(doc []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, doc); err != nil {
		return doc // the outbox takes valid documents only
	}
	return b.Bytes()
}
