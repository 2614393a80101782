/** The one place that talks to the coordinator. */
import { workspace } from './workspace'

/** A problem that the coordinator answered with, or that kept it from answering. */
export class ApiError extends Error {
  constructor(
    /** HTTP status; 0: there was no answer. */
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint?: string,
    readonly data?: Record<string, unknown>,
    readonly requestId?: string,
  ) {
    super(message)
    this.name = 'ApiError'
  }
  /** The session that the request was made with is over. */
  get signedOut(): boolean {
    return this.status === 401
  }
}

let onSignedOut: () => void = () => {}

/** Says what to do when an answer shows that the session is over. */
export function whenSignedOut(fn: () => void): void {
  onSignedOut = fn
}

interface Options {
  method?: string
  body?: unknown
  signal?: AbortSignal
  headers?: Record<string, string>
  /** A 401 is an answer to the question, not the end of the session. */
  quiet?: boolean
}

/** Requests a path and returns the answer when it is a good one, else throws an ApiError. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { accept: 'application/json', ...workspace.header(), ...options.headers }
  const init: RequestInit = { method: options.method ?? 'GET', headers, credentials: 'same-origin', cache: 'no-store' }
  if (options.signal) init.signal = options.signal
  if (options.body !== undefined) {
    headers['content-type'] = 'application/json'
    init.body = JSON.stringify(options.body)
  }
  let response: Response
  try {
    response = await reach(path, init)
  } catch (cause) {
    if (options.signal?.aborted) throw cause
    throw new ApiError(0, 'OFFLINE', 'The coordinator does not answer.', 'Check that it runs and that this machine reaches it; the page tries again by itself.')
  }
  if (response.ok) return response
  const error = await problem(response)
  if (error.signedOut && !options.quiet) onSignedOut()
  throw error
}

/** Asks; a question that changes nothing is asked once more when the network failed under it. */
async function reach(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init)
  } catch (cause) {
    if (init.method !== 'GET' || init.signal?.aborted) throw cause
    await new Promise((resolve) => setTimeout(resolve, 300))
    return fetch(path, init)
  }
}

async function problem(response: Response): Promise<ApiError> {
  const id = response.headers.get('x-request-id') ?? undefined
  const text = await response.text().catch(() => '')
  try {
    const p = JSON.parse(text) as { code?: string; message?: string; hint?: string; data?: Record<string, unknown> }
    if (p.message) return new ApiError(response.status, p.code ?? 'UNKNOWN', p.message, p.hint, p.data, id)
  } catch {
    // not the coordinator's: a proxy's page
  }
  return new ApiError(
    response.status,
    'UNKNOWN',
    `Something between this page and the coordinator answered ${response.status} ${response.statusText}.`,
    'If a proxy stands before the coordinator, its log says why.',
    undefined,
    id,
  )
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send(path, signal ? { signal } : {})).json() as Promise<T>
}

export async function change<T = void>(method: 'POST' | 'PUT' | 'DELETE', path: string, body?: unknown): Promise<T> {
  const response = await send(path, body === undefined ? { method } : { method, body })
  if (response.status === 204) return undefined as T
  const text = await response.text()
  return (text ? JSON.parse(text) : undefined) as T
}

/** One page of a list and how to get the next. */
export interface Page<T> {
  items: T[]
  next: string | undefined
  total: number | undefined
}

export async function page<T>(path: string, signal?: AbortSignal): Promise<Page<T>> {
  const response = await send(path, signal ? { signal } : {})
  const total = response.headers.get('x-everdict-total')
  return {
    items: (await response.json()) as T[],
    next: nextOf(response.headers.get('link')),
    total: total === null ? undefined : Number.parseInt(total, 10),
  }
}

/** The target of rel="next" in a Link header. */
export function nextOf(link: string | null): string | undefined {
  return link?.match(/<([^>]*)>\s*;\s*rel="?next"?/)?.[1]
}

/** A path with a query; undefined and empty values are left out. */
export function query(path: string, values: Record<string, string | number | boolean | undefined>): string {
  const q = new URLSearchParams()
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== '' && value !== false) q.set(key, String(value))
  }
  const text = q.toString()
  return text ? `${path}?${text}` : path
}

export const seg = encodeURIComponent
