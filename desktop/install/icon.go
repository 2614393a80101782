package install

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image/color"
	"math"

	"github.com/everdict/everdict/desktop/drawing"
)

// The app's icon: a tick, the verdict, on a square with round corners. All sizes are drawn
// from these figures, which are parts of its width.
const (
	iconCorner = 0.22
	iconStroke = 0.13
)

var (
	iconGround = color.NRGBA{0x1f, 0x3a, 0x5f, 0xff}
	iconTick   = color.NRGBA{0xf4, 0xf7, 0xfb, 0xff}
	// The tick goes through these points.
	iconPoints = [3]drawing.Point{{X: 0.25, Y: 0.53}, {X: 0.43, Y: 0.70}, {X: 0.76, Y: 0.32}}
)

// IconSizes are those that themes of icons have directories for.
var IconSizes = []int{16, 24, 32, 48, 64, 128, 256}

// IconSVG is the icon as an SVG file.
func IconSVG() string {
	const width = 256
	at := func(p drawing.Point) string { return fmt.Sprintf("%.4g %.4g", p.X*width, p.Y*width) }
	hex := func(c color.NRGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[1]d" viewBox="0 0 %[1]d %[1]d">
  <rect width="%[1]d" height="%[1]d" rx="%.4[2]g" fill="%[3]s"/>
  <path d="M%[4]s L%[5]s L%[6]s" fill="none" stroke="%[7]s" stroke-width="%.4[8]g" stroke-linecap="round" stroke-linejoin="round"/>
</svg>
`, width, iconCorner*width, hex(iconGround), at(iconPoints[0]), at(iconPoints[1]), at(iconPoints[2]), hex(iconTick), iconStroke*width)
}

// IconPNG is the icon as a PNG file, size pixels wide and high.
func IconPNG(size int) []byte {
	return drawing.PNG(drawing.Image(size, func(x, y float64) color.NRGBA {
		p := drawing.Point{X: x, Y: y}
		switch {
		case !inSquare(x, y):
			return color.NRGBA{}
		case drawing.NearLine(p, iconPoints[0], iconPoints[1], iconStroke/2), drawing.NearLine(p, iconPoints[1], iconPoints[2], iconStroke/2):
			return iconTick
		}
		return iconGround
	}))
}

func inSquare(x, y float64) bool {
	dx := max(iconCorner-x, x-(1-iconCorner), 0)
	dy := max(iconCorner-y, y-(1-iconCorner), 0)
	return math.Hypot(dx, dy) <= iconCorner
}

// IconICNS is the icon as macOS wants it: PNGs, each with a type that says its size.
func IconICNS() []byte {
	var body bytes.Buffer
	for _, e := range []struct {
		kind string
		size int
	}{{"icp4", 16}, {"icp5", 32}, {"ic07", 128}, {"ic08", 256}, {"ic09", 512}} {
		b := IconPNG(e.size)
		body.WriteString(e.kind)
		_ = binary.Write(&body, binary.BigEndian, uint32(8+len(b))) // into memory
		body.Write(b)
	}
	out := append([]byte("icns"), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(out[4:], uint32(8+body.Len()))
	return append(out, body.Bytes()...)
}
