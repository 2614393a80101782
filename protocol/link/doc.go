// Package link is the session between a runner and its coordinator: one websocket that the runner dials, one yamux
// session inside, and a handful of streams with typed messages. It knows no queue and no sandbox: jobs and results are
// opaque JSON, and what an answer means for a lease is decided by the callers on both sides.
//
// This page is the contract. A program in another language that keeps to it is a runner.
//
// # Connection
//
// The runner sends GET /agent/connect with "Upgrade: websocket", "Sec-WebSocket-Protocol: everdict.link.v1" and
// "Authorization: Bearer <credential>". The route has no query: a request with one is refused with 400 query_refused,
// whatever is in it, because a credential in a URL ends up in every proxy's log. A refusal is an HTTP answer with a
// problem body {code, message, hint?, data?}. With such a body 401 and 403 mean "this credential is not good" (the
// runner stops, *RevokedError), 409 "this runner is connected and stays so" (stops, *TakenOverError), 426 "too old"
// (stops, *UpdateRequiredError), 429 and 503 "later", with Retry-After in seconds. Without such a body the answer is
// from something on the way, and the runner tries again (*HTTPError).
//
// The credential is a token (rnr_), or a device session (drs_), which a machine makes anew for each connection: it asks
// with POST /agent/nonce, without a credential, and signs the nonce that it gets with its device key
// (protocol.SignSession). A nonce is good for a minute and for one session, and of no use to another process of the
// coordinator: 401 with the code "nonce" says that it is over, and the runner gets another one (*HTTPError).
//
// Binary websocket messages carry the yamux session, whose client is the runner. A stream is a sequence of frames:
//
//	kind (1 byte), length of the payload (4 bytes, big endian), payload
//	'J'  a JSON object, at most MaxMessage bytes; its field "type" names the message
//	'D'  a piece, at most MaxData bytes, of the document (job, result) that the message before announced
//	'C'  evidence: offset (8 bytes, big endian), length of the channel's name (1 byte), name, at most MaxData bytes
//	'S'  a piece of a sub-stream of an exec or a file view: its number (1 byte), at most MaxData bytes
//
// The first message of a stream says what the stream is. A receiver ignores fields, message types and kinds of frames
// that it does not know, except as the first of a stream, which it answers with error{unsupported}. A frame that is too
// long or cannot be decoded ends the stream with error{protocol}; on the control stream, the session. Limits are
// constants that both ends know; a sender checks them first and gets a *LimitError with nothing sent.
//
// Durations travel as whole milliseconds. No message carries a time of day: two machines' clocks are never compared.
//
// # Time
//
//	heartbeat                10 s   sent by the runner, answered by the coordinator
//	heartbeat's answer       20 s   then the runner ends the session and redials
//	lease                    60 s   freeze at 50 s if it could not be renewed
//	ping                     15 s   sent by the runner, answered by the coordinator's yamux
//	silence                  40 s   either end that received no byte for so long ends the session (found within 45 s)
//	no heartbeat             40 s   the coordinator ends the session even if other bytes arrive
//	start acknowledgement    30 s   after the offer
//	answer to a call         30 s   then the caller ends the session: nobody knows what became of the question
//	acknowledged chunk       60 s   then the sender ends the stream, not the session: the disk over there is slow
//	one write                30 s   waiting for its turn included, then the session ends
//	hello                    15 s   from dialling to the welcome
//
// The coordinator announces its numbers in the welcome and the runner follows them. Everything that a coordinator
// says about a lease's life counts, at the runner, from the moment before the question was sent, on the larger of
// monotonic and wall time (Elapsed), and at the coordinator from the moment the question arrived, which is later.
//
// # Control: opened by the runner, once, first of all streams
//
//	hello            runner  who it is, what it offers, and every attempt that it still holds, with epoch, token and
//	                         acknowledged offsets. Also those that are finished and wait in the outbox.
//	welcome          coord.  the session is accepted. One verdict per lease of the hello.
//	update_required  coord.  instead of a welcome: too old. The close follows.
//	cancel           coord.  end this attempt. Not answered.
//	drain            coord.  no more offers; the close follows; come back after retry_after. Not answered.
//	status           coord.  a line for the runner's user. Not answered.
//
// Hello and heartbeat say the runner's Terms: whose runs its owner lets it take, and why it is paused, if it is. They
// hold from that message on. Nobody but the runner's own machine says them: no API of the coordinator widens a scope.
//
// After the hello the runner sends nothing more here and the coordinator reads nothing: what a runner has to say it says on
// a stream of its own, so that an idle session costs the coordinator no goroutine that waits for it.
//
// # Heartbeat: opened by the runner, one stream each
//
//	heartbeat      runner  the leases to renew, and the requests of the waiting pulls. The first goes out at once.
//	heartbeat_ack  coord.  a verdict per lease of the heartbeat (one without is not renewed), and the pulls that it does not know.
//
// There is one heartbeat for the whole session and at most one on its way. It waits for nothing but its turn on the
// connection: it has its own goroutine, stream and deadline; large writes are cut into pieces of 16 kB that take turns, so that
// yamux's queue holds one of them at most; and unacknowledged evidence is bounded by measured delay (pacer), so that the
// buffers of kernels and proxies do not hold many seconds of bytes on a slow link.
//
// Verdicts on a lease, in welcome, heartbeat_ack and standing:
//
//	stands     it is the active attempt; renewed for ttl from the moment before the question. Thaw, go on.
//	stale      it is not, and never will be again: stop at once. Evidence and result are still taken, as late evidence.
//	cancelled  the run is to end: stop, then send the result that says so.
//	(absent)   nothing is said: neither renewed nor lost. The old deadline counts.
//
// A lost heartbeat or a lost answer has the same effect: the lease is renewed at the coordinator or not, the runner
// counts it as not renewed. So the runner always stops first. A lost cancel is repeated as the verdict "cancelled" in the next
// heartbeat_ack. A pull that two answers in a row call unknown fails with ErrPullLost, and the runner pulls again:
// a runner whose heartbeat lives and whose pull is dead does not wait for ever.
//
// # Pull: opened by the runner, one per free slot
//
//	pull       runner  a request id that the runner made. It waits as long as it takes; there is no polling.
//	offer      coord.  an attempt: run, job, epoch, token, ttl, start within; then the job in 'D' frames. The job can hold the values of
//	                   secrets, as they are when it is offered; neither end logs it or keeps it.
//	started    runner  work begins.             Answer: standing.
//	refuse     runner  it does not, and why.    Answer: standing.
//	error      coord.  instead of an offer: draining, replaced, or the application's own.
//
// A request id names one wish for one attempt. While the wish is open (the offer not acknowledged, the pull not withdrawn),
// asking again with the same id, on this session or a later one, yields the same attempt; that makes a lost offer
// harmless. What each combination means:
//
//	offer lost, asks again          the same attempt again
//	offer lost, does not ask again  the start acknowledgement's time ends, the attempt returns to the queue
//	started -> stands               go on
//	started -> stale, cancelled     do not: it was given to another, or the run was cancelled meanwhile
//	started -> answer lost          unknown: ask with a heartbeat, which lists the attempt as held; stands or stale
//	refuse  -> anything             the attempt is not the runner's any more
//	withdraw crosses the offer      the coordinator takes the attempt back at once (Handler.GiveBack, withdrawn)
//	session lost before the offer   the wish stays open for the next session
//
// Cancelling the context of Pull withdraws the wish, and the id is spent. It does not cancel an attempt that Pull has returned.
//
// # Evidence: opened by the runner, one per attempt, again after each loss
//
//	evidence    runner  the attempt, with its token.
//	ready       coord.  its standing, and per channel the bytes that are stored.
//	'C' chunk   runner  bytes of a channel (log, trace, artifact:<name>) at an offset.  Answer: ack.
//	ack         coord.  the channel is stored up to offset. Cumulative. With closed: no more of this channel, it is
//	                    at its cap; truncated evidence, not an error.
//	result      runner  after the last ack: the result in 'D' frames.
//	result_ack  coord.  the verdict on it.
//
// Offsets only go forward, without holes. A sender goes on from what ready says, which may be more than it knew (the ack
// was lost) and is never less than what was acknowledged. Chunks below the stored offset are ignored and acknowledged
// again; above it they are a protocol error. The sender may forget what is acknowledged, and nothing else. Bytes that
// the runner lost itself are told in a channel, beside what it has.
//
//	accepted      the run is settled with this result. Forget it. Also the answer to the same result sent twice.
//	stale         kept as late evidence of a superseded attempt; the record is not changed. Forget it.
//	rejected      it can never be taken as it is (code and message say why). Do not send it again.
//	error{...}    this time it could not be stored. Send it again later, on a new stream.
//	answer lost   not known. Send it again, on a new stream; the coordinator answers the same.
//
// Ending an evidence stream cancels nothing: the lease goes on. A stale attempt may still open one.
//
// # Calls: opened by the runner, one question and one answer each
//
//	withdraw   runner  a pull's caller has gone; sent before that pull's stream ends.       Answer: done.
//	drain      runner  it takes no more attempts.                                           Answer: done.
//	status     runner  a line for people.                                                   Answer: done.
//	give_back  runner  an attempt that it holds, started or not, returns to the queue now.  Answer: standing (before).
//	ask        runner  a running job asks a person. Waits for days if need be.              Answer: answer, or error.
//
// If the session ends while a question waits, ask again with the same id. Closing the stream withdraws nothing: the person may
// answer, and the next ask with the same id gets that answer at once.
//
// # Streams that the coordinator opens
//
//	open      coord.  kind (file, exec, attach), the attempt, and parameters.
//	opened    runner  it is served. Or error: unsupported when the runner has no such handler.
//	'S'       both    bytes of a sub-stream (0 stdin, 1 stdout, 2 stderr).
//	consumed  both    so many bytes were taken. At most 64 kB may be on their way that were not; 'S', eof, resize and exit count
//	                  as 64 bytes at least.
//	eof       both    no more bytes of this sub-stream.
//	resize    coord.  the terminal's size.
//	exit      runner  how it ended; the last message.
//
// They are views: closing one ends the command that exec started and nothing else of the attempt.
//
// # The end of a session
//
// Either end closes with a websocket close code, and the other sees a typed error:
//
//	1000 normal                ErrClosed             redial
//	4001 revoked               *RevokedError         stop: the owner took the credential back
//	4002 taken over            *TakenOverError       stop: a newer session of the same runner lives
//	4003 update required       *UpdateRequiredError  stop
//	4004 draining              *DrainingError        redial after retry_after
//	4005 protocol              *ProtocolError        redial
//	4006 timeout               ErrDeadPeer           redial
//	4007 internal              ErrClosed             redial
//	(none, connection lost)    ErrClosed             redial
//
// Which of two sessions of one runner wins is the coordinator's Handler.Hello to decide; it closes the other.
// The end of a session settles nothing: leases live until their deadline, pulls until they are withdrawn or time out,
// evidence goes on where it was acknowledged. Work in a sandbox does not notice. Redialling (Keep) takes a random
// moment of a window that doubles, so that a thousand runners do not come at once. The first window is at least what the
// coordinator announced last, in the welcome and in each heartbeat_ack (redial_ms): 2 ms for each runner that is connected,
// 30 s at most. One runner is back at once, 5,000 come at 500 a second.
package link
