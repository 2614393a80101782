/** The whole trace at a glance: when what happened, and when nothing did. A click goes there. */
import { useEffect, useRef, useState } from 'react'
import { duration } from '../data/format'
import { colourOf } from '../ui/colour'
import type { Item, Kind } from './trace'

const lanes: Kind[] = ['message', 'model', 'tool', 'error']
const height = 36
const drawEvery = 300

export function Strip({ items, version, jump }: { items: Item[]; version: number; jump: (index: number) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const [width, setWidth] = useState(0)
  const [theme, setTheme] = useState(0)
  const drawn = useRef(0)
  const first = items.find((i) => !Number.isNaN(i.at))?.at
  let last: number | undefined
  for (let i = items.length - 1; i >= 0 && last === undefined; i--) {
    const at = items[i]!.result?.t ?? items[i]!.at
    if (!Number.isNaN(at)) last = at
  }
  const span = first !== undefined && last !== undefined ? last - first : 0
  useEffect(() => {
    const el = canvas.current
    if (!el) return
    const observer = new ResizeObserver(() => setWidth(el.clientWidth))
    observer.observe(el)
    const themed = () => setTheme((n) => n + 1)
    const media = matchMedia('(prefers-color-scheme: dark)')
    media.addEventListener('change', themed)
    addEventListener('everdict:theme', themed)
    return () => {
      observer.disconnect()
      media.removeEventListener('change', themed)
      removeEventListener('everdict:theme', themed)
    }
  }, [span > 0])
  useEffect(() => {
    const el = canvas.current
    if (!el || !width || first === undefined || span <= 0) return
    // While events come in, a few pictures a second are enough.
    const timer = setTimeout(
      () => {
        drawn.current = Date.now()
        paint(el, items, width, first, span)
      },
      Math.max(0, drawEvery - (Date.now() - drawn.current)),
    )
    return () => clearTimeout(timer)
  }, [items, version, width, first, span, theme])
  if (span <= 0) return null
  return (
    <div className="strip">
      <canvas
        ref={canvas}
        height={height}
        aria-hidden
        onClick={(e) => {
          const at = first! + (e.nativeEvent.offsetX / width) * span
          const i = items.findIndex((x) => x.at >= at)
          if (i >= 0) jump(items[i]!.index)
        }}
      />
      <span className="tnum faint">{duration(span)}</span>
    </div>
  )
}

function paint(el: HTMLCanvasElement, items: Item[], width: number, first: number, span: number): void {
  const c = el.getContext('2d')
  if (!c) return
  const ratio = devicePixelRatio || 1
  el.width = width * ratio
  el.height = height * ratio
  c.scale(ratio, ratio)
  c.clearRect(0, 0, width, height)
  const box = el.parentElement!
  const ink: Record<string, string> = {
    message: colourOf(box, '--accent'),
    model: colourOf(box, '--hold-fill'),
    tool: colourOf(box, '--active-fill'),
    error: colourOf(box, '--bad-fill'),
  }
  const rowHeight = height / lanes.length
  // One mark for a pixel of a lane is all that can be seen.
  const taken = new Set<number>()
  for (const item of items) {
    if (Number.isNaN(item.at)) continue
    const kind = item.result?.ok === false ? 'error' : item.kind
    const lane = lanes.indexOf(kind)
    if (lane < 0) continue
    const began = kind === 'model' && item.took ? item.at - item.took : item.at
    const x = Math.floor(((began - first) / span) * (width - 2))
    const w = Math.max(2, Math.round(((item.took ?? 0) / span) * width))
    const key = x * lanes.length + lane
    if (w <= 2 && taken.has(key)) continue
    taken.add(key)
    c.fillStyle = ink[kind]!
    c.fillRect(Math.max(0, x), lane * rowHeight + 1, Math.min(w, width - x), rowHeight - 2)
  }
}
