package outbox

import (
	"encoding/json"
	"testing"
)

// FuzzDecodeAttempt: what is read of an attempt's file is one that may be, and is read the
// same when it is written again.
func FuzzDecodeAttempt(f *testing.F) {
	for _, seed := range []string{`{"run":"run_x","job":"run_x","epoch":1,"token":"t"}`, `{}`, `null`, `{"epoch":-1}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAttempt(b)
		if err != nil {
			return
		}
		if err := a.validate(); err != nil {
			t.Fatalf("%+v: %v", a, err)
		}
		doc, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeAttempt(doc); err != nil {
			t.Errorf("%s, written again, is read as %+v, %v", b, again, err)
		}
	})
}
