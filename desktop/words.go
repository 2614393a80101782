package desktop

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/vault"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// trouble is why a connection has no session or no runner, in words.
type trouble struct {
	status     control.Status
	reason     control.Reason
	text, next string
	retryAt    *protocol.Time
	// final says that only a person can change it.
	final bool
}

// pauseWords are the reasons of a pause as the coordinator shows them, without a full stop.
var pauseWords = map[control.Reason]string{
	control.ReasonUser:    "its owner has paused it",
	control.ReasonHours:   "it is outside of its allowed hours",
	control.ReasonBattery: "it runs on battery",
	control.ReasonDocker:  "its container engine does not answer",
	control.ReasonDisk:    "its disk is nearly full",
}

// lost says why there is no session with host. The next try comes by itself.
func lost(err error, host string) trouble {
	t := trouble{status: control.StatusConnecting, reason: control.ReasonUnreachable}
	var (
		draining  *link.DrainingError
		answer    *link.HTTPError
		unknownCA x509.UnknownAuthorityError
		wrongName x509.HostnameError
		invalid   x509.CertificateInvalidError
		dns       *net.DNSError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		t.status, t.reason = control.StatusAttention, control.ReasonClock
		t.text = fmt.Sprintf("By this computer's clock the certificate of %s is not valid now: %s.", host, time.Now().Format("2 January 2006, 15:04"))
		t.next = "Set the clock if it is wrong. If it is right, the coordinator needs a new certificate."
	case errors.As(err, &unknownCA), errors.As(err, &wrongName), errors.As(err, &invalid):
		t.status, t.reason = control.StatusAttention, control.ReasonCertificate
		t.text = fmt.Sprintf("The certificate of %s is not trusted: something between here and there may be reading along.", host)
		t.next = "Check the network. A coordinator with a private CA needs that CA among the trusted ones of this computer, or in EVERDICT_CA_FILE."
	case errors.Is(err, link.ErrSlept):
		t.reason, t.text = control.ReasonSlept, "This computer was asleep. The connection is being made anew."
	case errors.As(err, &draining):
		t.reason, t.text = control.ReasonRestarting, fmt.Sprintf("%s is restarting.", host)
	case errors.As(err, &answer) && answer.Code == "":
		t.reason = control.ReasonRefused
		t.text = fmt.Sprintf("Something on the way to %s answers in its place: HTTP %d.", host, answer.Status)
		t.next = "If this network wants you to sign in, open any page in a browser."
	case errors.As(err, &answer):
		t.reason, t.text = control.ReasonRefused, fmt.Sprintf("%s cannot take this computer now: %s.", host, protocol.Clip(answer.Message, 200))
	case errors.As(err, &dns):
		t.text, t.next = fmt.Sprintf("The address of %s cannot be found.", host), "Check the network of this computer."
	case errors.Is(err, syscall.ECONNREFUSED):
		t.text = fmt.Sprintf("Nobody answers at %s: it may be restarting.", host)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		t.text, t.next = fmt.Sprintf("There is no way to %s.", host), "Check the network of this computer."
	default:
		t.text = fmt.Sprintf("There is no connection with %s.", host)
	}
	return t
}

// ended says why a runner for host has ended.
func ended(err error, host string) trouble {
	t := trouble{status: control.StatusAttention, reason: control.ReasonFailed}
	var (
		revoked *link.RevokedError
		taken   *link.TakenOverError
		update  *link.UpdateRequiredError
		config  *link.ConfigError
		locked  *agent.LockedError
		workDir *agent.WorkDirInUseError
	)
	switch {
	case errors.As(err, &revoked):
		t.reason, t.final = control.ReasonRevoked, true
		t.text = fmt.Sprintf("%s does not take this computer any more: it was revoked there.", host)
		t.next = "Connect it anew, or remove it here."
	case errors.As(err, &taken):
		t.reason, t.final = control.ReasonElsewhere, true
		t.text = fmt.Sprintf("Another process is connected to %s with the key of this computer. If that is not yours, the key was copied.", host)
		t.next = "Remove this connection and connect anew: the old key is worth nothing then. Or end the other one and try again."
	case errors.As(err, &update):
		t.reason, t.final = control.ReasonUpdate, true
		t.text = fmt.Sprintf("%s needs a newer Everdict than this one.", host)
		t.next = "Install the new version."
		if update.MinVersion != "" {
			t.next = fmt.Sprintf("Install version %s or newer.", protocol.Clip(update.MinVersion, 40))
		}
	case errors.As(err, &locked), errors.As(err, &workDir), errors.Is(err, outbox.ErrInUse):
		t.reason = control.ReasonElsewhere
		t.text = "Another runner on this computer uses the same key or the same directories."
		t.next = "End it: everdict runner with this state directory, or a second app."
	case keyLocked(err):
		t.reason = control.ReasonKeyLocked
		t.text, t.next = "The keyring is locked, and the key of this connection is in it.", "Unlock the keyring, or sign in to the desktop anew."
	case errors.Is(err, vault.ErrUnavailable):
		t.reason = control.ReasonKeyLocked
		t.text, t.next = "The keyring does not answer, and the key of this connection is in it.", "Start the keyring of the desktop, or connect this computer anew."
	case errors.Is(err, vault.ErrNotFound):
		t.reason, t.final = control.ReasonKeyMissing, true
		t.text, t.next = "The key of this connection is gone.", "Remove the connection and connect anew."
	case errors.As(err, &config):
		t.final = true
		t.text, t.next = protocol.Clip(config.Message, 300)+".", "Remove the connection and connect anew."
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		t.reason = control.ReasonDisk
		t.text, t.next = "The disk is full.", "Make room: nothing runs here until there is some."
	case errors.Is(err, fs.ErrPermission):
		t.text, t.next = "A directory of the app cannot be used: "+protocol.Clip(err.Error(), 300)+".", "Give it back to yourself, or remove it."
	default:
		t.text = "The runner has ended: " + protocol.Clip(err.Error(), 300) + "."
	}
	return t
}

