package jsonl

import (
	"encoding/json"
	"errors"
)

// Decode reads a JSON document into v and reports whether it was one. A field of
// another type than v wants is left at its zero value and costs nothing else:
// programs change the shape of their output between versions.
func Decode(b []byte, v any) bool {
	err := json.Unmarshal(b, v)
	var shape *json.UnmarshalTypeError
	return err == nil || errors.As(err, &shape)
}
