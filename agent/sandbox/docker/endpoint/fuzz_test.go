package endpoint

import (
	"strings"
	"testing"
)

// FuzzContext: what the docker command keeps is a candidate with an address, or with the
// reason why it is none.
func FuzzContext(f *testing.F) {
	f.Add(`{"currentContext":"x"}`, `{"Endpoints":{"docker":{"Host":"unix:///run/x.sock"}}}`)
	f.Add(`{"currentContext":"x"}`, `{"Endpoints":{"docker":{"Host":"tcp://h:1","SkipTLSVerify":true}}}`)
	f.Add(`{"currentContext":1}`, `{}`)
	f.Add(``, `[`)
	f.Fuzz(func(t *testing.T, config, meta string) {
		s := machine{files: map[string]string{
			"/home/u/.docker/config.json": config, "/home/u/.docker/contexts/meta/" + digest("x") + "/meta.json": meta,
		}}.system()
		if name, problem := s.currentContext(); name != "" && problem != "" {
			t.Errorf("a context %q that is ignored: %s", name, problem)
		}
		if c := s.context(FromContextVariable, "x"); c.Host == "" && c.Reason == "" || strings.Contains(c.Reason, "\n") {
			t.Errorf("the candidate %+v has neither a host nor a reason", c)
		}
	})
}