// describe says how a connection is. What needs somebody goes first. The caller has the mutex.
func (c *connection) describe(v *control.Connection) {
	account := v.Account.Subject
	switch {
	case c.rec.Unpairing:
		v.Status, v.Reason, v.Text = control.StatusConnecting, control.ReasonStarting, "This computer is being disconnected."
	case c.trouble.status == control.StatusAttention:
		v.Status, v.Reason, v.Text, v.Next, v.RetryAt = c.trouble.status, c.trouble.reason, c.trouble.text, c.trouble.next, c.trouble.retryAt
	case c.condition == control.ReasonDocker:
		v.Status, v.Reason = control.StatusAttention, c.condition
		v.Text = "No container engine answers, and this connection runs everything in containers. No new runs are taken."
		v.Next = "Start the engine: it is seen within a minute. Or choose the process sandbox in the settings."
	case c.condition == control.ReasonDisk:
		v.Status, v.Reason = control.StatusAttention, c.condition
		v.Text = "The disk is nearly full. No new runs are taken."
		v.Next = "Make room: 512 MiB are enough to go on."
	case c.renewal() != "" && len(c.jobs) == 0:
		t := c.renewal().trouble()
		v.Online, v.Status, v.Reason, v.Text = false, t.status, t.reason, t.text
	case c.trouble.status == control.StatusConnecting:
		v.Status, v.Reason, v.Text, v.Next, v.RetryAt = c.trouble.status, c.trouble.reason, c.trouble.text, c.trouble.next, c.trouble.retryAt
		if v.Text == "" {
			v.Text = "The runner is being started."
		}
		if n := len(c.jobs); n > 0 {
			v.Text += " " + count(n, "A job goes", "jobs go") + " on meanwhile."
		}
	case c.degraded != "" && !v.Paused:
		v.Status, v.Reason = control.StatusAttention, control.ReasonFailed
		v.Text, v.Next = "The last run could not be taken: "+protocol.Clip(c.degraded, 300)+".", "The next one is tried."
	case len(c.jobs) > 0:
		v.Status, v.Text = control.StatusRunning, fmt.Sprintf("%s for %s.", count(len(c.jobs), "A job runs", "jobs run"), account)
		why := c.renewal()
		switch {
		case why == renewSettings:
			v.Text += " The new settings count when it has ended."
		case why == renewGone:
			v.Text += " No container engine answers: no new ones are taken until nothing runs, and then only such as need none."
		case v.Paused:
			v.Reason = v.Pauses[0]
			v.Text += " No new ones are taken: " + pauseSentence(v) + "."
		case why == renewCome:
			v.Text += " A container engine answers now: it is offered when nothing runs."
		case why == renewMachine:
			v.Text += " What this computer can do has changed: that is offered when nothing runs."
		case !slices.Contains(c.offered, protocol.CapDocker):
			v.Text += " " + noEngine
		}
	case v.Paused:
		v.Status, v.Reason, v.Text = control.StatusPaused, v.Pauses[0], "Paused: "+pauseSentence(v)+"."
	case c.fresh:
		v.Status, v.Text = control.StatusConnected, "Connected just now."
	default:
		v.Status, v.Text = control.StatusIdle, "Connected, and waiting for a run."
		if !slices.Contains(c.offered, protocol.CapDocker) {
			v.Text += " " + noEngine
		}
	}
}

// noEngine is said where jobs may do without a container engine, and there is none.
const noEngine = "No container engine answers: runs that need one go elsewhere."

func pauseSentence(v *control.Connection) string {
	switch v.Pauses[0] {
	case control.ReasonHours:
		if v.ResumesAt != nil {
			return "outside of the allowed hours, which begin " + v.ResumesAt.Local().Format("Monday 15:04")
		}
		return "outside of the allowed hours"
	case control.ReasonBattery:
		return "this computer runs on battery"
	}
	return "by you"
}

// ranks is how much a status matters for the icon. A computer that takes runs says so, whatever its other connections do,
// unless one of them needs somebody.
var ranks = map[control.Status]int{
	control.StatusNone: 0, control.StatusPaused: 1, control.StatusConnecting: 2, control.StatusConnected: 3, control.StatusIdle: 4,
	control.StatusRunning: 5, control.StatusAttention: 6,
}

// overall is the status of the whole app.
func overall(all []control.Connection) (control.Status, string) {
	status, text := control.StatusNone, "This computer is connected to no coordinator."
	for _, c := range all {
		if ranks[c.Status] > ranks[status] {
			status, text = c.Status, c.Text
			if len(all) > 1 {
				text = c.Host + ": " + text
			}
		}
	}
	return status, text
}

// count is "A job runs" for one and "3 jobs run" for more.
func count(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return strconv.Itoa(n) + " " + more
}
