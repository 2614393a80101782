package settings

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/control"
)

// FuzzCheck: hours that pass have an end, and what Open says of them changes when it says so.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"hours":[{"days":["mon","sun"],"from":"22:00","to":"06:00"}],"appearance":"system"}`), int64(1_700_000_000))
	f.Add([]byte(`{"hours":[{"days":["tue"],"from":"00:00","to":"24:00"}],"appearance":"dark"}`), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, at int64) {
		s := Default()
		if json.Unmarshal(b, &s) != nil || Check(&s) != nil || at < 0 || at > 1<<40 {
			return
		}
		now := time.Unix(at, 0).UTC()
		open, change := Open(s.Hours, now)
		if change.IsZero() {
			return
		}
		if after, _ := Open(s.Hours, change); !change.After(now) || after == open {
			t.Errorf("%+v at %s: open %v until %s, and %v then", s.Hours, now, open, change, after)
		}
	})
}

// FuzzCheckConnection: settings that let the jobs of others act as the user were confirmed.
func FuzzCheckConnection(f *testing.F) {
	f.Add([]byte(`{"slots":1,"sandbox":"process","onlyMine":true}`))
	f.Add([]byte(`{"slots":64,"sandbox":"docker","image":"debian:12"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c control.ConnectionSettings
		if json.Unmarshal(b, &c) != nil || CheckConnection(&c) != nil {
			return
		}
		if c.Slots < 1 || c.Slots > maxSlots || c.Sandbox == control.SandboxProcess && !c.OnlyMine && !c.Understood {
			t.Errorf("%+v passed", c)
		}
	})
}
