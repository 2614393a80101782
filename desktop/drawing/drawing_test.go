package drawing

import (
	"bytes"
	"encoding/binary"
	"image/color"
	"image/png"
	"testing"
)

func half(x, _ float64) color.NRGBA {
	if x < 0.5 {
		return color.NRGBA{200, 100, 50, 255}
	}
	return color.NRGBA{}
}

func TestImage(t *testing.T) {
	t.Parallel()
	img := Image(3, half)
	for x, want := range []color.NRGBA{{200, 100, 50, 255}, {200, 100, 50, 127}, {}} {
		if got := img.NRGBAAt(x, 1); got != want {
			t.Errorf("pixel %d is %v, want %v: its colour whole, and as opaque as it is covered", x, got, want)
		}
	}
}

func TestNearLine(t *testing.T) {
	t.Parallel()
	for p, want := range map[Point]bool{{0.5, 0.5}: true, {0.5, 0.59}: true, {0.5, 0.61}: false, {0.15, 0.5}: true, {0.05, 0.5}: false} {
		if got := NearLine(p, Point{0.2, 0.5}, Point{0.8, 0.5}, 0.1); got != want {
			t.Errorf("%v is near the line: %v, want %v", p, got, want)
		}
	}
}

func TestICO(t *testing.T) {
	t.Parallel()
	sizes := []int{16, 32, 256}
	ico := ICO(Image(16, half), Image(32, half), Image(256, half))
	if kind, n := binary.LittleEndian.Uint16(ico[2:]), binary.LittleEndian.Uint16(ico[4:]); kind != 1 || int(n) != len(sizes) {
		t.Fatalf("the file is of kind %d with %d pictures, want an icon with %d", kind, n, len(sizes))
	}
	for n, size := range sizes {
		entry := ico[6+16*n:]
		length, offset := binary.LittleEndian.Uint32(entry[8:]), binary.LittleEndian.Uint32(entry[12:])
		img, err := png.Decode(bytes.NewReader(ico[offset : offset+length]))
		if err != nil {
			t.Fatalf("picture %d: %v", n, err)
		}
		if img.Bounds().Dx() != size || int(entry[0]) != size%256 {
			t.Errorf("picture %d is %d wide and called %d, want %d", n, img.Bounds().Dx(), entry[0], size)
		}
	}
}
