package protocol

import "strings"

// Channels of evidence of an attempt. A channel is an append-only stream of
// bytes; others may be added under any name that ValidChannel accepts.
const (
	// ChannelLog is the harness's output, both streams in order of arrival.
	ChannelLog = "log"
	// ChannelLogIndex says which bytes of ChannelLog came from which stream and
	// when: one LogEntry per line.
	ChannelLogIndex = "log.index"
	// ChannelTrace is one TraceEvent per line.
	ChannelTrace = "trace"
	// ChannelDiff is the diff against the baseline.
	ChannelDiff = "diff"
	// ChannelGaps is one Gap per line: what the runner's disk could not take.
	ChannelGaps = "gaps"
)

// MaxChannelName is the longest name of a channel.
const MaxChannelName = 200

// Reasons of a Gap.
const (
	GapCap        = "cap"         // the channel's limit: its head and its tail are kept
	GapDiskFull   = "disk_full"   // the runner's disk was full
	GapWriteError = "write_error" // the runner's disk failed
)

// LogEntry is one line of ChannelLogIndex: a span of bytes of one stream, or,
// when Gap is set, bytes that are missing between two stored ones.
type LogEntry struct {
	// Offset is a place in ChannelLog as stored.
	Offset int64 `json:"o"`
	// Bytes is the length of the span.
	Bytes int64 `json:"n,omitempty"`
	// Stream is stdout or stderr.
	Stream string `json:"s,omitempty"`
	// TimeMs is when the span began to arrive: epoch milliseconds of the runner.
	TimeMs int64 `json:"t,omitempty"`
	// Gap stands at Offset. One with Bytes 0 says that from here on bytes may be
	// missing, and counts only while no other line follows it: it is what is left
	// when the writer was killed.
	Gap *Gap `json:"gap,omitempty"`
}

// ValidChannel reports whether s names a channel: 1 to MaxChannelName ASCII
// letters, digits, dots, dashes, underscores and colons, the first a letter or
// digit.
func ValidChannel(s string) bool { return validToken(s, MaxChannelName, ":") }

// ValidRunName reports whether s can name a run in a path: 1 to MaxNameBytes
// ASCII letters, digits, dots, dashes and underscores, the first a letter or
// digit.
func ValidRunName(s string) bool { return validToken(s, MaxNameBytes, "") }

func validToken(s string, max int, more string) bool {
	if s == "" || len(s) > max {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '-' || c == '_' || strings.IndexByte(more, c) >= 0):
		default:
			return false
		}
	}
	return true
}
