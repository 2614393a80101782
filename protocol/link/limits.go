package link

import (
	"fmt"
	"time"

	"github.com/everdict/everdict/protocol"
)

// Limits of the wire. Both ends compile the same constants: a sender checks before it sends and gets a *LimitError, a
// receiver that sees a larger item ends the stream with a *ProtocolError. They are part of the protocol's version and
// therefore not configurable.
const (
	// MaxMessage bounds one JSON message, in bytes. The largest real one is a hello that lists many held leases.
	MaxMessage = 1 << 20
	// MaxData bounds the payload of one bulk frame, in bytes.
	MaxData = 64 << 10
	// MaxJob bounds the job document of one attempt, in bytes. It travels in bulk frames.
	MaxJob = protocol.MaxJobBytes
	// MaxResult bounds the result document of one attempt, in bytes. Heavy evidence belongs into artifact channels.
	MaxResult = 20 << 20
	// MaxChannelName bounds the name of an evidence channel, in bytes.
	MaxChannelName = 200
	// MaxChannels bounds the channels of one evidence stream.
	MaxChannels = 256
	// MaxLeases bounds the leases of one hello or heartbeat, and the waiting pulls of one runner.
	MaxLeases = 256
	// MaxID bounds every identifier and token, in bytes.
	MaxID = 256
	// MaxText bounds every text for people (a reason, a question, a status), in bytes.
	MaxText = 16 << 10
	// MaxStreams bounds the streams that one end may have open towards the other.
	MaxStreams = 1024
)

const (
	// yamuxWindow is the smallest window that yamux permits. It bounds what one stream can have in flight.
	yamuxWindow = 256 << 10
	// yamuxBacklog bounds streams opened but not yet accepted: an opener waits meanwhile. yamux allocates a channel of this
	// length per session.
	yamuxBacklog = 16
	// runnerWrite is the largest piece that a runner puts into yamux's queue at once: what a heartbeat waits behind.
	runnerWrite = 16 << 10
	// coordinatorWrite is smaller because yamux keeps a buffer as large as the largest piece it ever sent, per session.
	coordinatorWrite = 4 << 10
	// smallWrite is the size up to which a piece does not take the session's bulk turn.
	smallWrite = 1 << 10
	// serverReader and serverWriter replace the 4 kB buffers which net/http hands over with a hijacked connection. The
	// reader has room for a websocket header and yamux's, as yamux reads the rest into a buffer of its own; the writer for
	// the small messages that an idle session exchanges, so that they leave in one packet.
	serverReader, serverWriter = 64, 512
)

const (
	// redialsPerSecond is how many runners of a fleet that lost its coordinator come back in a second. A handshake costs
	// both ends together about a millisecond of a core, so that this leaves a small machine room for everything else.
	redialsPerSecond = 500
	// maxRedial bounds the window: leases must be renewed before LeaseTTL - LeaseMargin.
	maxRedial = 30 * time.Second
)

// Timing holds the durations of a session. The zero value of each field means its default. The coordinator announces
// its own in the welcome (Settings) and the runner follows them, so that the two cannot contradict each other.
type Timing struct {
	// Heartbeat is the interval of the one heartbeat of the session. Default 10 s.
	Heartbeat time.Duration
	// HeartbeatTimeout is how long a runner waits for the answer to one heartbeat before it gives the session up.
	// Default 20 s: a lost beat leaves time for a redial before LeaseTTL - LeaseMargin.
	HeartbeatTimeout time.Duration
	// LeaseTTL is how long a renewed lease lasts, counted by the coordinator from the arrival of the heartbeat and by
	// the runner from the moment before it was sent. Default 60 s.
	LeaseTTL time.Duration
	// LeaseMargin is how long before the end of LeaseTTL a runner that could not renew must have frozen its work.
	// Default 10 s.
	LeaseMargin time.Duration
	// StartAck is how long an offered attempt waits for Started or Refuse. Default 30 s.
	StartAck time.Duration
	// Ping is the interval of the runner's pings, which the coordinator's session answers by itself. They keep
	// proxies from closing an idle connection and feed both read deadlines. Default 15 s.
	Ping time.Duration
	// DeadPeer is the read deadline of the connection: an end that received no byte for so long gives it up.
	// Default 40 s, so that a dead peer is found within 45 s.
	DeadPeer time.Duration
	// Write bounds each write of one piece to the connection, waiting for its turn included. Default 30 s.
	Write time.Duration
	// Reply bounds the wait for the answer to a call (Started, GiveBack, OpenEvidence), and a pause inside a frame.
	// Default 30 s.
	Reply time.Duration
	// Ack bounds the wait for the acknowledgement of a chunk or a result, which includes the coordinator's disk.
	// Default 60 s.
	Ack time.Duration
	// Handshake bounds dialling, upgrade, hello and welcome together. Default 15 s.
	Handshake time.Duration
	// Close bounds saying goodbye. Default 2 s.
	Close time.Duration
}

