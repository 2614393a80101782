package tray

import (
	"image/color"
	"math"
	"testing"
)

// luminance is relative luminance as WCAG 2 defines it.
func luminance(c color.NRGBA) float64 {
	linear := func(v uint8) float64 {
		f := float64(v) / 255
		if f <= 0.04045 {
			return f / 12.92
		}
		return math.Pow((f+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
}

func contrast(a, b color.NRGBA) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func TestIconsAreSeenOnEveryPanel(t *testing.T) {
	t.Parallel()
	panels := map[string]color.NRGBA{"light": {0xf6, 0xf5, 0xf4, 0xff}, "dark": {0x24, 0x24, 0x28, 0xff}}
	for _, i := range Icons {
		for name, panel := range panels {
			if c := contrast(i.fill(), panel); c < 3 {
				t.Errorf("%v on a %s panel has a contrast of %.2f, want 3", i, name, c)
			}
		}
	}
}

// TestIconsDifferByShape looks at what is covered and not at colours, at the sizes of
// panels.
func TestIconsDifferByShape(t *testing.T) {
	t.Parallel()
	for _, size := range []int{16, 22, 24} {
		for n, a := range Icons {
			for _, b := range Icons[n+1:] {
				ia, ib := a.Image(size), b.Image(size)
				differ, covered := 0, 0
				for p := 3; p < len(ia.Pix); p += 4 {
					if d := int(ia.Pix[p]) - int(ib.Pix[p]); d > 128 || d < -128 {
						differ++
					}
					if ia.Pix[p] > 128 || ib.Pix[p] > 128 {
						covered++
					}
				}
				if differ*100 < covered*9 {
					t.Errorf("at %d pixels %v and %v differ in %d of %d pixels, want 9 per cent", size, a, b, differ, covered)
				}
			}
		}
	}
}
