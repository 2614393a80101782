/**
 * Server-sent events over fetch: unlike EventSource it can carry a header, sees
 * the status of a refusal, and tells a proxy that swallows the stream from one
 * that is quiet.
 */
import { createParser } from 'eventsource-parser'
import { ApiError, send } from './client'

export type StreamState = 'connecting' | 'live' | 'reconnecting' | 'ended'

export interface StreamEvent {
  name: string
  data: string
}

export interface StreamOptions {
  /** Where the stream is, asked at each connection that does not resume by an id. */
  url: () => string
  onEvent: (event: StreamEvent) => void
  onState: (state: StreamState) => void
  /** The place to resume is not known there any more: what was read so far has to be read anew. */
  onLost?: () => void
  /** The server refused for good, such as a 403 or a 404. */
  onRefused?: (error: ApiError) => void
}

/** The server comments every 15 s; three missed ones mean that nobody is there. */
const silence = 45_000
const firstWait = 500
const longestWait = 10_000

/** How long to wait before the next try: full jitter below a doubling bound. */
export function backoff(tries: number, random = Math.random()): number {
  return firstWait / 2 + random * Math.min(longestWait, firstWait * 2 ** tries)
}

/** Opens a stream and keeps it open until stop is called or the server says that it is over. */
export function openStream(options: StreamOptions): { stop: () => void; end: () => void } {
  const stopped = new AbortController()
  let lastId = ''
  let over = false

  async function once(onUp: () => void): Promise<void> {
    const attempt = new AbortController()
    const abort = () => attempt.abort()
    stopped.signal.addEventListener('abort', abort)
    let watch = setTimeout(abort, silence)
    const heard = () => {
      clearTimeout(watch)
      watch = setTimeout(abort, silence)
    }
    try {
      const headers: Record<string, string> = { accept: 'text/event-stream' }
      if (lastId) headers['last-event-id'] = lastId
      const response = await send(options.url(), { headers, signal: attempt.signal })
      if (!response.headers.get('content-type')?.startsWith('text/event-stream') || !response.body) {
        throw new ApiError(response.status, 'NO_STREAM', 'The answer is not an event stream.')
      }
      const parser = createParser({
        onEvent: (e) => {
          if (e.id) lastId = e.id
          options.onEvent({ name: e.event ?? 'message', data: e.data })
        },
      })
      const reader = response.body.getReader()
      const decoder = new TextDecoder()
      let up = false
      for (;;) {
        const { done, value } = await reader.read()
        if (done || over) return
        if (!up) {
          up = true
          onUp()
        }
        heard()
        parser.feed(decoder.decode(value, { stream: true }))
      }
    } finally {
      clearTimeout(watch)
      stopped.signal.removeEventListener('abort', abort)
      attempt.abort()
    }
  }

  async function run(): Promise<void> {
    options.onState('connecting')
    for (let tries = 0; !stopped.signal.aborted && !over; tries++) {
      try {
        await once(() => {
          tries = 0
          options.onState('live')
        })
      } catch (error) {
        if (stopped.signal.aborted) return
        if (error instanceof ApiError) {
          if (error.status === 400 && lastId) {
            lastId = ''
            options.onLost?.()
          } else if (error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429) {
            options.onState('ended')
            options.onRefused?.(error)
            return
          }
        }
      }
      if (stopped.signal.aborted || over) return
      options.onState('reconnecting')
      await pause(backoff(tries), stopped.signal)
    }
  }
  void run()
  return {
    stop: () => stopped.abort(),
    /** What the server said was the last event: do not come back. */
    end: () => {
      over = true
      stopped.abort()
      options.onState('ended')
    },
  }
}

/** Waits, but not while a tab is hidden longer than needed: coming back tries at once. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      removeEventListener('online', done)
      document.removeEventListener('visibilitychange', shown)
      resolve()
    }
    const shown = () => {
      if (document.visibilityState === 'visible') done()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done)
    addEventListener('online', done)
    document.addEventListener('visibilitychange', shown)
  })
}
