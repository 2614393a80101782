package settings

import (
	"time"

	"github.com/everdict/everdict/desktop/control"
)

// Open says whether now is within the allowed hours, and when that changes next; the zero time: never. No hours are all
// hours. The clock on the wall counts, in now's time zone: on the day when it is set forward or back, hours begin and end
// when it shows them.
func Open(hours []control.Hours, now time.Time) (open bool, change time.Time) {
	if len(hours) == 0 {
		return true, time.Time{}
	}
	open = within(hours, now)
	// A change can only be at a beginning or an end, and a week has all of them.
	for day := -1; day <= 8; day++ {
		for _, h := range hours {
			s, err := parse(h)
			if err != nil {
				continue
			}
			for _, at := range s.on(now, day) {
				if at.After(now) && (change.IsZero() || at.Before(change)) && within(hours, at) != open {
					change = at
				}
			}
		}
	}
	return open, change
}

func within(hours []control.Hours, now time.Time) bool {
	for _, h := range hours {
		s, err := parse(h)
		if err != nil {
			continue // what was checked is kept, so there is none
		}
		for day := -1; day <= 0; day++ {
			if edge := s.on(now, day); edge != nil && !now.Before(edge[0]) && now.Before(edge[1]) {
				return true
			}
		}
	}
	return false
}

// on is when the span begins and ends that begins so many days after now's day; nil: none begins then.
func (s *span) on(now time.Time, day int) []time.Time {
	y, m, d := now.Date()
	noon := time.Date(y, m, d+day, 12, 0, 0, 0, now.Location())
	if !s.days[noon.Weekday()] {
		return nil
	}
	y, m, d = noon.Date()
	to := s.to
	if s.to < s.from {
		to += 24 * 60
	}
	return []time.Time{
		time.Date(y, m, d, 0, s.from, 0, 0, now.Location()),
		time.Date(y, m, d, 0, to, 0, 0, now.Location()),
	}
}
