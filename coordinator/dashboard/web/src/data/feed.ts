/**
 * The workspace's event stream, and what it does to what the pages have read.
 * One tab holds one stream: this one, or that of the run it shows.
 */
import { client, revise, sessionQuery } from './queries'
import type { RunList } from './runlist'
import { Store } from './store'
import { openStream, type StreamState } from './stream'
import type { Pool, PoolUse, Run, Runner } from './types'

/** Without a stream, lists are read again so often. */
const pollEvery = 5000
/** So long a stream may be away before the lists are read without it. */
const patience = 20_000

class Feed extends Store {
  state: StreamState | 'off' | 'polling' = 'off'
  /** The version of a coordinator that was updated while the page was open. */
  updated: string | undefined
  private coordinator: string | undefined
  private stream: ReturnType<typeof openStream> | undefined
  private readonly lists = new Set<RunList>()
  private poller: ReturnType<typeof setInterval> | undefined
  private impatient: ReturnType<typeof setTimeout> | undefined
  private summaryAt = 0
  private summaryTimer: ReturnType<typeof setTimeout> | undefined

  start(): void {
    if (this.stream) return
    let first = true
    this.stream = openStream({
      url: () => '/events',
      onEvent: (e) => {
        try {
          this.take(e.name, JSON.parse(e.data))
        } catch {
          this.reload() // a line that is not what it should be: read what it was about
        }
      },
      onState: (s) => {
        this.set(s)
        // What was read before there was a stream may have changed since.
        if (s === 'live' && first) this.reload()
        first &&= s !== 'live'
      },
      onLost: () => this.reload(),
      onRefused: (error) => {
        if (!error.signedOut) this.poll()
      },
    })
  }

  stop(): void {
    this.stream?.stop()
    this.stream = undefined
    this.quiet()
    this.set('off')
  }

  /** A list that is shown takes part in what comes. */
  watch(list: RunList): () => void {
    this.lists.add(list)
    return () => {
      this.lists.delete(list)
    }
  }

  private set(state: Feed['state']): void {
    if (this.state === 'polling' && state === 'reconnecting') return
    this.state = state
    clearTimeout(this.impatient)
    if (state === 'live' || state === 'off') this.quiet()
    if (state === 'reconnecting') this.impatient = setTimeout(() => this.poll(), patience)
    this.changed()
  }

  /** Falls back to reading again and again; the stream is tried beside it. */
  private poll(): void {
    this.state = 'polling'
    this.poller ??= setInterval(() => this.reload(), pollEvery)
    this.changed()
  }

  private quiet(): void {
    clearInterval(this.poller)
    clearTimeout(this.impatient)
    this.poller = undefined
  }

  private take(name: string, data: unknown): void {
    switch (name) {
      case 'hello': {
        const { version } = data as { version: string }
        if (this.coordinator !== undefined && version !== this.coordinator) this.updated = version
        this.coordinator ??= version
        this.changed()
        return
      }
      case 'runs': {
        const { runs } = data as { runs: Run[] }
        for (const list of this.lists) list.apply(runs)
        this.summarySoon()
        return
      }
      case 'runners': {
        const { runners = [], removed = [] } = data as { runners?: Runner[]; removed?: string[] }
        revise<Runner[]>(['runners'], (old) => upsert(old, runners, removed))
        void client.invalidateQueries({ queryKey: ['runners', 'own'] })
        void client.invalidateQueries({ queryKey: ['pools'] })
        this.summarySoon()
        return
      }
      case 'pools': {
        const { pools } = data as { pools: PoolUse[] }
        revise<Pool[]>(['pools'], (old) => {
          const known = new Map(old.map((p) => [p.runtime, p]))
          return pools.map((p) => ({ ...p, runners: known.get(p.runtime)?.runners ?? [] }))
        })
        this.summarySoon()
        return
      }
      case 'reset':
        this.reload()
        return
      case 'end':
        this.stream?.end()
        this.stream = undefined
        void client.invalidateQueries({ queryKey: sessionQuery.queryKey })
    }
  }

  private reload(): void {
    for (const list of this.lists) void list.refresh()
    for (const key of ['summary', 'runners', 'pools', 'runtimes', 'harnesses', 'secrets', 'keys']) void client.invalidateQueries({ queryKey: [key] })
  }

  private summarySoon(): void {
    if (this.summaryTimer) return
    const wait = Math.max(150, 2000 - (Date.now() - this.summaryAt))
    this.summaryTimer = setTimeout(() => {
      this.summaryTimer = undefined
      this.summaryAt = Date.now()
      void client.invalidateQueries({ queryKey: ['summary'] })
    }, wait)
  }
}

export function upsert<R extends { id: string }>(old: R[], changed: R[], removed: string[]): R[] {
  const by = new Map(changed.map((r) => [r.id, r]))
  const kept = old.filter((r) => !removed.includes(r.id)).map((r) => {
    const next = by.get(r.id)
    by.delete(r.id)
    return next ?? r
  })
  return [...by.values(), ...kept]
}

export const feed = new Feed()