// DefaultTiming returns the numbers of the design, which hold together (see Timing.Check).
func DefaultTiming() Timing { return Timing{}.withDefaults() }

func (t Timing) withDefaults() Timing {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&t.Heartbeat, 10*time.Second)
	def(&t.HeartbeatTimeout, 20*time.Second)
	def(&t.LeaseTTL, 60*time.Second)
	def(&t.LeaseMargin, 10*time.Second)
	def(&t.StartAck, 30*time.Second)
	def(&t.Ping, 15*time.Second)
	def(&t.DeadPeer, 40*time.Second)
	def(&t.Write, 30*time.Second)
	def(&t.Reply, 30*time.Second)
	def(&t.Ack, 60*time.Second)
	def(&t.Handshake, 15*time.Second)
	def(&t.Close, 2*time.Second)
	return t
}

// Check reports the first pair of durations that contradict each other. Zero fields count as their defaults.
func (t Timing) Check() error {
	t = t.withDefaults()
	for _, d := range []time.Duration{t.Heartbeat, t.HeartbeatTimeout, t.LeaseTTL, t.LeaseMargin, t.StartAck, t.Ping,
		t.DeadPeer, t.Write, t.Reply, t.Ack, t.Handshake, t.Close} {
		if d < 0 {
			return fmt.Errorf("link: timing: negative duration %v", d)
		}
	}
	switch {
	case t.Heartbeat+t.HeartbeatTimeout >= t.LeaseTTL-t.LeaseMargin:
		return fmt.Errorf("link: timing: heartbeat %v + its timeout %v leave no time to redial before the freeze at %v",
			t.Heartbeat, t.HeartbeatTimeout, t.LeaseTTL-t.LeaseMargin)
	case 2*t.Ping >= t.DeadPeer:
		return fmt.Errorf("link: timing: ping %v must be less than half of dead peer %v, or one lost ping ends a session",
			t.Ping, t.DeadPeer)
	case 2*t.Heartbeat >= t.DeadPeer:
		return fmt.Errorf("link: timing: heartbeat %v must be less than half of dead peer %v", t.Heartbeat, t.DeadPeer)
	}
	return nil
}

// settings is what the coordinator tells the runner of its own timing.
func (t Timing) settings() Settings {
	return Settings{
		Heartbeat: Duration(t.Heartbeat), HeartbeatTimeout: Duration(t.HeartbeatTimeout),
		LeaseTTL: Duration(t.LeaseTTL), LeaseMargin: Duration(t.LeaseMargin), StartAck: Duration(t.StartAck),
		Ping: Duration(t.Ping), DeadPeer: Duration(t.DeadPeer),
	}
}

// adopt returns t with what the coordinator announced. A value that contradicts the others leaves t as it is: a runner
// must not be talked into a heartbeat that outlives its lease.
func (t Timing) adopt(s Settings) Timing {
	n := t
	set := func(d *time.Duration, v Duration) {
		if v > 0 {
			*d = time.Duration(v)
		}
	}
	set(&n.Heartbeat, s.Heartbeat)
	set(&n.HeartbeatTimeout, s.HeartbeatTimeout)
	set(&n.LeaseTTL, s.LeaseTTL)
	set(&n.LeaseMargin, s.LeaseMargin)
	set(&n.StartAck, s.StartAck)
	set(&n.Ping, s.Ping)
	set(&n.DeadPeer, s.DeadPeer)
	if n.Check() != nil {
		return t
	}
	return n
}
