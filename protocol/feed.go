package protocol

import "encoding/json"

// Kinds of FeedEvent.
const (
	// FeedHello comes first on each connection.
	FeedHello = "hello"
	// FeedRuns: Runs as rows of GET /runs, new or changed.
	FeedRuns = "runs"
	// FeedRunners: Runners that changed, and Removed ones.
	FeedRunners = "runners"
	// FeedPools: Pools of the workspace, all of them.
	FeedPools = "pools"
	// FeedReset: read the lists anew, because of Reason.
	FeedReset = "reset"
	// FeedEnd: nothing more comes, because of Reason.
	FeedEnd = "end"
)

// Reasons of FeedReset and FeedEnd.
const (
	// ResetTooOld: what came behind the last event is not kept any more.
	ResetTooOld = "too_old"
	// ResetRestart: the coordinator was started anew since.
	ResetRestart = "restart"
	// ResetSlow: more changed than this reader could take.
	ResetSlow = "slow"
	// EndSession: the credential is not good any more.
	EndSession = "session"
)

// FeedEvent is one event of GET /events.
type FeedEvent struct {
	// ID resumes the stream behind this event; it is opaque.
	ID      string
	Kind    string
	Version string
	At      Time
	Runs    []Run
	Runners []Runner
	Removed []string
	Pools   []PoolUse
	Reason  string
}

// MarshalJSON writes the data of the event; its kind and id travel beside it.
func (e FeedEvent) MarshalJSON() ([]byte, error) {
	switch e.Kind {
	case FeedHello:
		return json.Marshal(struct {
			Version string `json:"version"`
			Now     Time   `json:"now"`
		}{e.Version, e.At})
	case FeedRuns:
		return json.Marshal(struct {
			Runs []Run `json:"runs"`
		}{e.Runs})
	case FeedRunners:
		return json.Marshal(struct {
			Runners []Runner `json:"runners"`
			Removed []string `json:"removed"`
		}{e.Runners, e.Removed})
	case FeedPools:
		return json.Marshal(struct {
			Pools []PoolUse `json:"pools"`
		}{e.Pools})
	default:
		return json.Marshal(struct {
			Reason string `json:"reason"`
		}{e.Reason})
	}
}
