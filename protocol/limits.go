package protocol

// Limits at the borders, shared by those who send and those who check.
const (
	// MaxBodyBytes is the largest JSON request body (16 MiB, as existing
	// clients expect).
	MaxBodyBytes = 16 << 20
	// MaxNameBytes is the longest id, version, tag or label.
	MaxNameBytes = 200
	// MaxTimeoutSec is the longest timeout of a case: 7 days.
	MaxTimeoutSec = 7 * 24 * 3600
	// DefaultTimeoutSec is the timeout of a case that names none.
	DefaultTimeoutSec = 1800
	// MaxGraders and MaxTags bound lists on a case.
	MaxGraders = 100
	MaxTags    = 100
	// MaxListed is how many rows a list without a limit returns at most.
	MaxListed = 1000
	// MaxTraceEventBytes is the longest encoded trace event; longer fields are
	// cut by the runner and marked.
	MaxTraceEventBytes = 256 << 10
)
