/** The words of the desktop page, and what it makes of what was typed. */
import { ApiError } from '../data/client'
import type { Tone } from '../data/outcome'
import type { Connection, ConnectionSettings, Entry, Hours, Job, Outcome, Pairing, Phase, Status } from './documents'

export function statusWords(s: Status): [Tone, string] {
  switch (s) {
    case 'connected':
      return ['good', 'Connected']
    case 'idle':
      return ['good', 'Ready']
    case 'running':
      return ['active', 'Running']
    case 'paused':
      return ['hold', 'Paused']
    case 'connecting':
      return ['wait', 'Connecting']
    case 'attention':
      return ['warn', 'Needs you']
    default:
      return ['mute', 'Not connected']
  }
}

export function phaseWords(p: Phase): string {
  return { prepare: 'preparing', install: 'getting the agent ready', run: 'the agent works', collect: 'recording what it did', grade: 'grading' }[p] ?? p
}

export function outcomeWords(o: Outcome): [Tone, string] {
  switch (o) {
    case 'passed':
      return ['good', 'Passed']
    case 'failed':
      return ['bad', 'Not passed']
    case 'unjudged':
      return ['mute', 'Ungraded']
    case 'error':
      return ['warn', 'Failed']
    case 'cancelled':
      return ['mute', 'Cancelled']
    case 'returned':
      return ['hold', 'Given back']
    case 'lost':
      return ['warn', 'Lost']
    default:
      return ['mute', o]
  }
}

/** Whether a pairing goes on: it has neither made a connection nor failed. */
export function goesOn(p: Pairing | null): p is Pairing {
  return p !== null && p.status !== 'done' && p.status !== 'failed'
}

/** The jobs that run, for the question before they are stopped. */
export function jobNames(jobs: Pick<Job, 'case'>[]): string {
  const names = jobs.map((j) => j.case)
  return names.length <= 2 ? names.join(' and ') : `${names[0]}, ${names[1]} and ${names.length - 2} more`
}

/** An address as somebody types it: without a scheme it is https, or http on this machine. */
export function address(typed: string): string {
  const text = typed.trim().replace(/\/+$/, '')
  if (text === '' || /^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return text
  const host = text.split('/')[0]!
  const name = host.startsWith('[') ? host.slice(0, host.indexOf(']') + 1) : host.split(':')[0]!
  return /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(name) ? `http://${text}` : `https://${text}`
}

/** What is wrong with an address, before anybody is asked; undefined: nothing that shows. */
export function addressFault(typed: string): string | undefined {
  const text = address(typed)
  let url: URL
  try {
    url = new URL(text)
  } catch {
    return 'This is no address such as https://everdict.example.'
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return 'A coordinator is reached by https.'
  if (url.username || url.password || url.search || url.hash) return 'The address has more than host, port and path. Take it from the coordinator’s page without what follows.'
  if (url.protocol === 'http:' && !/^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(url.hostname)) return 'Over a network a coordinator is reached by https alone; http is for one on this computer.'
  return undefined
}

/** The connection that a refusal to connect says is in the way: the app compares addresses better than a page can. */
export function inTheWay(error: unknown, connections: Connection[]): Connection | undefined {
  if (!(error instanceof ApiError) || error.status !== 409) return undefined
  return connections.find((c) => c.id === error.data?.['connection'])
}

/** Two digits, of what was typed. */
export function twoDigits(typed: string): string {
  return typed.replace(/\D/g, '').slice(0, 2)
}

/** Whether the settings of a connection let other people's runs act as this computer's user. */
export function wide(s: ConnectionSettings): boolean {
  return !s.onlyMine && s.sandbox === 'process'
}

export const days = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const
const dayNames: Record<string, string> = { mon: 'Mon', tue: 'Tue', wed: 'Wed', thu: 'Thu', fri: 'Fri', sat: 'Sat', sun: 'Sun' }

export function dayName(d: string): string {
  return dayNames[d] ?? d
}

/** Mon–Fri 18:00–08:00 (next day). */
export function hoursWords(h: Hours): string {
  const at = days.map((d, i) => (h.days.includes(d) ? i : -1)).filter((i) => i >= 0)
  const row = at.length > 2 && at.at(-1)! - at[0]! === at.length - 1
  const names = at.length === 7 ? 'Every day' : row ? `${dayName(days[at[0]!]!)}–${dayName(days[at.at(-1)!]!)}` : at.map((i) => dayName(days[i]!)).join(', ')
  return `${names} ${h.from}–${h.to}${h.to <= h.from ? ' (next day)' : ''}`
}

/** What is wrong with allowed hours; undefined: nothing. */
export function hoursFault(h: Hours): string | undefined {
  if (h.days.length === 0) return 'Choose a day.'
  if (!/^([01]\d|2[0-3]):[0-5]\d$/.test(h.from)) return 'Say from when, such as 18:00.'
  if (!/^(([01]\d|2[0-3]):[0-5]\d|24:00)$/.test(h.to)) return 'Say until when, such as 08:00 or 24:00.'
  if (h.from === h.to) return 'From and to are the same time.'
  return undefined
}

export function entryKey(e: Pick<Entry, 'run' | 'epoch'>): string {
  return `${e.run}/${e.epoch}`
}

export function systemName(os: string): string {
  return { linux: 'Linux', darwin: 'macOS', windows: 'Windows' }[os] ?? os
}
