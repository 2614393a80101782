package docker

import (
	"net"
	"strings"
	"testing"
	"time"
)

func TestF36_HangingEngineIsCut(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it accepts by its backlog, and never answers
	begin := time.Now()
	d := New(Config{Host: "tcp://" + l.Addr().String()})
	defer d.Close()
	_, err = d.Sweep(t.Context(), nil)
	if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), "no answer within 3s") || took > 2*probeWithin {
		t.Errorf("%v after %s, wanted to be cut at %s", err, took, probeWithin)
	}
	none := New(Config{Host: "unix:///nowhere/docker.sock"})
	defer none.Close()
	if _, err := none.Sweep(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "/nowhere/docker.sock") {
		t.Errorf("an engine that is not there: %v", err)
	}
}
