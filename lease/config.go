package lease

import (
	"log/slog"
	"time"
)

// Config of a queue. The zero value takes every default, which are set so that they hold together: heartbeats come every
// 10 s, so a TTL of 60 s survives five lost ones, and a holder that freezes at TTL - 10 s is frozen before the lease
// can be given away.
type Config struct {
	// TTL is how long a lease stands without renewal. Default 60 s.
	TTL time.Duration
	// StartAck is how long a lease stands without the acknowledgement of its start. Default 30 s.
	StartAck time.Duration
	// OnlineWindow is how long after its last word a runner counts as online. Default 30 s.
	OnlineWindow time.Duration
	// QueueDeadline is how long a job may be queued. Default 24 h.
	QueueDeadline time.Duration
	// Aging is the wait after which a batch job counts as interactive. Default 60 s.
	Aging time.Duration
	// MaxAttempts bounds the attempts that end in a lost lease or a counted return. Default 3.
	MaxAttempts int
	// MaxUnstarted bounds the leases of a job that nobody acknowledges; they do not count as attempts, because nothing ran,
	// but a job that no runner can start must end. Default 10.
	MaxUnstarted int
	// RetryDelay is how long a job waits for its next attempt after the first counted failure, at most; a random moment of
	// the second half is taken. Each further failure makes it four times as long, up to MaxRetryDelay. Defaults 1 s and
	// 1 min: an image that cannot be pulled now, or a disk that is full, wants a moment. A negative RetryDelay means none.
	RetryDelay, MaxRetryDelay time.Duration
	// Retention is how long a settled job is remembered, so that late results are answered as stale and not as unknown.
	// Default 7 days. Payloads of settled jobs go sooner.
	Retention time.Duration
	// Limit of a pool for which SetLimit was not called. Default 20 leases at a time, no memory budget.
	Limit *Limit
	// OnChange runs inside the transaction of every change, after the operation's own hook; see [Hook]. For a change that
	// the queue decides by itself an error means that the change is tried again a second later. Default none.
	OnChange Hook
	// Committed is told of every change after it is on the disk and before its caller is, in order, on the writer's
	// goroutine: it must return at once and not call the queue. Default none.
	Committed func([]Event)
	// Now is the coordinator's clock; only differences of it are used, except that queue deadlines survive a restart.
	// Default time.Now.
	Now func() time.Time
	// Log receives what no caller is told: a hook that failed in a change of the queue's own. Default slog.Default.
	Log *slog.Logger
}

// Limit is what the leases of a pool's own runners may take together.
type Limit struct {
	// MaxConcurrent leases; 0 means no limit.
	MaxConcurrent int
	// MemoryMB is the budget over the declared memory of leased jobs, in MiB; 0 means no limit.
	MemoryMB int64
	// CPU is the budget over the declared CPU of leased jobs, in thousandths of a core; 0 means no limit.
	CPU int64
}

// DefaultMaxConcurrent is the slot limit of a pool that states none.
const DefaultMaxConcurrent = 20

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&c.TTL, 60*time.Second)
	set(&c.StartAck, 30*time.Second)
	set(&c.OnlineWindow, 30*time.Second)
	set(&c.QueueDeadline, 24*time.Hour)
	set(&c.Aging, 60*time.Second)
	set(&c.Retention, 7*24*time.Hour)
	if c.RetryDelay == 0 {
		c.RetryDelay = time.Second
	}
	set(&c.MaxRetryDelay, time.Minute)
	c.MaxRetryDelay = max(c.MaxRetryDelay, c.RetryDelay)
	if c.MaxAttempts <= 0 {
		c.MaxAttempts = 3
	}
	if c.MaxUnstarted <= 0 {
		c.MaxUnstarted = 10
	}
	if c.Limit == nil {
		c.Limit = &Limit{MaxConcurrent: DefaultMaxConcurrent}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}
