/** What the pages of pairing say and read. */
import { queryOptions } from '@tanstack/react-query'
import { ApiError, get, seg } from './client'
import type * as T from './types'

/** How often a page asks what has become of a request or a code. */
const followEvery = 1000

export const pairingQuery = (id: string) =>
  queryOptions({
    queryKey: ['pairing', id],
    queryFn: ({ signal }) => get<T.Pairing>(`/pairings/${seg(id)}`, signal),
    staleTime: 0,
    refetchInterval: (q) => (q.state.data === undefined || q.state.data.status === 'pending' || q.state.data.status === 'approved' ? followEvery : false),
    // It is gone for good, or this is not for the one who asks.
    retry: (tries, error) => tries < 3 && !(error instanceof ApiError && error.status >= 400 && error.status < 500),
  })

export const pairCodeQuery = (id: string) =>
  queryOptions({
    queryKey: ['paircode', id],
    queryFn: ({ signal }) => get<T.PairCode>(`/pair-codes/${seg(id)}`, signal),
    staleTime: 0,
    refetchInterval: (q) => (codeOpen(q.state.data) ? followEvery : false),
    retry: (tries, error) => tries < 3 && !(error instanceof ApiError && error.status >= 400 && error.status < 500),
  })

/** Whether something can still come of a pair code. */
export function codeOpen(c: Pick<T.PairCode, 'status' | 'runner'> | undefined): boolean {
  return c === undefined || c.status === 'waiting' || (c.status === 'used' && !c.runner)
}

/** Why a pairing ended, when the coordinator says so: expired, denied, used, verifier, number, off. */
export function reasonOf(error: unknown): string | undefined {
  const reason = error instanceof ApiError ? error.data?.['reason'] : undefined
  return typeof reason === 'string' ? reason : undefined
}

/** An end of a request that is no runner, and what to do about it. */
export interface End {
  title: string
  text: string
}

/** What a request has come to, when it is over: by its status, or by the answer that there is none. */
export function pairingEnd(status: string | undefined, error?: unknown): End | undefined {
  if (error instanceof ApiError && error.status === 404) {
    return { title: 'There is no such request', text: 'It is over, or the address was not copied whole. Start again on the computer: it makes a new request.' }
  }
  switch (status) {
    case 'expired':
      return { title: 'This request is over', text: 'It is good for five minutes. Start again on the computer: it makes a new request.' }
    case 'denied':
      return { title: 'This request was denied', text: 'The computer is told and has no access. If that was a mistake, start again on the computer.' }
    default:
      return undefined
  }
}

/** The number of characters of a code that a machine without a browser shows. */
export const userCodeLength = 8

/** What somebody types as it is shown: capitals in fours. */
export function userCode(typed: string): string {
  const plain = typed.toUpperCase().replace(/[^A-Z]/g, '').slice(0, userCodeLength)
  return plain.length > 4 ? `${plain.slice(0, 4)}-${plain.slice(4)}` : plain
}

/** A time that is left: 4:59, 0:07. */
export function left(ms: number): string {
  const s = Math.max(0, Math.ceil(ms / 1000))
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}`
}

/** Whether an approval's address is that of the machine on which the browser runs. */
export function loopbackCallback(url: string | undefined): string | undefined {
  return url && /^http:\/\/127\.0\.0\.1:\d{1,5}\/callback\?/.test(url) ? url : undefined
}

/** Whether a link is one that opens the desktop app. */
export function appLink(url: string | undefined): string | undefined {
  return url?.startsWith('everdict://') ? url : undefined
}
