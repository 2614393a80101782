/** What ended in each of the last 24 hours, as bars that stand on each other. */
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { clock } from '../data/format'
import { colourOf } from '../ui/colour'
import type { Summary } from '../data/types'

type Hour = Summary['hours'][number]
const parts: [name: string, colour: string, of: (h: Hour) => number][] = [
  ['passed', '--good-fill', (h) => h.passed],
  ['not passed', '--bad-fill', (h) => h.failed],
  ['failed', '--warn-fill', (h) => Object.values(h.failures).reduce((n, x) => n + x, 0)],
  ['ungraded or cancelled', '--mute-fill', (h) => h.ungraded + h.cancelled],
]
const height = 168

export function HoursChart({ hours }: { hours: Hour[] }) {
  const box = useRef<HTMLDivElement>(null)
  const tip = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const el = box.current!
    let plot: uPlot | undefined
    const draw = () => {
      plot?.destroy()
      const colour = (name: string) => colourOf(el, name)
      const font = `11px ${getComputedStyle(el).fontFamily}`
      const at = hours.map((h) => Date.parse(h.at!) / 1000)
      // The tallest first, each covered by the next: the sums from the bottom up.
      const sums = parts.map((_, i) => hours.map((h) => parts.slice(0, i + 1).reduce((n, [, , of]) => n + of(h), 0)))
      const order = parts.map((_, i) => parts.length - 1 - i)
      const top = Math.max(1, ...sums.at(-1)!)
      const bars = uPlot.paths.bars!({ size: [0.72, 26], align: 1, radius: 0 })
      plot = new uPlot(
        {
          width: el.clientWidth,
          height,
          padding: [8, 8, 0, 0],
          legend: { show: false },
          cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
          scales: { x: { time: true, range: [at[0]!, at.at(-1)! + 3600] }, y: { range: [0, top * 1.08] } },
          series: [{}, ...order.map((i) => ({ label: parts[i]![0], fill: colour(parts[i]![1]), width: 0, paths: bars, points: { show: false } }))],
          axes: [
            { stroke: colour('--text-3'), grid: { show: false }, ticks: { show: false }, font, size: 26, space: 64, values: (_, ticks) => ticks.map((t) => clock(new Date(t * 1000))) },
            { stroke: colour('--text-3'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font, size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000], space: 34 },
          ],
          hooks: {
            setCursor: [
              (u) => {
                const t = tip.current
                if (!t) return
                const i = u.cursor.left !== undefined && u.cursor.left >= 0 ? Math.floor((u.posToVal(u.cursor.left, 'x') - at[0]!) / 3600) : -1
                const h = hours[i]
                t.hidden = !h
                if (!h) return
                t.textContent = `${clock(new Date(h.at!))}–${clock(new Date(Date.parse(h.at!) + 3_600_000))}: ${parts.map(([name, , of]) => `${of(h)} ${name}`).join(', ')}`
              },
            ],
          },
        },
        [at, ...order.map((i) => sums[i]!)],
        el,
      )
    }
    draw()
    const observer = new ResizeObserver(() => plot?.setSize({ width: el.clientWidth, height }))
    observer.observe(el)
    const media = matchMedia('(prefers-color-scheme: dark)')
    media.addEventListener('change', draw)
    addEventListener('everdict:theme', draw)
    return () => {
      observer.disconnect()
      media.removeEventListener('change', draw)
      removeEventListener('everdict:theme', draw)
      plot?.destroy()
    }
  }, [hours])
  return (
    <>
      <div className="chart" ref={box} aria-hidden />
      <div className="chart-tip tnum" ref={tip} hidden aria-hidden />
      <div className="visually-hidden">
      <table>
        <caption>What ended in each hour</caption>
        <thead>
          <tr>
            <th>Hour</th>
            {parts.map(([name]) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {hours.map((h) => (
            <tr key={h.at}>
              <th>{clock(new Date(h.at!))}</th>
              {parts.map(([name, , of]) => (
                <td key={name}>{of(h)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      </div>
    </>
  )
}
