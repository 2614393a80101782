import { page, query, seg } from '../data/client'
import { Store } from '../data/store'
import type { TraceEvent } from '../data/types'

/** What a row of the timeline is about. */
export type Kind = 'message' | 'model' | 'tool' | 'env' | 'error' | 'infra' | 'other'

/** One row of the timeline: an event, with the result of a tool call folded in. */
export interface Item {
  index: number
  kind: Kind
  event: TraceEvent
  /** The result of a tool call, when it is there. */
  result?: TraceEvent
  /** Instant, epoch milliseconds; NaN when the emitter gave none. */
  at: number
  /** How long it took, in milliseconds, when that is known. */
  took?: number
  /** How long nothing happened before it, when that was long. */
  gap?: number
}

/** A pause that is worth a line, in milliseconds. */
export const longGap = 3000

const kinds: Record<string, Kind> = {
  message: 'message', llm_call: 'model', tool_call: 'tool', tool_result: 'tool', env_action: 'env', error: 'error', infra: 'infra', log: 'other', artifact: 'env', span: 'other',
}

/** Folds events, in order, into rows. It is fed piece by piece. */
export class Timeline {
  items: Item[] = []
  events = 0
  private calls = new Map<string, number>()
  private lastAt = Number.NaN

  push(event: TraceEvent): void {
    this.events++
    const at = typeof event.t === 'number' ? event.t : Number.NaN
    if (event.kind === 'tool_result' && event.id) {
      const index = this.calls.get(event.id)
      if (index !== undefined) {
        const call = this.items[index]!
        const took = event.durationMs || at - call.at
        // A row is replaced, not changed: what shows it compares by identity.
        this.items[index] = { ...call, result: event, ...(Number.isFinite(took) ? { took: Math.max(0, took) } : {}) }
        this.calls.delete(event.id)
        this.lastAt = at
        return
      }
    }
    const item: Item = { index: this.items.length, kind: kinds[event.kind] ?? 'other', event, at }
    const took = event.durationMs || event.latencyMs
    if (took) item.took = took
    const began = event.kind === 'llm_call' && took ? at - took : at
    if (began - this.lastAt >= longGap) item.gap = began - this.lastAt
    if (!Number.isNaN(at)) this.lastAt = at
    if (event.kind === 'tool_call' && event.id) this.calls.set(event.id, item.index)
    this.items.push(item)
  }
}

const pageSize = 1000

/** The attempt that a cursor of a trace is a place in: it stands before the dash. */
function attemptOf(cursor: string | undefined): number | undefined {
  const number = /^(\d+)-/.exec(cursor ?? '')?.[1]
  return number === undefined ? undefined : Number(number)
}

/**
 * The trace of a run's newest attempt: pages from the start, and then, behind
 * the cursor that they end with, live events.
 */
export class Trace extends Store {
  line = new Timeline()
  total = 0
  attempt: number | undefined
  loading = false
  loaded = false
  error: Error | undefined
  /** Where to read on. */
  cursor: string | undefined
  private generation = 0

  constructor(readonly run: string) {
    super()
  }

  /** Reads on to the end of what is there. */
  async load(): Promise<void> {
    const generation = ++this.generation
    this.loading = true
    this.changed()
    try {
      for (;;) {
        const p = await page<TraceEvent>(query(`/runs/${seg(this.run)}/trace`, { limit: pageSize, cursor: this.cursor }))
        if (generation !== this.generation) return
        const next = p.next ? (new URLSearchParams(p.next.slice(p.next.indexOf('?'))).get('cursor') ?? undefined) : undefined
        const attempt = attemptOf(next)
        if (attempt !== undefined && this.attempt !== undefined && attempt !== this.attempt) {
          // Another attempt began while this was read.
          this.begin(attempt)
          continue
        }
        this.attempt = attempt ?? this.attempt
        for (const e of p.items) this.line.push(e)
        this.total = Math.max(p.total ?? 0, this.line.events)
        const further = next && next !== this.cursor && p.items.length > 0
        if (next) this.cursor = next
        this.changed()
        if (!further || p.items.length < pageSize) break
      }
      this.error = undefined
      this.loaded = true
    } catch (error) {
      if (generation === this.generation) this.error = error as Error
    } finally {
      if (generation === this.generation) this.loading = false
      this.changed()
    }
  }

  /** A stream brings all that is behind the cursor: what could not be read is not missing. */
  followed(): void {
    this.error = undefined
    this.loaded = true
    this.changed()
  }

  /** Takes events that came just now. */
  live(events: TraceEvent[], total: number, attempt: number | undefined): void {
    if (attempt !== undefined && attempt !== this.attempt) this.begin(attempt)
    for (const e of events) this.line.push(e)
    this.total = Math.max(total, this.line.events)
    this.changed()
  }

  /** Forgets what was read: all of it comes again. */
  restart(): void {
    this.generation++
    this.line = new Timeline()
    this.total = 0
    this.cursor = undefined
    this.changed()
  }

  /** Another attempt: what the one before did is among the attempts. */
  private begin(attempt: number): void {
    if (this.attempt !== undefined) {
      this.line = new Timeline()
      this.total = 0
      this.cursor = undefined
    }
    this.attempt = attempt
  }
}

/** The one line that stands for an event in the timeline. */
export function headline(item: Item): string {
  const e = item.event
  switch (e.kind) {
    case 'message':
      return firstLine(e.text ?? '')
    case 'llm_call':
      return e.model ?? 'model call'
    case 'tool_call':
      return argsLine(e.args)
    case 'tool_result':
      return firstLine(e.output ?? '')
    case 'env_action':
      return [e.action, typeof e.detail === 'string' ? e.detail : e.detail === undefined ? '' : firstLine(JSON.stringify(e.detail))].filter(Boolean).join('  ')
    case 'log':
      return firstLine(e.text ?? '')
    case 'artifact':
    case 'span':
      return [e.name, e.ref].filter(Boolean).join('  ')
    default:
      return firstLine(e.message ?? e.event ?? '')
  }
}

/** Arguments of a tool in one line: the value alone when there is one. */
export function argsLine(args: unknown): string {
  if (args === null || args === undefined) return ''
  if (typeof args !== 'object') return firstLine(String(args))
  const entries = Object.entries(args as Record<string, unknown>)
  const one = (v: unknown) => firstLine(typeof v === 'string' ? v : (JSON.stringify(v) ?? ''))
  if (entries.length === 1) return one(entries[0]![1])
  // A path says more than a content: the short ones first.
  const said = entries.map(([k, v]) => [k, one(v)] as const).sort((a, b) => a[1].length - b[1].length)
  return said.map(([k, v]) => `${k}=${v.slice(0, 80)}`).join('  ')
}

export function firstLine(text: string): string {
  const line = text.slice(0, 400).trimStart().split('\n', 1)[0]!
  return line.slice(0, 300)
}

/** Whether a row has the text, in any case. */
export function contains(item: Item, text: string): boolean {
  const e = item.event
  const parts = [e.text, e.message, e.name, e.model, e.action, item.result?.output, e.output]
  if (parts.some((p) => p?.toLowerCase().includes(text))) return true
  return e.args !== undefined && JSON.stringify(e.args).toLowerCase().includes(text)
}
