// Package lease is a durable queue of jobs that runners pull under leases. It knows no HTTP and no agent, and is usable by
// itself: open a database with package sqlite, [Open] a [Queue] on it, let [Queue.Run] pass the time.
//
// # States
//
//	Enqueue ─────────► queued ──── Pull ────► leased ── Started ──► leased, started
//	   │              ▲   │  ▲                  │ │                    │
//	   │ (parked)     │   │  └── start not acknowledged, lease expired, GiveBack, Retry
//	   ▼              │   │                     │ │                    │
//	 parked ── Resume ┘   │             ParkLease/Resume: held, same epoch
//	   ▲                  │                     │ │                    │
//	   └────── Park ──────┤                     ▼ ▼                    ▼
//	                      └─ Cancel, deadline ► settled ◄── Settle, Cancel, Reject, attempts exhausted
//
//	from     to       by                              cause in the event
//	queued   leased   a matching pull                 attempt (the epoch) + 1
//	leased   queued   no Started within StartAck      start_timeout; counts against MaxUnstarted, not MaxAttempts
//	leased   queued   no Renew within TTL             expired or coordinator_restart; counts if it had started
//	leased   queued   either, and the runner fenced   fenced; counts as above
//	leased   queued   GiveBack                        counts if the caller says so
//	                                                  (after what counts as an attempt, RetryAt says when it can be leased again)
//	leased   settled  Settle by the epoch that holds
//	leased   settled  any of the four above           exhausted, or what a person asked for meanwhile
//	queued   settled  queue deadline                  unschedulable, with the sentence that Explain would have given
//	any      settled  Cancel, Reject                  at once, unless a live holder must be asked to stop first
//	queued   parked   Park (or enqueued so)           no deadline and no slot while parked
//	parked   queued   Resume                          with a new queue deadline
//
// Settled is for good: no operation leads out of it.
//
// # Who is the authority
//
// The coordinator's queue, and nothing else, decides which attempt of a job stands. An attempt is named by a [Ref]: the job,
// its epoch, and a token that only its holder was told. Operations of a holder carry the Ref and are refused with a
// [*StaleError] when another epoch stands or the job is over. So a result is taken from one attempt only, however many
// processes believe that they hold the job.
//
// One goroutine decides: the writer of the database owns the queue's memory. It runs every operation of a group, leases
// to waiting pulls what the group made possible, commits, and only then tells anybody. Memory holds the live leases, the
// waiting pulls, and the heads of the lanes; a lane is the FIFO of the jobs that no matcher can tell apart, so only its head
// is ever matched, and a million jobs that nobody can take cost nothing. When a commit fails, all callers of the group get
// the error and memory is read anew from the disk.
//
// Free slots and memory are counted from the live leases each time. There is no counter that could differ from them.
//
// # What a clock may decide
//
// The coordinator's clock alone ends leases, by durations since the last renewal, on the monotonic clock: setting the wall
// clock ends nothing. Lease deadlines are not stored. A coordinator that starts gives every lease on disk one fresh TTL,
// because it cannot know who spoke while it was away; for the same reason a coordinator that finds that it was not
// running itself (stopped, suspended, held up by its disk for a quarter of a TTL) gives every lease a fresh one. Both only
// lengthen leases. Queue deadlines do survive restarts, and between two lives only the wall clock can measure them; a wrong
// wall clock there ends a wait early or late, and never an attempt.
//
// A runner's clock decides one thing, in one direction: when the runner must stop trusting its lease. It counts the TTL that
// it was told from the moment at which it sent the renewal, not from when the answer came, so its lease ends for it before it
// ends for the coordinator; there must be a margin in which it freezes what runs. No time of a runner is ever sent, and no
// two machines' clocks are compared. A frozen runner asks by [Queue.Renew] or [Queue.Adopt] whether its epoch stands
// before it goes on.
//
// An expired lease therefore means: the holder has frozen, died, or is cut off and frozen. Only then is the job given away.
// [Queue.GiveBack] is the short cut, and by it the caller says that nothing of the attempt runs any more.
//
// # What each operation guarantees when it returns
//
// Every operation that returns nil, and every lease that Pull returns, is on the disk (fsync) with whatever its [Hook] did in
// the same transaction. An operation that returns an error has changed nothing on the disk.
//
//   - Enqueue, EnqueueAll: the job is accepted and will settle, whatever crashes. A known id is [ErrExists].
//   - Pull: the attempt is leased to this runner and to nobody else. Asking again with the same request id answers the same
//     attempt for as long as it stands, across restarts. If ctx ends first there may still be a lease that nobody was told of;
//     it answers to its request id, or times out unstarted.
//   - Started: the attempt counts as running; it is idempotent and also renews.
//   - Renew, Adopt: nothing is written. The answer is true as of the last commit.
//   - Settle: this attempt ended the job. [ErrAlreadySettled] to a repeat by the same attempt: acknowledge the sender.
//     [*StaleError]: keep what came as late evidence.
//   - GiveBack, Retry: the job is queued at its old place, or has settled; the [Disposition] says which.
//   - Cancel, Reject: settled, or the holder is being asked to stop; the first result says which.
//   - Park, ParkLease, Resume: as the table says.
//   - Fence: nothing that these runners say of a lease is taken any more, across restarts. Their leases run out.
//   - Explain: the verdicts of the matcher that leases, on the state at that moment.
//
// # Order
//
// Interactive before batch; a batch job that has waited for [Config.Aging] counts as interactive. Within that, weighted fair
// queueing over workspaces by virtual start times, which a restart forgets. Within a workspace, by arrival; a job that comes
// back keeps its place. An entry that cannot be placed is skipped. A job whose attempt failed in a way that counts is set
// aside until its retry is due, after a delay that grows with its failures ([Config.RetryDelay]): nobody waits behind it
// meanwhile, its queue deadline goes on, it can be cancelled and parked, and the delay survives a restart.
//
// A pull costs a look at each lane of the pools that its runner serves; an enqueue, a look at each crowd of waiting runners of its pool, which offer the same, and at the homes of
// those that fit until one has room. Thousands of idle runners are one crowd.
package lease
