package builtin

import (
	"errors"
	"testing"

	"github.com/everdict/everdict/agent/harness/claudecode"
	"github.com/everdict/everdict/agent/harness/command"
	"github.com/everdict/everdict/agent/harness/scripted"
	"github.com/everdict/everdict/protocol"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	if h, err := Lookup(&protocol.HarnessSpec{Kind: "process", ID: "scripted"}); err != nil || !is[*scripted.Harness](h) {
		t.Errorf("scripted by id: %T, %v", h, err)
	}
	if h, err := Lookup(&protocol.HarnessSpec{Kind: "process", ID: "mine", Adapter: "claude-code"}); err != nil || !is[*claudecode.Harness](h) {
		t.Errorf("claude-code by adapter: %T, %v", h, err)
	}
	if h, err := Lookup(&protocol.HarnessSpec{Kind: "command", ID: "claude-code"}); err != nil || !is[*command.Harness](h) {
		t.Errorf("a command: %T, %v", h, err)
	}
	for _, s := range []protocol.HarnessSpec{{Kind: "process", ID: "nobody"}, {Kind: "service", ID: "scripted"}} {
		_, err := Lookup(&s)
		var f *protocol.Failure
		if !errors.As(err, &f) || f.Class != protocol.ClassConfig || f.Reason != protocol.ReasonUnsupportedByRunner {
			t.Errorf("%+v: %v, want a config failure", s, err)
		}
	}
	for _, name := range protocol.Adapters() {
		if h, err := Lookup(&protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: name}); err != nil || h == nil {
			t.Errorf("%s: %v, want a harness, as every runner has it", name, err)
		}
	}
	if len(adapters) != len(protocol.Adapters()) {
		t.Errorf("%d adapters, %v are known to the coordinator", len(adapters), protocol.Adapters())
	}
}

func is[T any](v any) bool { _, ok := v.(T); return ok }
