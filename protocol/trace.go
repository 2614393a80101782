package protocol

import "encoding/json"

// Kinds of trace events (closed).
const (
	EventMessage    = "message"
	EventLLMCall    = "llm_call"
	EventToolCall   = "tool_call"
	EventToolResult = "tool_result"
	EventEnvAction  = "env_action"
	EventError      = "error"
	EventLog        = "log"
	EventArtifact   = "artifact"
	EventSpan       = "span"
	EventInfra      = "infra"
)

// TraceEvent is one step of what happened. Fields by kind:
//
//	message      role (user|assistant), text
//	llm_call     model, cost?, latencyMs?
//	tool_call    id, name, args
//	tool_result  id, ok, output
//	env_action   action, detail?
//	error        message
//	log          stream (stdout|stderr), text
//	artifact     name, ref, mediaType?, role?
//	span         name, attributes?
//	infra        scope (placement|service), event?, message, unit?, node?
type TraceEvent struct {
	Kind string `json:"kind"`
	// T is the instant on the emitter's clock: epoch milliseconds in this
	// project.
	T          float64 `json:"t"`
	At         string  `json:"at,omitempty"`
	SpanID     string  `json:"spanId,omitempty"`
	ParentID   string  `json:"parentId,omitempty"`
	DurationMs float64 `json:"durationMs,omitempty"`

	Role       string          `json:"role,omitempty"`
	Text       *string         `json:"text,omitempty"`
	Model      string          `json:"model,omitempty"`
	Cost       *Cost           `json:"cost,omitempty"`
	LatencyMs  *float64        `json:"latencyMs,omitempty"`
	ID         string          `json:"id,omitempty"`
	Name       string          `json:"name,omitempty"`
	Args       json.RawMessage `json:"args,omitempty"`
	OK         *bool           `json:"ok,omitempty"`
	Output     *string         `json:"output,omitempty"`
	Action     string          `json:"action,omitempty"`
	Detail     json.RawMessage `json:"detail,omitempty"`
	Message    string          `json:"message,omitempty"`
	Stream     string          `json:"stream,omitempty"`
	Ref        string          `json:"ref,omitempty"`
	MediaType  string          `json:"mediaType,omitempty"`
	Attributes json.RawMessage `json:"attributes,omitempty"`
	Scope      string          `json:"scope,omitempty"`
	Event      string          `json:"event,omitempty"`
	Unit       string          `json:"unit,omitempty"`
	Node       string          `json:"node,omitempty"`
	Service    string          `json:"service,omitempty"`
	// Truncated says that a field was cut to fit MaxTraceEventBytes.
	Truncated bool `json:"truncated,omitempty"`
}

// Cost is what one model call used. A number that the harness did not report is
// absent, never 0. Input excludes cache reads and writes; output includes
// reasoning.
type Cost struct {
	InputTokens      *int64   `json:"inputTokens,omitempty"`
	OutputTokens     *int64   `json:"outputTokens,omitempty"`
	CacheReadTokens  *int64   `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens *int64   `json:"cacheWriteTokens,omitempty"`
	ReasoningTokens  *int64   `json:"reasoningTokens,omitempty"`
	USD              *float64 `json:"usd,omitempty"`
}

// Usage is what a run used in all. A null number is unknown. Prompt tokens
// include cache reads and writes, completion tokens include reasoning.
type Usage struct {
	PromptTokens     *int64   `json:"promptTokens"`
	CompletionTokens *int64   `json:"completionTokens"`
	TotalTokens      *int64   `json:"totalTokens"`
	CacheReadTokens  *int64   `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens *int64   `json:"cacheWriteTokens,omitempty"`
	ReasoningTokens  *int64   `json:"reasoningTokens,omitempty"`
	USD              *float64 `json:"usd"`
	Calls            *int64   `json:"calls"`
	// TokensSource and USDSource say where the numbers come from, such as
	// "claude-code:result.modelUsage".
	TokensSource string `json:"tokensSource,omitempty"`
	USDSource    string `json:"usdSource,omitempty"`
	// Partial says that the harness was cut short, so that the numbers are a
	// lower bound.
	Partial bool `json:"partial,omitempty"`
}
