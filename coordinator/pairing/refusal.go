package pairing

import (
	"errors"

	"github.com/everdict/everdict/protocol"
)

const beginAgain = "begin again on the machine"

// refuse adds to a problem why a pairing ends with it, and what to do.
func refuse(p *protocol.Problem, reason, hint string) error {
	return p.WithData("reason", reason).WithHint("%s", hint)
}

func unknownRequest() error {
	return refuse(protocol.NotFound("there is no such request: it is over, or the coordinator was restarted since"), protocol.ReasonExpired, beginAgain)
}

func expiredRequest() error {
	return refuse(protocol.NotFound("the request is over: it is good for five minutes"), protocol.ReasonExpired, beginAgain)
}

func wrongVerifier() error {
	return refuse(protocol.Forbidden("the verifier is not that of the machine that asked"), protocol.ReasonVerifier, "only the machine that asked can redeem its request")
}

func wrongProof() error {
	return refuse(protocol.Forbidden("the proof was not made with the device key of the request, or is for another grant"), protocol.ReasonProof,
		"sign the request's id and the grant with the key that the request named")
}

func wrongGrant() error {
	return refuse(protocol.Forbidden("the grant is not that of the approval"), protocol.ReasonGrant, "approve the request in the browser, which brings the grant to the machine")
}

func deniedRequest() error {
	return refuse(protocol.Forbidden("the request was denied"), protocol.ReasonDenied, "ask whoever denied it, or "+beginAgain)
}

func leakedRequest() error {
	return refuse(protocol.Forbidden("another program than the one that asked came with the grant of the approval, so that the request is void"), protocol.ReasonDenied,
		beginAgain+"; another program of that machine reads the browser's addresses")
}

func spoiltCode() error {
	return refuse(protocol.Forbidden("the number is not the one that the dashboard shows, and the code is spoilt"), protocol.ReasonNumber,
		"click Connect this device in the dashboard again, and type in the number that it shows then")
}

const clickAgain = "click Connect this device in the dashboard again"

func unknownCode() error {
	return refuse(protocol.NotFound("there is no such pair code: it is over, or the coordinator was restarted since"), protocol.ReasonExpired, clickAgain)
}

func usedCode() error {
	return refuse(protocol.Conflict("the pair code was used: it is good once"), protocol.ReasonUsed, clickAgain)
}

func deviceCodeOff() error {
	return refuse(protocol.Forbidden("the operator of this coordinator has switched off pairing by a code that is typed in"), protocol.ReasonOff,
		"use the desktop app, or a token: everdict runners pair")
}

// reason is what refuse added to an error, "" for another one.
func reason(err error) string {
	var problem *protocol.Problem
	if !errors.As(err, &problem) {
		return ""
	}
	s, _ := problem.Data["reason"].(string)
	return s
}
