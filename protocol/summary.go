package protocol

// Summary is the answer of GET /summary: a workspace at one moment, and its last day.
type Summary struct {
	At      Time        `json:"at"`
	Runs    OpenRuns    `json:"runs"`
	Pools   []PoolUse   `json:"pools"`
	Waiting []WaitGroup `json:"waiting"`
	// Runners that are shown, paired and of pools.
	Runners RunnerCounts `json:"runners"`
	// Hours are the last 24 and the one that is not over, oldest first; Day is their sum.
	Hours []Outcomes `json:"hours"`
	Day   Outcomes   `json:"day"`
}

// OpenRuns counts the runs that are not over, by status.
type OpenRuns struct {
	Queued    int64 `json:"queued"`
	Running   int64 `json:"running"`
	Suspended int64 `json:"suspended"`
}

// WaitGroup are runs that wait for the same reason.
type WaitGroup struct {
	// Why is a word for programs, Reason a sentence for people: that of RunID, which is
	// the first of them.
	Why    string `json:"why"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	Pool   string `json:"pool"`
	RunID  string `json:"runId,omitempty"`
	// Since is when that run began to wait.
	Since *Time `json:"since,omitempty"`
}

// RunnerCounts counts runners. Busy and Slots are runs at a time, of those online.
type RunnerCounts struct {
	Total  int `json:"total"`
	Online int `json:"online"`
	Busy   int `json:"busy"`
	Slots  int `json:"slots"`
	// Degraded runners are online and have a warning or an error as their status.
	Degraded       int `json:"degraded"`
	UpdateRequired int `json:"updateRequired"`
}

// Outcomes counts how runs ended. USD and Tokens sum over those UsdRuns and TokensRuns
// that knew theirs; absent: none did.
type Outcomes struct {
	// At is the first moment of the hour.
	At *Time `json:"at,omitempty"`
	// Runs is all of them.
	Runs int64 `json:"runs"`
	// Passed and Failed have a verdict, Ungraded a result without one.
	Passed    int64 `json:"passed"`
	Failed    int64 `json:"failed"`
	Ungraded  int64 `json:"ungraded"`
	Cancelled int64 `json:"cancelled"`
	// Failures have no result, by class.
	Failures   map[string]int64 `json:"failures"`
	USD        *float64         `json:"usd,omitempty"`
	USDRuns    int64            `json:"usdRuns"`
	Tokens     *int64           `json:"tokens,omitempty"`
	TokensRuns int64            `json:"tokensRuns"`
}

// AddUSD adds what so many runs cost.
func (o *Outcomes) AddUSD(usd float64, runs int64) {
	if o.USD != nil {
		usd += *o.USD
	}
	o.USD, o.USDRuns = &usd, o.USDRuns+runs
}

// AddTokens adds what so many runs used.
func (o *Outcomes) AddTokens(tokens, runs int64) {
	if o.Tokens != nil {
		tokens += *o.Tokens
	}
	o.Tokens, o.TokensRuns = &tokens, o.TokensRuns+runs
}

// Add adds other runs.
func (o *Outcomes) Add(p Outcomes) {
	o.Runs, o.Passed, o.Failed = o.Runs+p.Runs, o.Passed+p.Passed, o.Failed+p.Failed
	o.Ungraded, o.Cancelled = o.Ungraded+p.Ungraded, o.Cancelled+p.Cancelled
	for class, n := range p.Failures {
		if o.Failures == nil {
			o.Failures = map[string]int64{}
		}
		o.Failures[class] += n
	}
	if p.USD != nil {
		o.AddUSD(*p.USD, p.USDRuns)
	}
	if p.Tokens != nil {
		o.AddTokens(*p.Tokens, p.TokensRuns)
	}
}
