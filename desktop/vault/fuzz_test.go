package vault

import "testing"

// FuzzDecode: what is read has a key that is kept again as it was.
func FuzzDecode(f *testing.F) {
	f.Add(`{"v":1,"seed":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`)
	f.Add(`{"v":1,"seed":"AAAA","pending":{"coordinator":"x"}}`)
	f.Add(`{"v":2}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := decode(text)
		if err != nil {
			return
		}
		again, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again)
		if err != nil || !back.Key.Equal(s.Key) || (back.Pending == nil) != (s.Pending == nil) || s.Pending != nil && *back.Pending != *s.Pending {
			t.Errorf("%+v became %+v, %v", s, back, err)
		}
	})
}
