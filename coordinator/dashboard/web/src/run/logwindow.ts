import { get, query, seg } from '../data/client'
import { Store } from '../data/store'
import type { LogPage } from '../data/types'

/** One page of lines, and which bytes of the log they are. */
export interface Part {
  offset: number
  next: number
  lines: string[]
  /** The last line has not ended: what comes next belongs to it. */
  open: boolean
}

export const pageBytes = 256 * 1024
/** How much is held at most. What lies outside is read again when somebody scrolls there. */
const heldBytes = 6 * 1024 * 1024
const heldLines = 400_000
/** A longer line is cut in the page; the download has it whole. */
const lineChars = 4000

export function partOf(text: string, offset: number, next: number): Part {
  const open = text.length > 0 && !text.endsWith('\n')
  const lines = text.split('\n')
  if (!open) lines.pop()
  return { offset, next, lines, open }
}

/**
 * A window onto a log of any length: neighbouring pages around the place that is
 * looked at. It never holds more than a few megabytes. Offsets are the
 * coordinator's, in bytes of the log as stored.
 */
export class LogWindow extends Store {
  parts: Part[] = []
  bytes = 0
  /** Number of the first line that is held, when it is known. */
  firstLine: number | undefined
  loading: 'none' | 'jump' | 'before' | 'after' = 'none'
  error: Error | undefined
  loaded = false
  found = true
  /** Whose output it is. */
  attempt: number | undefined
  /** Lines that the last change put in front, or took away there when negative: the view scrolls by as many. */
  shift = 0
  /** The size that the coordinator last said. */
  private known = 0
  private generation = 0

  constructor(
    readonly run: string,
    readonly stream: string,
  ) {
    super()
  }

  get lineCount(): number {
    return this.parts.reduce((n, p) => n + p.lines.length, 0)
  }
  get start(): number {
    return this.parts[0]?.offset ?? 0
  }
  get end(): number {
    return this.parts.at(-1)?.next ?? 0
  }
  get atStart(): boolean {
    return this.loaded && this.start <= 0
  }
  get atEnd(): boolean {
    return this.loaded && this.end >= this.bytes
  }

  line(index: number): string {
    for (const p of this.parts) {
      if (index < p.lines.length) return p.lines[index]!
      index -= p.lines.length
    }
    return ''
  }

  /** The line, counted from the first that is held, in which a byte of the log lies. */
  lineOf(offset: number): number {
    let before = 0
    for (const p of this.parts) {
      if (offset < p.next) {
        const encoder = new TextEncoder()
        let at = p.offset
        for (let i = 0; i < p.lines.length; i++) {
          at += encoder.encode(p.lines[i]).length + 1
          if (offset < at) return before + i
        }
        return before + Math.max(0, p.lines.length - 1)
      }
      before += p.lines.length
    }
    return Math.max(0, before - 1)
  }

  private read(at: Record<string, number>): Promise<LogPage> {
    return get<LogPage>(query(`/runs/${seg(this.run)}/logs`, { limit: at['tail'] === undefined ? pageBytes : undefined, ...at, stream: this.stream, colors: 1 }))
  }

  /** Begins anew at a place: the bytes from offset on, or the end. */
  async jump(to: number | 'end'): Promise<void> {
    const generation = ++this.generation
    this.loading = 'jump'
    this.changed()
    try {
      const p = await this.read(to === 'end' ? { tail: pageBytes } : { offset: Math.max(0, to) })
      if (generation !== this.generation) return
      this.found = p.found
      this.attempt = p.attempt
      this.bytes = this.known = p.bytes ?? 0
      this.parts = p.text || p.next ? [partOf(p.text, p.offset ?? 0, p.next ?? 0)] : []
      this.firstLine = (p.offset ?? 0) === 0 ? 1 : undefined
      this.loaded = true
      this.error = undefined
      this.shift = 0
    } catch (error) {
      if (generation === this.generation) this.error = error as Error
    } finally {
      if (generation === this.generation) this.loading = 'none'
      this.changed()
    }
  }

  /** Reads the page before the first, or after the last. */
  async extend(where: 'before' | 'after'): Promise<void> {
    if (this.loading !== 'none' || !this.loaded || (where === 'before' ? this.atStart : this.atEnd)) return
    const generation = this.generation
    this.loading = where
    this.changed()
    try {
      const p = await this.read(where === 'before' ? { before: this.start } : { offset: this.end })
      if (generation !== this.generation) return
      this.known = p.bytes ?? 0
      this.bytes = Math.max(this.bytes, this.known)
      if (p.next > p.offset) this.take(p, where)
      this.error = undefined
    } catch (error) {
      if (generation === this.generation) this.error = error as Error
    } finally {
      if (generation === this.generation) this.loading = 'none'
      this.changed()
    }
  }

  /** Reads what was written behind the end, when the window is there. */
  async peek(): Promise<void> {
    this.bytes = Math.max(this.bytes, this.end + 1) // there may be more: ask
    await this.extend('after')
    this.bytes = Math.min(this.bytes, Math.max(this.end, this.known))
    this.changed()
  }

  private take(p: LogPage, where: 'before' | 'after'): void {
    if (where === 'before') {
      if (p.next !== this.start) return
      const part = partOf(p.text, p.offset, p.next)
      this.parts = [part, ...this.parts]
      this.shift += part.lines.length
      this.firstLine = part.offset === 0 ? 1 : undefined
      this.drop('after')
      return
    }
    if (p.offset !== this.end) return
    this.append(p.text, p.offset, p.next)
    this.drop('before')
  }

  private append(text: string, offset: number, next: number): void {
    const last = this.parts.at(-1)
    const part = partOf(text, offset, next)
    if (last?.open && part.lines.length) {
      last.lines[last.lines.length - 1] += part.lines.shift()!
      if (part.lines.length === 0) last.open = part.open
      else last.open = false
      last.next = part.lines.length ? part.offset : part.next
      if (part.lines.length === 0) return
    }
    // Small pieces of a live log go into the page that is there.
    const into = this.parts.at(-1)
    if (into && into.next - into.offset < pageBytes) {
      for (const line of part.lines) into.lines.push(line)
      into.next = part.next
      into.open = part.open
    } else {
      this.parts = [...this.parts, part]
    }
  }

  private drop(from: 'before' | 'after'): void {
    while (this.parts.length > 2 && (this.end - this.start > heldBytes || this.lineCount > heldLines)) {
      if (from === 'after') {
        this.parts = this.parts.slice(0, -1)
        continue
      }
      const gone = this.parts[0]!
      this.parts = this.parts.slice(1)
      this.shift -= gone.lines.length
      if (this.firstLine !== undefined) this.firstLine += gone.lines.length
    }
  }

  /** Takes a piece that was written just now. What does not join the window only moves the end. */
  live(text: string, offset: number, next: number): void {
    if (!this.loaded || next <= this.end) {
      this.bytes = Math.max(this.bytes, next)
      return
    }
    const joins = offset === this.end && this.end >= this.bytes && !this.stream
    this.bytes = Math.max(this.bytes, next)
    if (joins) {
      this.append(text, offset, next)
      this.drop('before')
    }
    this.changed()
  }

  /** How many lines the view has to scroll by since it last asked. */
  takeShift(): number {
    const shift = this.shift
    this.shift = 0
    return shift
  }
}

/** A line as it is shown: one of a megabyte would stop the page. */
export function shown(line: string): { text: string; cut: number } {
  return line.length > lineChars ? { text: line.slice(0, lineChars), cut: line.length - lineChars } : { text: line, cut: 0 }
}
