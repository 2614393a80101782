package protocol

import (
	"encoding/json"
	"strings"
	"testing"
)

// What a hostile coordinator can answer is not kept: a list of connections with it could not be read at the next start, and
// a terminal would be steered by it.
func TestPairedDeviceCheck(t *testing.T) {
	t.Parallel()
	good := func() *PairedDevice {
		return &PairedDevice{Status: PairingDone, Runner: &Runner{ID: NewID(RunnerPrefix), Label: "build box"}, Account: &Account{Subject: "ana", Workspace: "team"}}
	}
	if err := good().Check(); err != nil {
		t.Fatalf("an honest answer: %v", err)
	}
	for name, spoil := range map[string]func(*PairedDevice){
		"pending":             func(d *PairedDevice) { d.Status = PairingPending },
		"no runner":           func(d *PairedDevice) { d.Runner = nil },
		"no account":          func(d *PairedDevice) { d.Account = nil },
		"an id of 1 MiB":      func(d *PairedDevice) { d.Runner.ID += strings.Repeat("a", 1<<20) },
		"an id with a path":   func(d *PairedDevice) { d.Runner.ID += "/../.." },
		"another prefix":      func(d *PairedDevice) { d.Runner.ID = "run_1" },
		"a subject of 1 MiB":  func(d *PairedDevice) { d.Account.Subject = strings.Repeat("a", 1<<20) },
		"a terminal's escape": func(d *PairedDevice) { d.Account.Subject = "ana\x1b]0;x\a" },
		"a direction mark":    func(d *PairedDevice) { d.Account.Workspace = "team\u202e" },
		"no workspace":        func(d *PairedDevice) { d.Account.Workspace = "" },
		"a label of lines":    func(d *PairedDevice) { d.Runner.Label = "a\nb" },
	} {
		d := good()
		spoil(d)
		if d.Check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestPairingStartedCheck(t *testing.T) {
	t.Parallel()
	good := PairingStarted{ID: NewID(PairingPrefix), Number: "07", URL: "https://everdict.example/ui/pair/prq_1", ExpiresInSec: 300, IntervalSec: 2}
	if err := good.Check(); err != nil {
		t.Fatalf("an honest answer: %v", err)
	}
	for name, spoil := range map[string]func(*PairingStarted){
		"an id of 1 MiB":      func(s *PairingStarted) { s.ID += strings.Repeat("a", 1<<20) },
		"no digits":           func(s *PairingStarted) { s.Number = "\x1b[2J" },
		"an address of 1 MiB": func(s *PairingStarted) { s.URL += strings.Repeat("a", 1<<20) },
		"a code of 1 MiB":     func(s *PairingStarted) { s.UserCode = strings.Repeat("a", 1<<20) },
		"for ever":            func(s *PairingStarted) { s.ExpiresInSec = 1 << 40 },
		"over already":        func(s *PairingStarted) { s.ExpiresInSec = 0 },
		"a pause of years":    func(s *PairingStarted) { s.IntervalSec = 1 << 40 },
	} {
		s := good
		spoil(&s)
		if s.Check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// FuzzPairingAnswers: whatever a coordinator answers, what passes is short and can be read.
func FuzzPairingAnswers(f *testing.F) {
	f.Add([]byte(`{"status":"done","runner":{"id":"rnr_1","label":"x"},"account":{"subject":"ana","workspace":"team"}}`))
	f.Add([]byte(`{"id":"prq_1","number":"07","expiresInSec":300}`))
	f.Add([]byte(`{"message":"used","data":{"reason":"used","runner":"rnr_1","account":{"subject":"ana","workspace":"team"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		sound := func(d *PairedDevice) {
			for _, s := range []string{d.Runner.ID, d.Runner.Label, d.Account.Subject, d.Account.Workspace} {
				if len(s) > MaxNameBytes || strings.ContainsFunc(s, unprintable) {
					t.Errorf("%q was taken", s)
				}
			}
		}
		var d PairedDevice
		if json.Unmarshal(b, &d) == nil && d.Check() == nil {
			sound(&d)
		}
		var p Problem
		if json.Unmarshal(b, &p) == nil {
			if d := UsedBefore(&p); d != nil {
				sound(d)
			}
		}
		var s PairingStarted
		if json.Unmarshal(b, &s) == nil && s.Check() == nil && strings.ContainsFunc(s.ID+s.Number, unprintable) {
			t.Errorf("%+v was taken", s)
		}
	})
}
