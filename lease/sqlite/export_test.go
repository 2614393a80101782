package sqlite

import "runtime"

// AwaitPending waits until n operations wait for the next group.
func (db *DB) AwaitPending(n int) {
	for {
		db.mu.Lock()
		have := len(db.pending)
		db.mu.Unlock()
		if have >= n {
			return
		}
		runtime.Gosched()
	}
}
