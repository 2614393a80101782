// Package drawing draws icons from formulas, so that there is one source for every size
// and no binary file in the repository.
package drawing

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"math"
)

// samples is how often each pixel is looked at, in each direction.
const samples = 8

// Image draws a square picture, size pixels wide. at says the colour of a point; its
// coordinates go from 0 to 1, down and to the right, and the zero colour is clear. A pixel
// has the mean of the colours in it.
func Image(size int, at func(x, y float64) color.NRGBA) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, size, size))
	for py := range size {
		for px := range size {
			var r, g, b, a int
			for s := range samples * samples {
				c := at((float64(px)+(float64(s%samples)+0.5)/samples)/float64(size), (float64(py)+(float64(s/samples)+0.5)/samples)/float64(size))
				r, g, b, a = r+int(c.R)*int(c.A), g+int(c.G)*int(c.A), b+int(c.B)*int(c.A), a+int(c.A)
			}
			if a > 0 {
				img.SetNRGBA(px, py, color.NRGBA{uint8(r / a), uint8(g / a), uint8(b / a), uint8(a / (samples * samples))})
			}
		}
	}
	return img
}

// PNG is a picture as a PNG file.
func PNG(img image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err) // a buffer takes everything
	}
	return b.Bytes()
}

// ICO is an ICO file of square pictures, at most 256 pixels wide, kept as PNGs, which
// Windows reads since Vista.
func ICO(pictures ...image.Image) []byte {
	const header, entry = 6, 16
	var b, body bytes.Buffer
	le := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // into a buffer
	le([3]uint16{0, 1, uint16(len(pictures))})
	for _, img := range pictures {
		file := PNG(img)
		width := byte(img.Bounds().Dx()) // 256 is written as 0
		b.Write([]byte{width, width, 0, 0})
		le([2]uint16{1, 32})
		le([2]uint32{uint32(len(file)), uint32(header + entry*len(pictures) + body.Len())})
		body.Write(file)
	}
	return append(b.Bytes(), body.Bytes()...)
}

// Point is a place in a picture.
type Point struct{ X, Y float64 }

// NearLine says whether a point is at most half from the line from a to b.
func NearLine(p, a, b Point, half float64) bool {
	dx, dy := b.X-a.X, b.Y-a.Y
	t := min(1, max(0, ((p.X-a.X)*dx+(p.Y-a.Y)*dy)/(dx*dx+dy*dy)))
	return math.Hypot(p.X-a.X-t*dx, p.Y-a.Y-t*dy) <= half
}
