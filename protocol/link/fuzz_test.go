package link

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// samples has one filled message of each type.
func samples() []message {
	ref := AttemptRef{Run: "run_1", Job: "job_1", Epoch: 7, Token: "tok"}
	return []message{
		&Hello{Protocol: 1, Version: "1.2.3", OS: "linux", Arch: "arm64", Hostname: "h", Capabilities: []string{"git"},
			Resources: Resources{CPUs: 1.5, MemoryMB: 2048}, Slots: 2, Labels: map[string]string{"a": "b"}, Instance: "i",
			Leases: []HeldLease{{AttemptRef: ref, Started: true, Frozen: true, Finished: true, Offsets: map[string]int64{"log": 9}}}},
		&Welcome{Protocol: 1, Session: "s", Version: "v", Runner: "rnr_1", Settings: DefaultTiming().settings(),
			Leases: []LeaseVerdict{{Run: "r", Job: "j", Epoch: 1, Standing: Stands, TTL: Duration(time.Minute)}}},
		&UpdateRequired{MinProtocol: 2, MinVersion: "2", Message: "m"},
		&Heartbeat{Leases: []HeldLease{{AttemptRef: ref}}, Pulls: []string{"a"}, Free: 1, Degraded: "d", Terms: Terms{Scope: "owner", Paused: "p"}},
		&HeartbeatAck{Leases: []LeaseVerdict{{Job: "j", Standing: Stale, Reason: "r"}}, LostPulls: []string{"a"}},
		&Cancel{Run: "r", Job: "j", Epoch: 1, Reason: "x"},
		&Drain{RetryAfter: Duration(time.Second), Reason: "x"},
		&Status{Text: "t", Level: "warn"},
		&withdraw{Request: "r"}, &PullRequest{Request: "r", MaxMemoryMB: 1},
		&offer{Attempt: Attempt{AttemptRef: ref, TTL: Duration(time.Second)}, JobBytes: 12},
		&started{}, &done{}, &GiveBack{Reason: "r", Text: "t", Started: true},
		&giveBack{AttemptRef: ref, GiveBack: GiveBack{Reason: "r"}},
		&standing{Standing: Cancelled, Reason: "r"}, &EvidenceOpen{AttemptRef: ref},
		&EvidenceReady{Standing: Stands, Offsets: map[string]int64{"log": 1}},
		&ack{Channel: "log", Offset: 3, Closed: "cap", Message: "m"},
		&result{Bytes: 5}, &ResultAck{Status: ResultRejected, Code: "c", Message: "m"},
		&Ask{AttemptRef: ref, ID: "q", Question: "?"}, &Answer{ID: "q", Approved: true, Comment: "c"},
		&StreamOpen{Kind: KindExec, Attempt: ref, Params: json.RawMessage(`{"argv":["ls"]}`)},
		&opened{Params: json.RawMessage(`{}`)}, &eof{Channel: 2}, &consumed{Bytes: 3},
		&Resize{Rows: 1, Cols: 2}, &Exit{Code: 1, Signal: "KILL"},
		&RemoteError{Code: "c", Message: "m", RetryAfter: Duration(time.Second)},
	}
}

func TestEveryMessageSurvivesTheWire(t *testing.T) {
	t.Parallel()
	var all []byte
	for _, m := range samples() {
		var err error
		if all, err = appendMessage(all, m); err != nil {
			t.Fatalf("%s: %v", m.messageType(), err)
		}
	}
	fr := frameReader{r: bytes.NewReader(all)}
	for _, want := range samples() {
		kind, n, err := fr.header()
		noErr(t, "header", err)
		f, err := fr.payload(kind, n)
		noErr(t, want.messageType(), err)
		if diff := cmp.Diff(want, f.msg, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("%s (-sent +received):\n%s", want.messageType(), diff)
		}
	}
	if _, _, err := fr.header(); err != io.EOF {
		t.Fatalf("after the last frame: %v", err)
	}
}

