// Package fleet starts the runners of registered runtimes on their clusters. It holds
// wanted against seen and does what is missing, again and again:
//
//	wanted   from the lease queue: the jobs that are queued for a runtime's pool, as many
//	         as its limits admit, and those that a launched runner holds
//	seen     from the cluster: every unit with this coordinator's label
//
// There is no counter and no record of launches. A unit's name follows from its job and
// the attempt that it is for, so that a launch that is repeated finds itself; whatever a
// restart forgets, the two lists say again.
//
// # A unit
//
// A unit is what a cluster runs for one attempt: a Kubernetes Job, say, or on the
// coordinator's own machine a process. Its runner joins
// the pool with a token that is good once and names the job, takes that job and no
// other, and ends. So a unit is sized by what its job declares, and a cluster never has
// more units than the pool has slots.
//
//	launching ──► pending ──► running ──► ended ──► gone
//	    │            │           │
//	    └────────────┴───────────┴── trouble: what the cluster says, in its own words
//
// What a unit that has ended printed may have the only copy of its result. Where the cluster
// does not give it, the unit stays and is asked again, for PendingTimeout. Of a unit that is
// not wanted any more, a result that nobody has is kept as late evidence before it goes.
//
// What trouble means depends on where the job stands:
//
//	job        trouble                            then
//	queued     final (no such image, ended, ...)  the attempt is over (run.Unplaced)
//	queued     may pass (unschedulable, quota)    the run's placement says so; final after PendingTimeout
//	leased     its process is surely over         the attempt is over (run.Ended)
//	leased     nobody knows (node lost)           the lease runs out, with this as the reason (run.Foretell)
//	leased     none, but it has run for too long  the attempt is over (run.Ended); see deadline.go
//
// A unit whose job is settled, is held by another runner, or has gone on to a later
// attempt is not wanted. It is terminated after Grace, in which most end by themselves.
//
// # A standing unit
//
// A unit that is not for one attempt alone is a standing one (reuse.go). It is launched
// before there is a job for it (RuntimeSpec.Warm), or its runner waits for another when it
// has had one (RuntimeSpec.IdleSeconds). Its size is in its note, which the cluster keeps,
// and it gets only jobs that declare exactly that size, since the unit's limits are the
// job's. Its runner never chooses: it is bound to the job that the fleet gives it (Bind),
// and to none until then.
//
//	idle ──► given a job ──► its runner holds the lease ──► idle, or it ends
//	  │            │
//	  │            └── does not take it: the job is free again, and costs no attempt
//	  └── gives way to a job that does not fit, of an older version, too many: removed
//
// An idle unit has a slot, its memory and its CPU, as one with a job has. What was given is known to
// this process alone; after a restart it is given again. Between two jobs the runner
// empties its container (agent/sandbox/unit), and ends where it cannot do that for
// certain. A unit belongs to one workspace's pool, and so does what it runs.
//
// # A unit with a payload
//
// A unit of a runtime with RuntimeSpec.Payload reaches nobody, perhaps (payload.go). In the
// middle of its launch the run is handed out to it: from then on it holds the lease, which
// the coordinator renews, so that nothing runs out. It may begin as soon as its launch is
// complete, and perhaps when that failed. So what does not begin is removed first, and
// its attempt ends when it is not there any more:
//
//	unit       trouble                              then
//	launching  cut off, and the payload is known    the launch goes on with it
//	launching  cut off by the end of this process   removed, gone, the attempt is over (run.Ended)
//	pending    final; may pass, for PendingTimeout  the same
//	running    -                                    the cluster forgets the payload
//	running    final, nobody knows                  its time runs out, with this as the reason
//	ended      -                                    the result in its output, else what the cluster says
//	gone       by itself                            its time runs out
//
// # Where earlier versions were
//
// Units carry the name of their runtime and no version, so that whoever looks at a place,
// an address and a namespace, sees those of every version that had it. A version at another
// place becomes the one that is launched on, and the place before it keeps a client
// (earlier.go): its units go on, are swept as all others are, and the client goes when there
// are none. That goes on while the latest version's cluster cannot be reached, and when its
// runners are of a kind that is not launched. After a start the places of the versions that
// are stored are asked in the same way. A kubeconfig in a secret says where, too: one that gets
// another value leaves the client of the value before for an earlier place, while this process
// lives. One that does not answer holds up nothing:
//
//	asked      the first time, and as long as it answers, a look waits 2 s for it
//	is silent  its units are not seen; no look waits, and it is asked again with a backoff
//	           that ends at MaxBackoff. A run that waits may get a second unit meanwhile:
//	           the queue gives it to one of them, and the other is swept
//	answers    its units are seen again; none: the client goes
//
// # Who may decide
//
// The queue alone says which attempt stands; a unit gives no right to anything. A lease
// is taken from a runner before it runs out only when the cluster says that the process
// is over. Clocks of the cluster are not read: PendingTimeout and Grace count on this
// process's clock from when it first saw, and a restart only lengthens them.
package fleet
