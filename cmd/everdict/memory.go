package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// headroom is what the collector lets the heap grow between two collections when
	// most of it is idle sessions, in bytes. Go's default is once again as much as
	// lives: with 5,000 idle runners (28 kB each, stacks included) that doubled the
	// coordinator's memory, for garbage of 2 MB/s. With 24 MiB it collects every 10 s
	// there; below 24 MiB of live memory nothing changes.
	headroom = 24 << 20
	// minGCPercent bounds how much more often the collector works for it: ten times.
	minGCPercent = 10
	// headroomEvery is how often the percentage follows what lives.
	headroomEvery = 2 * time.Second
)

// keepHeadroom sets the collector's percentage so that it stands for headroom,
// until ctx ends. GOGC in the environment goes before it.
func keepHeadroom(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	read := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	tick := time.NewTicker(headroomEvery)
	defer tick.Stop()
	was := 100
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(read)
		percent := gcPercent(read[0].Value.Uint64() + read[1].Value.Uint64())
		if percent != was { // each change stops the world for a moment
			debug.SetGCPercent(percent)
			was = percent
		}
	}
}

// gcPercent is the percentage of live bytes that headroom is, in steps of five.
func gcPercent(live uint64) int {
	percent := int(100 * headroom / max(live, headroom))
	return max(percent/5*5, minGCPercent)
}
