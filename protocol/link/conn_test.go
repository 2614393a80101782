package link

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestWatchSeesEachOpening cuts a row of yamux frames at random places: each stream that is opened is told of once,
// whatever lies between, bodies that look like headers included.
func TestWatchSeesEachOpening(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var wire []byte
		want := 0
		for range 1 + rnd.IntN(20) {
			header := make([]byte, yamuxHeader)
			header[1] = byte(rnd.IntN(4)) // data, window update, ping, go away
			flags := uint16(rnd.IntN(16))
			binary.BigEndian.PutUint16(header[2:], flags)
			length := rnd.IntN(40)
			binary.BigEndian.PutUint32(header[8:], uint32(length))
			wire = append(wire, header...)
			if header[1] == yamuxData {
				for range length {
					wire = append(wire, byte(rnd.IntN(2))) // as headers are made of
				}
			}
			if header[1] <= yamuxWindowUpdate && flags&yamuxOpens != 0 {
				want++
			}
		}
		got := 0
		c := &wsConn{opening: func() { got++ }}
		for rest := wire; len(rest) > 0; {
			n := 1 + rnd.IntN(len(rest))
			c.watch(rest[:n])
			rest = rest[n:]
		}
		if got != want {
			t.Fatalf("%d bytes of frames: told of %d opened streams, want %d", len(wire), got, want)
		}
	}
}
