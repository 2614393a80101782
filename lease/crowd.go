package lease

import (
	"math/bits"
	"slices"
)

// crowd is the waiting runners of a pool that offer the same, so that one look decides for all of them: thousands of idle
// machines cost an enqueue as much as one.
type crowd struct {
	pool         *pool
	capabilities []string // as the runners list them
	os, arch     string
	memory       int // size class of the runners' memory; 0: unknown
	stands       []*stand
	cursor       int // where the next search begins
}

// stand is the runners of a crowd that have one home, whose admission decides for all of them.
type stand struct {
	crowd   *crowd
	home    *home
	runners []*runner
	cursor  int
}

// memoryClass is the number of bits of a runner's memory: what is in one class differs by less than a factor of two.
func memoryClass(mb int64) int { return bits.Len64(uint64(mb)) }

// like says whether the runner offers what the crowd does.
func (c *crowd) like(r *runner) bool {
	return c.os == r.OS && c.arch == r.Arch && c.memory == memoryClass(r.MemoryMB) && slices.Equal(c.capabilities, r.Capabilities)
}

// offers is the first part of what runner.offers checks: false if no runner of the crowd can take a job of the lane.
func (c *crowd) offers(l *lane) bool {
	if offer(l, c.capabilities, c.os, c.arch) != fits {
		return false
	}
	return c.memory == 0 || memoryClass(l.key.memoryMB) <= c.memory
}

// find is a waiting runner that can take a job of the lane now, nil if there is none. The search goes in turns over crowds,
// over the homes in each and over the runners of each, so that work spreads over idle runners.
func (p *pool) find(l *lane) *runner {
	for range p.crowds {
		p.cursor %= len(p.crowds)
		c := p.crowds[p.cursor]
		p.cursor++
		if !c.offers(l) {
			continue
		}
		if r := c.find(l); r != nil {
			return r
		}
	}
	return nil
}

func (c *crowd) find(l *lane) *runner {
	for range c.stands {
		c.cursor %= len(c.stands)
		s := c.stands[c.cursor]
		c.cursor++
		if r := s.find(l); r != nil {
			return r
		}
	}
	return nil
}

func (s *stand) find(l *lane) *runner {
	if s.home.admits(l) != fits {
		return nil
	}
	for range s.runners {
		s.cursor %= len(s.runners)
		r := s.runners[s.cursor]
		s.cursor++
		if r.offers(l) == fits && r.admits(s.home, l) == fits {
			return r
		}
	}
	return nil
}

// enter puts a runner with waiting pulls where the pool's jobs look for one.
func (p *pool) enter(r *runner, h *home) {
	i := slices.IndexFunc(p.crowds, func(c *crowd) bool { return c.like(r) })
	if i < 0 {
		i = len(p.crowds)
		p.crowds = append(p.crowds, &crowd{pool: p, capabilities: r.Capabilities, os: r.OS, arch: r.Arch, memory: memoryClass(r.MemoryMB)})
	}
	c := p.crowds[i]
	i = slices.IndexFunc(h.stands, func(s *stand) bool { return s.crowd == c })
	if i < 0 {
		i = len(h.stands)
		s := &stand{crowd: c, home: h}
		h.stands = append(h.stands, s)
		c.stands = append(c.stands, s)
	}
	s := h.stands[i]
	s.runners = append(s.runners, r)
	r.stands = append(r.stands, s)
}

// leave takes a runner out again.
func (s *stand) leave(r *runner) {
	s.runners = without(s.runners, r)
	if len(s.runners) > 0 {
		return
	}
	s.home.stands = without(s.home.stands, s)
	c := s.crowd
	if c.stands = without(c.stands, s); len(c.stands) == 0 {
		c.pool.crowds = without(c.pool.crowds, c)
	}
}

// without removes one element and keeps the others in order.
func without[T comparable](list []T, x T) []T {
	i := slices.Index(list, x)
	return slices.Delete(list, i, i+1)
}
