/** The end of a running job's log, as it comes. */
import { Store } from '../data/store'
import { openStream } from '../data/stream'
import type { LogChunk } from './documents'

/** So many lines are kept; the whole log is at the coordinator. */
export const keptLines = 1000
/** A longer line is cut. */
export const lineChars = 2000

/** Lines out of pieces that end anywhere. */
export class Tail extends Store {
  lines: { id: number; text: string }[] = []
  /** Something before the first line is not here. */
  skipped = false
  ended = false
  loaded = false
  private open = false
  private last = 0

  add(chunk: LogChunk): void {
    this.loaded = true
    if (chunk.skipped) this.skipped = true
    if (chunk.text !== '') {
      const parts = chunk.text.split('\n')
      const lines = this.lines.slice()
      parts.forEach((text, i) => {
        if (i === 0 && this.open) {
          const before = lines[lines.length - 1]!
          lines[lines.length - 1] = { id: before.id, text: (before.text + text).slice(0, lineChars) }
        } else if (i < parts.length - 1 || text !== '') lines.push({ id: ++this.last, text: text.slice(0, lineChars) })
      })
      this.open = !chunk.text.endsWith('\n')
      if (lines.length > keptLines) {
        this.skipped = true
        lines.splice(0, lines.length - keptLines)
      }
      this.lines = lines
    }
    this.changed()
  }

  /** Reads a job's log until it ends or is told to stop. */
  follow(run: string, epoch: number): () => void {
    const stream = openStream({
      url: () => `api/jobs/${encodeURIComponent(run)}/${epoch}/log`,
      onEvent: (e) => {
        if (e.name === 'log') this.add(JSON.parse(e.data) as LogChunk)
        if (e.name === 'end') {
          stream.end()
          this.ended = true
          this.changed()
        }
      },
      onState: (s) => {
        // A stream that comes anew begins with what is kept of the end.
        if (s === 'reconnecting') this.clear()
      },
      onRefused: () => {
        this.ended = true
        this.changed()
      },
    })
    return () => stream.stop()
  }

  private clear(): void {
    this.lines = []
    this.open = false
    this.skipped = false
  }
}