// FuzzFrames reads frames from any bytes: no panic, no buffer beyond what arrived, and whatever is understood can be
// sent again and understood the same.
func FuzzFrames(f *testing.F) {
	for _, m := range samples() {
		b, err := appendMessage(nil, m)
		noErr(f, "append", err)
		f.Add(b)
	}
	f.Add(appendChunk(nil, "artifact:a/b", 1<<40, []byte("x")))
	f.Add(append(appendHeader(nil, kindSub, 2), 1, 'x'))
	f.Add(append(appendHeader(nil, 'Z', 1), 'x'))
	f.Add(appendHeader(nil, kindMessage, MaxMessage))
	f.Add(appendHeader(nil, kindData, MaxData+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := frameReader{r: bytes.NewReader(b)}
		for {
			kind, n, err := fr.header()
			if err != nil {
				return
			}
			fm, err := fr.payload(kind, n)
			if err != nil {
				var pe *ProtocolError
				if !errors.As(err, &pe) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("untyped error %v", err)
				}
				if !errors.As(err, &pe) {
					return
				}
				continue
			}
			if kind == kindChunk {
				ch, off, data, err := decodeChunk(appendChunk(nil, fm.channel, fm.offset, fm.data)[frameHeader:])
				if err != nil || ch != fm.channel || off != fm.offset || !bytes.Equal(data, fm.data) {
					t.Fatalf("chunk %q %d %q came back as %q %d %q, %v", fm.channel, fm.offset, fm.data, ch, off, data, err)
				}
			}
			if fm.msg == nil {
				continue
			}
			if _, ok := fm.msg.(*unknown); ok {
				continue
			}
			again, err := appendMessage(nil, fm.msg)
			if err != nil {
				var le *LimitError // JSON may grow when it is written again, by escapes
				if errors.As(err, &le) && le.Limit == "message" {
					continue
				}
				t.Fatalf("%s was read and cannot be sent: %v", fm.msg.messageType(), err)
			}
			if _, err := decodeMessage(again[frameHeader:]); err != nil {
				t.Fatalf("%s cannot be read again: %v\n%s", fm.msg.messageType(), err, again[frameHeader:])
			}
		}
	})
}

// FuzzCloseReason decodes any close frame, and what is encoded always fits into one.
func FuzzCloseReason(f *testing.F) {
	f.Add(4001, `{"m":"by its owner"}`, int64(0))
	f.Add(4004, `{"m":"x","r":5000,"v":"1"}`, int64(5000))
	f.Add(1000, "", int64(-1))
	f.Add(4003, "\xff\xfe", int64(1<<62))
	f.Fuzz(func(t *testing.T, code int, text string, after int64) {
		if err := closeError(CloseCode(code), text); err == nil {
			t.Fatal("a close without an error")
		}
		r := CloseReason{Code: CloseDraining, Message: text, RetryAfter: time.Duration(max(0, after)), MinVersion: text}
		s := r.text()
		if len(s) > maxCloseText {
			t.Fatalf("%d bytes in a close frame", len(s))
		}
		var de *DrainingError
		if err := closeError(CloseDraining, s); !errors.As(err, &de) {
			t.Fatalf("draining came back as %v", err)
		}
	})
}

func answer(status int, body, retryAfter string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: io.NopCloser(strings.NewReader(body))}
}

// FuzzProblem decodes any answer to an upgrade.
func FuzzProblem(f *testing.F) {
	f.Add(401, `{"code":"revoked","message":"m"}`, "3")
	f.Add(426, `{"code":"update_required","data":{"minVersion":"2"}}`, "x")
	f.Add(503, `<html>`, "99999999999999")
	f.Fuzz(func(t *testing.T, status int, body, after string) {
		resp := answer(status, body, after)
		err := httpError(resp)
		if err == nil {
			t.Fatal("no error")
		}
		var p problem
		if Terminal(err) && (json.Unmarshal([]byte(body), &p) != nil || p.Code == "") {
			t.Fatalf("terminal %v without a coordinator's body %q", err, body)
		}
		if d := retryAfterOf(err); d < 0 || d > maxDuration {
			t.Fatalf("retry after %v", d)
		}
	})
}
