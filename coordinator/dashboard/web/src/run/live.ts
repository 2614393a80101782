/** One run as the page shows it: its record, trace and log, kept up to date by its own stream. */
import { ApiError, query, seg } from '../data/client'
import { client, revise, runKey } from '../data/queries'
import { over } from '../data/outcome'
import { Store } from '../data/store'
import { openStream, type StreamState } from '../data/stream'
import type { Run, RunEvent, TraceEvent } from '../data/types'
import { LogWindow } from './logwindow'
import { Trace } from './trace'

/** Where a run may only be watched by its own submitter, others read it so often. */
const pollEvery = 3000

export class LiveRun extends Store {
  readonly trace: Trace
  log: LogWindow
  state: StreamState | 'off' = 'off'
  events: RunEvent[] = []
  private stream: ReturnType<typeof openStream> | undefined
  private stopped = false
  private timer: ReturnType<typeof setInterval> | undefined
  private lanes = 'life,trace,log'

  constructor(readonly id: string) {
    super()
    this.trace = new Trace(id)
    this.log = new LogWindow(id, '')
  }

  /** Reads what is there, then follows what comes. */
  async start(run: Run): Promise<void> {
    await Promise.all([this.trace.load(), this.log.jump(over(run.status) ? 0 : 'end')])
    if (this.stopped || over(run.status)) return
    this.follow()
  }

  stop(): void {
    this.stopped = true
    this.stream?.stop()
    clearInterval(this.timer)
  }

  /** The log, of both streams or of one. */
  chooseStream(stream: string): void {
    this.log = new LogWindow(this.id, stream)
    void this.log.jump('end')
    this.changed()
  }

  private follow(): void {
    this.stream = openStream({
      url: () =>
        query(`/runs/${seg(this.id)}/live/stream`, {
          lanes: this.lanes,
          colors: 1,
          attempt: this.trace.attempt,
          traceCursor: this.trace.cursor,
          logOffset: this.log.bytes || undefined,
        }),
      onEvent: (e) => this.take(e.name, JSON.parse(e.data)),
      onState: (s) => {
        this.state = s
        if (s === 'live') this.makeUp()
        this.changed()
      },
      onLost: () => {
        this.trace.restart()
        this.chooseStream(this.log.stream)
      },
      onRefused: (error) => this.refused(error),
    })
  }

  /** What could not be read before there was a stream: it brings the trace from there on, the log is read. */
  private makeUp(): void {
    if (this.lanes === 'life') return
    this.trace.followed()
    if (this.log.error && !this.log.loaded) void this.log.jump('end')
  }

  private refused(error: ApiError): void {
    if (this.stopped || error.signedOut || error.status !== 403 || this.lanes === 'life') return
    // Another's run: its life may be followed, the rest is read.
    this.lanes = 'life'
    this.follow()
    this.timer = setInterval(() => void this.readOn(), pollEvery)
  }

  private async readOn(): Promise<void> {
    await this.trace.load()
    if (this.log.atEnd) await this.log.peek()
  }

  private take(name: string, data: unknown): void {
    switch (name) {
      case 'life': {
        const { run, events } = data as { run: Run; events: RunEvent[] }
        const seen = this.events.at(-1)?.seq ?? 0
        this.events = this.events.concat(events.filter((e) => e.seq > seen))
        revise<Run>(runKey(this.id), (old) => ({ ...run, harness: old.harness, ...(old.caseSpec ? { caseSpec: old.caseSpec } : {}), ...(old.result ? { result: old.result } : {}) }))
        for (const part of ['attempts', 'placement']) void client.invalidateQueries({ queryKey: ['run', this.id, part] })
        this.changed()
        return
      }
      case 'trace': {
        const { events, total, attempt } = data as { events: TraceEvent[]; total: number; attempt?: number }
        this.trace.live(events, total, attempt)
        return
      }
      case 'log': {
        const { text, offset, next, attempt } = data as { text: string; offset: number; next: number; attempt?: number }
        // Another attempt's: the window begins anew, and reads what is there of it.
        if (attempt !== undefined && this.log.loaded && attempt !== (this.log.attempt ?? attempt)) this.chooseStream(this.log.stream)
        else this.log.live(text, offset, next)
        return
      }
      case 'end':
        this.stream?.end()
        clearInterval(this.timer)
        void client.invalidateQueries({ queryKey: runKey(this.id) })
        if (this.lanes === 'life') void this.readOn()
        // The last bytes may have come with the result and not through the stream.
        else if (this.log.atEnd) void this.log.peek()
    }
  }
}
