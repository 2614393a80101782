package harness

import (
	"strconv"
	"testing"
)

func TestRecent(t *testing.T) {
	t.Parallel()
	r := NewRecent()
	if r.Has("") || r.Has("a") {
		t.Error("an empty set has keys")
	}
	r.Add("a")
	r.Add("b")
	r.Delete("b")
	if !r.Has("a") || r.Has("b") {
		t.Errorf("after adding a and b and deleting b: has a %v, b %v", r.Has("a"), r.Has("b"))
	}
	r.Clear()
	if r.Has("a") {
		t.Error("a is there after Clear")
	}
}

func TestF25_RecentKnowsTheNewestKeys(t *testing.T) {
	t.Parallel()
	r := NewRecent()
	for i := range 10 * recentKeys {
		r.Add(strconv.Itoa(i))
		if old := i - recentKeys + 1; old >= 0 && !r.Has(strconv.Itoa(old)) {
			t.Fatalf("key %d is forgotten after %d newer ones, want %d remembered", old, i-old, recentKeys)
		}
		if n := len(r.now) + len(r.before); n > 2*recentKeys {
			t.Fatalf("%d keys are held, want at most %d", n, 2*recentKeys)
		}
	}
	if r.Has("0") {
		t.Error("the oldest key is still there")
	}
	last := strconv.Itoa(10*recentKeys - recentKeys)
	if r.Delete(last); r.Has(last) {
		t.Errorf("key %s is there after Delete", last)
	}
	r.Clear()
	if r.Has(strconv.Itoa(10*recentKeys - 1)) {
		t.Error("the newest key is there after Clear")
	}
}
