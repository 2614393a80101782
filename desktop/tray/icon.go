package tray

import (
	"image"
	"image/color"
	"math"

	"github.com/everdict/everdict/desktop/drawing"
)

// Icon is what the icon says. Each differs from the others by its shape, so that it can
// be told apart without its colour.
type Icon int

// The icons.
const (
	// Offline: there is no session with a coordinator. A broken ring.
	Offline Icon = iota
	// Connected: a session has just begun. A ring.
	Connected
	// Idle: ready for a run. A disc with a tick.
	Idle
	// Running: a run is being carried out. A disc with a triangle.
	Running
	// Paused: takes no further run. A disc with two bars.
	Paused
	// Attention: somebody has to look. A triangle with an exclamation mark.
	Attention
)

// Icons are all of them.
var Icons = []Icon{Offline, Connected, Idle, Running, Paused, Attention}

func (i Icon) String() string {
	switch i {
	case Offline:
		return "offline"
	case Connected:
		return "connected"
	case Idle:
		return "idle"
	case Running:
		return "running"
	case Paused:
		return "paused"
	case Attention:
		return "attention"
	}
	return "unknown"
}

// fill is of medium lightness: it stands out from light and from dark panels. The test
// holds each to a contrast of 3:1 with both, which WCAG asks of graphics.
func (i Icon) fill() color.NRGBA {
	switch i {
	case Connected, Idle:
		return color.NRGBA{0x1f, 0x93, 0x62, 0xff}
	case Running:
		return color.NRGBA{0x3b, 0x82, 0xd6, 0xff}
	case Paused:
		return color.NRGBA{0xb0, 0x78, 0x18, 0xff}
	case Attention:
		return color.NRGBA{0xd9, 0x53, 0x4a, 0xff}
	}
	return color.NRGBA{0x80, 0x84, 0x8c, 0xff}
}

// inside says whether the point is part of the icon. Coordinates go from 0 to 1, down
// and to the right. The signs in the discs are cut out: the panel shows through them.
func (i Icon) inside(x, y float64) bool {
	r := math.Hypot(x-0.5, y-0.5)
	const outer, inner = 0.47, 0.30
	switch i {
	case Connected:
		return r <= outer && r >= inner
	case Idle:
		p, corner := drawing.Point{X: x, Y: y}, drawing.Point{X: 0.43, Y: 0.68}
		const half = 0.075
		tick := drawing.NearLine(p, drawing.Point{X: 0.27, Y: 0.52}, corner, half) || drawing.NearLine(p, corner, drawing.Point{X: 0.73, Y: 0.35}, half)
		return r <= outer && !tick
	case Running:
		// A triangle that points to the right.
		triangle := x >= 0.37 && x <= 0.37+0.36-math.Abs(y-0.5)*1.5
		return r <= outer && !triangle
	case Paused:
		bar := math.Abs(math.Abs(x-0.5)-0.125) <= 0.065 && math.Abs(y-0.5) <= 0.22
		return r <= outer && !bar
	case Attention:
		body := y >= 0.04 && y <= 0.95 && math.Abs(x-0.5) <= 0.04+(y-0.04)*0.5
		mark := math.Abs(x-0.5) <= 0.065 && (y >= 0.36 && y <= 0.66 || y >= 0.74 && y <= 0.86)
		return body && !mark
	}
	// Offline: two halves of a ring, with gaps where the other diagonal crosses it.
	gap := math.Abs((x-0.5)-(y-0.5)) <= 0.17
	return r <= outer && r >= inner && !gap
}

// Image draws the icon, size pixels wide and high.
func (i Icon) Image(size int) *image.NRGBA {
	fill := i.fill()
	return drawing.Image(size, func(x, y float64) color.NRGBA {
		if i.inside(x, y) {
			return fill
		}
		return color.NRGBA{}
	})
}

// PNG is the icon as a PNG file.
func (i Icon) PNG(size int) []byte { return drawing.PNG(i.Image(size)) }

// ICO is the icon as an ICO file that holds it in several sizes.
func (i Icon) ICO(sizes ...int) []byte {
	pictures := make([]image.Image, len(sizes))
	for n, size := range sizes {
		pictures[n] = i.Image(size)
	}
	return drawing.ICO(pictures...)
}
