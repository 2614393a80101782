package tray

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"math"
)

// Icon is what the icon says. Each differs from the others by its shape, so that it can
// be told apart without its colour.
type Icon int

// The icons.
const (
	// Offline: no coordinator is connected. A broken ring.
	Offline Icon = iota
	// Connected: paired and connected, and not taking runs. A ring.
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
		tick := stroke(x, y, 0.27, 0.52, 0.43, 0.68, 0.075) || stroke(x, y, 0.43, 0.68, 0.73, 0.35, 0.075)
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

// stroke says whether the point is within half of the line from a to b.
func stroke(x, y, ax, ay, bx, by, half float64) bool {
	dx, dy := bx-ax, by-ay
	t := ((x-ax)*dx + (y-ay)*dy) / (dx*dx + dy*dy)
	t = min(1, max(0, t))
	return math.Hypot(x-ax-t*dx, y-ay-t*dy) <= half
}

// Image draws the icon, size pixels wide and high. Each pixel is as opaque as the part of
// it that is covered, from 8 times 8 samples.
func (i Icon) Image(size int) *image.NRGBA {
	const samples = 8
	img := image.NewNRGBA(image.Rect(0, 0, size, size))
	fill := i.fill()
	for py := range size {
		for px := range size {
			hit := 0
			for s := range samples * samples {
				x := (float64(px) + (float64(s%samples)+0.5)/samples) / float64(size)
				y := (float64(py) + (float64(s/samples)+0.5)/samples) / float64(size)
				if i.inside(x, y) {
					hit++
				}
			}
			c := fill
			c.A = uint8(255 * hit / (samples * samples))
			img.SetNRGBA(px, py, c)
		}
	}
	return img
}

// PNG is the icon as a PNG file.
func (i Icon) PNG(size int) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, i.Image(size)); err != nil {
		panic(err) // the image is ours, and a buffer takes everything
	}
	return b.Bytes()
}

// ICO is the icon as an ICO file that holds it in several sizes, as PNGs, which Windows
// reads since Vista.
func (i Icon) ICO(sizes ...int) []byte {
	images := make([][]byte, len(sizes))
	for n, size := range sizes {
		images[n] = i.PNG(size)
	}
	return ICO(images, sizes)
}

// ICO makes an ICO file of square PNGs of these sizes, at most 256.
func ICO(images [][]byte, sizes []int) []byte {
	const header, entry = 6, 16
	var b bytes.Buffer
	le := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // into a buffer
	le([3]uint16{0, 1, uint16(len(images))})
	offset := uint32(header + entry*len(images))
	for n, img := range images {
		b.Write([]byte{byte(sizes[n]), byte(sizes[n]), 0, 0}) // 256 is written as 0
		le([2]uint16{1, 32})
		le([2]uint32{uint32(len(img)), offset})
		offset += uint32(len(img))
	}
	for _, img := range images {
		b.Write(img)
	}
	return b.Bytes()
}
