package harness

import "hash/maphash"

// recentKeys is how many of its newest keys a Recent surely knows. What agents
// repeat lies a few lines back; this is some thousand times that.
const recentKeys = 4096

// Recent is a set of the keys that a Stream has met. An agent chooses how long
// its ids and texts are and how many there come, so a Recent keeps hashes, and only
// of the newest keys: it knows at least the last 4,096 and at most twice as many.
type Recent struct {
	seed maphash.Seed
	// now takes new keys. When it is full it becomes before, whose keys are
	// forgotten.
	now, before map[uint64]struct{}
}

// NewRecent returns an empty set.
func NewRecent() *Recent {
	return &Recent{seed: maphash.MakeSeed(), now: make(map[uint64]struct{})}
}

// Has reports whether key was added and is not forgotten.
func (r *Recent) Has(key string) bool {
	h := maphash.String(r.seed, key)
	_, now := r.now[h]
	_, before := r.before[h]
	return now || before
}

// Add adds key.
func (r *Recent) Add(key string) {
	if len(r.now) >= recentKeys {
		r.now, r.before = make(map[uint64]struct{}), r.now
	}
	r.now[maphash.String(r.seed, key)] = struct{}{}
}

// Delete forgets key.
func (r *Recent) Delete(key string) {
	h := maphash.String(r.seed, key)
	delete(r.now, h)
	delete(r.before, h)
}

// Clear forgets all keys.
func (r *Recent) Clear() {
	clear(r.now)
	r.before = nil
}
