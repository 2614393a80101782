package protocol

import (
	"encoding/json"
	"fmt"
	"time"
)

// timeLayout is RFC 3339 in UTC with exactly three decimals, the form that
// existing clients parse.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Time is an instant on the wire: RFC 3339, UTC, milliseconds. The zero value
// marshals as null.
type Time struct{ time.Time }

// At cuts t to the precision of the wire.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// String is the wire form.
func (t Time) String() string { return t.UTC().Format(timeLayout) }

// MarshalJSON writes the wire form.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	b := make([]byte, 0, len(timeLayout)+2)
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, timeLayout)
	return append(b, '"'), nil
}

// UnmarshalJSON accepts any RFC 3339 instant, or null.
func (t *Time) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("an instant is a string such as %q", timeLayout)
	}
	if s == nil {
		*t = Time{}
		return nil
	}
	parsed, err := time.Parse(time.RFC3339Nano, *s)
	if err != nil {
		return fmt.Errorf("an instant is RFC 3339, such as %q: %w", timeLayout, err)
	}
	*t = At(parsed)
	return nil
}
