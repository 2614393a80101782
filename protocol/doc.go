// Package protocol is the shared vocabulary of Everdict: every document that
// crosses a process boundary, with its validation. It knows no transport, no
// queue and no sandbox, and imports nothing of this module.
//
// Documents are plain structs whose JSON form is the wire form. A union (an
// environment, a trace event, a score) is one struct with a Kind or Status
// field and the fields of every variant; Validate says which belong together.
// Unknown keys are dropped on decoding, so that an older reader accepts a newer
// document.
package protocol
