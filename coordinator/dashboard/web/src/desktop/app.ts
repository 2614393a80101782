/** The app behind the page: its state as it comes, and what it is told to do. */
import { useEffect, useState } from 'react'
import { ApiError, send } from '../data/client'
import { Store } from '../data/store'
import { openStream, type StreamState } from '../data/stream'
import type { State } from './documents'

/**
 * Asks the app. The page lies at a secret path, so that every address is relative. What the
 * layer below says of a coordinator that does not answer is said of the app here.
 */
async function ask(path: string, options: Parameters<typeof send>[1]): Promise<Response> {
  try {
    return await send(path, { ...options, quiet: true })
  } catch (e) {
    if (!(e instanceof ApiError)) throw e
    if (e.status === 0) throw new ApiError(0, e.code, 'The Everdict app does not answer.', 'It may have quit. Start it again; it opens a new window.')
    if (e.code === 'UNKNOWN') throw new ApiError(e.status, e.code, 'This window does not belong to the app any more.', 'Close it and open it again from the tray, or by starting Everdict again.')
    throw new ApiError(e.status, e.code, e.message, e.hint ?? 'Try again; if it stays, the app’s log says more.', e.data)
  }
}

export async function read<T>(path: string, signal: AbortSignal): Promise<T> {
  return (await ask(path, { signal })).json() as Promise<T>
}

export async function tell<T = void>(method: 'POST' | 'PUT', path: string, body: object = {}): Promise<T> {
  const response = await ask(path, { method, body })
  const text = await response.text()
  return (text ? JSON.parse(text) : undefined) as T
}

/** The state, whole with each event. */
class App extends Store {
  state: State | undefined
  link: StreamState = 'connecting'
  /** Somebody has told the app to end: that it does not answer is no fault then. */
  quitting = false
  /** Why there is no stream, and will be none. */
  refused: Error | undefined

  start(): () => void {
    const stream = openStream({
      url: () => 'api/events',
      onEvent: (e) => {
        if (e.name !== 'state') return
        this.state = JSON.parse(e.data) as State
        this.changed()
      },
      onState: (s) => {
        this.link = s
        this.changed()
      },
      onRefused: (error) => {
        this.refused = error.code === 'UNKNOWN' ? new ApiError(error.status, error.code, 'This window does not belong to the app any more.', 'Close it and open it again from the tray, or by starting Everdict again.') : error
        this.changed()
      },
    })
    return () => stream.stop()
  }

  async quit(force: boolean): Promise<void> {
    await tell('POST', 'api/quit', force ? { force } : {})
    this.quitting = true
    this.changed()
  }
}

export const app = new App()

/** Something to read that has a revision: it is read again when that grows, and what was there stays meanwhile. */
export function useRead<T>(path: string, rev: number): { data: T | undefined; error: unknown; again: () => void } {
  const [data, setData] = useState<T>()
  const [error, setError] = useState<unknown>()
  const [tries, setTries] = useState(0)
  useEffect(() => {
    const stop = new AbortController()
    read<T>(path, stop.signal)
      .then((d) => {
        setData(d)
        setError(undefined)
      })
      .catch((e: unknown) => {
        if (!stop.signal.aborted) setError(e)
      })
    return () => stop.abort()
  }, [path, rev, tries])
  return { data, error, again: () => setTries((n) => n + 1) }
}
