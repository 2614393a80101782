import { page, query, type Page } from './client'
import { Store } from './store'
import { over } from './outcome'
import type { Run } from './types'

export interface RunFilter {
  status?: string
  verdict?: string
  harness?: string
  runtime?: string
  runner?: string
  cause?: string
  class?: string
  failureClass?: string
  since?: string
  id?: string
}

export const filterNames = ['status', 'verdict', 'harness', 'runtime', 'runner', 'cause', 'class', 'failureClass', 'since', 'id'] as const

/** Whether a run belongs in a filtered list; undefined: only the coordinator can say. */
export function matches(run: Run, f: RunFilter): boolean | undefined {
  if (f.status && run.status !== f.status) return false
  if (f.verdict && String(run.verdict) !== f.verdict) return false
  if (f.harness) {
    const h = run.resolvedHarness ?? run.harness
    if (f.harness !== h.id && f.harness !== `${h.id}@${h.version ?? ''}`) return false
  }
  if (f.class && run.class !== f.class) return false
  if (f.cause && run.origin?.cause !== f.cause) return false
  if (f.failureClass && run.failure?.class !== f.failureClass) return false
  if (f.id && !run.id.startsWith(f.id)) return false
  return f.runtime || f.runner || f.since ? undefined : true
}

const rowsPerPage = 200

/**
 * The rows of a list of runs, newest first, as far as somebody has scrolled.
 * Ids sort by the time of submission, so that pages and live records merge by
 * their ids alone.
 */
export class RunList extends Store {
  rows: Run[] = []
  error: Error | undefined
  loading = false
  /** The whole of the list is here. */
  complete = false
  loaded = false
  total: number | undefined
  private next: string | undefined
  private generation = 0
  /** The records that came since a page that is on its way was asked for. */
  private meanwhile: Run[] | undefined

  constructor(
    readonly filter: RunFilter,
    private readonly size = rowsPerPage,
  ) {
    super()
  }

  private path(more: Record<string, string | number | boolean | undefined>): string {
    return query('/runs', { ...this.filter, ...more })
  }

  /** Loads the first page anew and puts it over what is there. */
  async refresh(): Promise<void> {
    this.generation++
    await this.read(this.path({ limit: this.size, count: true }), (first) => {
      this.total = first.total
      if (this.loaded && this.rows.length > first.items.length && first.next) {
        // Keep what was scrolled to: below the first page nothing is new, and
        // what has changed there comes as events.
        const oldest = first.items.at(-1)!.id
        this.rows = merge(first.items, this.rows.filter((r) => r.id < oldest))
      } else {
        this.rows = first.items
        this.next = first.next
        this.complete = !first.next
      }
      this.loaded = true
    })
  }

  /** Loads the next page, when there is one and none is on its way. */
  async more(): Promise<void> {
    if (this.loading || this.complete || !this.next || this.error) return
    await this.read(this.next, (p) => {
      this.rows = merge(this.rows, p.items)
      this.next = p.next
      this.complete = !p.next
    })
  }

  /** Reads a page. A record that comes meanwhile may be newer than what is in it, and is applied to it too. */
  private async read(path: string, take: (p: Page<Run>) => void): Promise<void> {
    const generation = this.generation
    this.loading = true
    this.meanwhile ??= []
    this.changed()
    try {
      const p = await page<Run>(path)
      if (generation !== this.generation) return
      const came = this.meanwhile
      this.meanwhile = undefined
      take(p)
      this.apply(came)
      this.error = undefined
    } catch (error) {
      if (generation !== this.generation) return
      this.meanwhile = undefined
      this.error = error as Error
    } finally {
      if (generation === this.generation) this.loading = false
      this.changed()
    }
  }

  /** Takes records that have changed. */
  apply(records: Run[]): void {
    this.meanwhile?.push(...records)
    if (!this.loaded) return
    let unsure = false
    const oldest = this.complete ? '' : (this.rows.at(-1)?.id ?? '')
    let rows = this.rows
    let changed = false
    for (const record of records) {
      const i = find(rows, record.id)
      const here = rows[i]?.id === record.id
      const belongs = matches(record, this.filter)
      if (belongs === undefined && !here) {
        unsure = true
        continue
      }
      if (belongs === false && !here) continue
      if (!here && record.id < oldest) continue // of a page that is not loaded yet
      if (!changed) rows = rows.slice()
      changed = true
      if (belongs === false) rows.splice(i, 1)
      else if (here) rows[i] = newer(rows[i]!, record)
      else rows.splice(i, 0, record)
      if (this.total !== undefined && belongs === false) this.total--
      else if (this.total !== undefined && !here) this.total++
    }
    if (changed) {
      this.rows = rows
      this.changed()
    }
    if (unsure) void this.refresh()
  }
}

/** Two sorted lists, newest first, as one; of one run the record of b wins. */
export function merge(a: Run[], b: Run[]): Run[] {
  if (!a.length || !b.length) return a.length ? a : b
  if (a.at(-1)!.id > b[0]!.id) return a.concat(b)
  const byId = new Map<string, Run>()
  for (const r of a) byId.set(r.id, r)
  for (const r of b) byId.set(r.id, r)
  return [...byId.values()].sort((x, y) => (x.id < y.id ? 1 : x.id > y.id ? -1 : 0))
}

/** An event may arrive after the page that has what came later. */
export function newer(a: Run, b: Run): Run {
  if (over(a.status) && !over(b.status)) return a
  return a.updatedAt > b.updatedAt ? a : b
}

/** Where id stands, or would stand, in a list that is newest first. */
function find(rows: Run[], id: string): number {
  let low = 0
  let high = rows.length
  while (low < high) {
    const mid = (low + high) >> 1
    if (rows[mid]!.id > id) low = mid + 1
    else high = mid
  }
  return low
}

