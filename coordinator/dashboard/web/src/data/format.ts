/** How values are written. Unknown is a dash, never 0. */
export const dash = '–'

const units: [number, string][] = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'm'],
  [1000, 's'],
]

/** 0.4 s, 12 s, 3m 20s, 2h 5m, 4d 1h. */
export function duration(ms: number | undefined): string {
  if (ms === undefined || Number.isNaN(ms)) return dash
  if (ms < 0) ms = 0
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`
  if (ms < 60_000) return `${Math.floor(ms / 1000)} s`
  const i = units.findIndex(([size]) => ms >= size)
  const [size, unit] = units[i]!
  const [nextSize, nextUnit] = units[i + 1]!
  const rest = Math.floor((ms % size) / nextSize)
  return `${Math.floor(ms / size)}${unit}${rest ? ` ${rest}${nextUnit}` : ''}`
}

/** now, 12s ago, 3m ago, in 5h. */
export function ago(at: number, now: number): string {
  const ms = Math.abs(now - at)
  if (ms < 5000) return 'now'
  const found = units.find(([size]) => ms >= size) ?? units[3]!
  const text = `${Math.floor(ms / found[0])}${found[1]}`
  return at <= now ? `${text} ago` : `in ${text}`
}

const full = new Intl.DateTimeFormat('en-GB', {
  weekday: 'short', day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'long',
})

/** A whole instant with its zone. */
export function instant(at: Date): string {
  return `${full.format(at)} (${at.toISOString()})`
}

const clockFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' })
export function clock(at: Date): string {
  return clockFormat.format(at)
}

const whole = new Intl.NumberFormat('en-US')
export function count(n: number | null | undefined): string {
  return n === null || n === undefined ? dash : whole.format(n)
}

/** 950, 12.3k, 4.1M. */
export function short(n: number | null | undefined): string {
  if (n === null || n === undefined) return dash
  if (n < 1000) return whole.format(Math.round(n * 100) / 100)
  if (n < 1e6) return `${trim(n / 1e3)}k`
  if (n < 1e9) return `${trim(n / 1e6)}M`
  return `${trim(n / 1e9)}B`
}

function trim(n: number): string {
  return n < 100 ? n.toFixed(1).replace(/\.0$/, '') : String(Math.floor(n))
}

export function usd(n: number | null | undefined): string {
  if (n === null || n === undefined) return dash
  if (n === 0) return '$0'
  return n < 0.01 ? `$${n.toPrecision(2)}` : `$${n.toFixed(2)}`
}

/** Bytes in binary units. */
export function bytes(n: number | undefined): string {
  if (n === undefined) return dash
  if (n < 1024) return `${n} B`
  if (n < 1024 ** 2) return `${trim(n / 1024)} KiB`
  if (n < 1024 ** 3) return `${trim(n / 1024 ** 2)} MiB`
  return `${trim(n / 1024 ** 3)} GiB`
}

export function megabytes(n: number | undefined): string {
  return n === undefined ? dash : bytes(n * 1024 ** 2)
}

/** Thousandths of a core as cores. */
export function cores(thousandths: number): string {
  return String(thousandths / 1000)
}

/** A long id by its end, which is what differs. */
export function shortId(id: string): string {
  return id.length > 14 ? `${id.slice(0, 4)}…${id.slice(-6)}` : id
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`
}
