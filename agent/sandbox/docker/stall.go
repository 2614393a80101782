package docker

import (
	"sync"
	"time"
)

// stallSteps is in how many pieces stallAfter is measured.
const stallSteps = 20

// stall is a wait for init that has lasted too long when over is closed. Only the time counts in which this process ran:
// when it was stopped itself, init's answer has come and is yet to be read, while a timer would have gone off. A stop
// uses up one step at most.
func stall() (over <-chan struct{}, end func()) {
	var mu sync.Mutex
	var timer *time.Timer
	left, c := stallSteps, make(chan struct{})
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(stallAfter/stallSteps, func() {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			close(c)
		} else if left > 0 {
			timer.Reset(stallAfter / stallSteps)
		}
	})
	return c, func() {
		mu.Lock()
		defer mu.Unlock()
		left = 0
		timer.Stop()
	}
}
