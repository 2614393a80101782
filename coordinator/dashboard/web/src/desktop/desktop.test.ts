import { createElement } from 'react'
import { renderToStaticMarkup } from 'react-dom/server'
import { describe, expect, it } from 'vitest'
import { ApiError } from '../data/client'
import type { Connection, Job, Pairing, Question, State } from './documents'
import { keptLines, lineChars, Tail } from './logtail'
import { Clicked, Refused } from './Pairing'
import { address, addressFault, hoursFault, hoursWords, inTheWay, jobNames, twoDigits, wide } from './words'

describe('the end of a log', () => {
  const text = (t: Tail) => t.lines.map((l) => l.text)
  it('joins pieces that end anywhere', () => {
    const t = new Tail()
    for (const piece of ['on', 'e\ntw', 'o\n', '', '\n', 'three']) t.add({ text: piece })
    expect(text(t)).toEqual(['one', 'two', '', 'three'])
    t.add({ text: '\nfour\n' })
    expect(text(t)).toEqual(['one', 'two', '', 'three', 'four'])
    expect(t.skipped).toBe(false)
  })
  it('keeps a line its name while it grows', () => {
    const t = new Tail()
    t.add({ text: 'a' })
    const id = t.lines[0]!.id
    t.add({ text: 'b' })
    expect(t.lines).toEqual([{ id, text: 'ab' }])
  })
  it('holds a bounded part of it, and says that there was more', () => {
    const t = new Tail()
    t.add({ text: Array.from({ length: keptLines + 5 }, (_, i) => `${i}\n`).join('') })
    expect(t.lines.length).toBe(keptLines)
    expect(t.lines[0]!.text).toBe('5')
    expect(t.skipped).toBe(true)
    const long = new Tail()
    for (let i = 0; i < 10; i++) long.add({ text: 'x'.repeat(1000) })
    expect(long.lines[0]!.text.length).toBe(lineChars)
    const late = new Tail()
    late.add({ text: 'x', skipped: true })
    expect(late.skipped).toBe(true)
  })
})

describe('an address that was typed', () => {
  it('gets the scheme that it can only mean', () => {
    expect([address(' everdict.example/ '), address('localhost:8787'), address('127.0.0.1:8787'), address('[::1]:80'), address('https://a.example/x/'), address('http://a.example'), address('')]).toEqual([
      'https://everdict.example', 'http://localhost:8787', 'http://127.0.0.1:8787', 'http://[::1]:80', 'https://a.example/x', 'http://a.example', '',
    ])
  })
  it('is refused before anybody is asked when no coordinator can be there', () => {
    for (const good of ['everdict.example', 'https://everdict.example:8443/fleet', 'localhost:8787', 'http://127.0.0.1:1', 'http://[::1]:1']) expect(addressFault(good), good).toBeUndefined()
    for (const bad of ['http://everdict.example', 'ftp://everdict.example', 'javascript:alert(1)', 'everdict.example?token=x', 'https://me:pw@everdict.example', 'https://a.example/#/x', 'a b', 'http://127.0.0.1.evil.example']) {
      expect(addressFault(bad), bad).toBeTypeOf('string')
    }
  })
})

describe('words', () => {
  it('takes two digits', () => {
    expect([twoDigits('4 7'), twoDigits('471'), twoDigits('x4'), twoDigits('')]).toEqual(['47', '47', '4', ''])
  })
  it('knows when others could act as the user', () => {
    expect(wide({ slots: 1, sandbox: 'process', onlyMine: false })).toBe(true)
    expect(wide({ slots: 1, sandbox: 'process', onlyMine: true })).toBe(false)
    expect(wide({ slots: 1, sandbox: 'docker', onlyMine: false })).toBe(false)
  })
  it('writes hours, and says what is wrong with them', () => {
    expect(hoursWords({ days: ['fri', 'mon', 'tue', 'wed', 'thu'], from: '18:00', to: '08:00' })).toBe('Mon–Fri 18:00–08:00 (next day)')
    expect(hoursWords({ days: ['mon', 'wed'], from: '00:00', to: '24:00' })).toBe('Mon, Wed 00:00–24:00')
    expect(hoursWords({ days: ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'], from: '09:00', to: '17:00' })).toBe('Every day 09:00–17:00')
    expect(hoursFault({ days: ['mon'], from: '18:00', to: '24:00' })).toBeUndefined()
    for (const bad of [{ days: [], from: '18:00', to: '19:00' }, { days: ['mon'], from: '24:00', to: '19:00' }, { days: ['mon'], from: '9:00', to: '19:00' }, { days: ['mon'], from: '09:00', to: '24:01' }, { days: ['mon'], from: '09:00', to: '09:00' }]) {
      expect(hoursFault(bad), JSON.stringify(bad)).toBeTypeOf('string')
    }
  })
  it('names the jobs that are stopped', () => {
    const jobs = (...names: string[]) => names.map((n) => ({ case: n }) as Job)
    expect([jobNames(jobs('a')), jobNames(jobs('a', 'b')), jobNames(jobs('a', 'b', 'c'))]).toEqual(['a', 'a and b', 'a, b and 1 more'])
  })
})

describe('a connection that is in the way', () => {
  const connections = [{ id: 'con_1', host: 'a.example' }, { id: 'con_2', host: 'b.example' }] as Connection[]
  const conflict = new ApiError(409, 'CONFLICT', 'this computer is connected to b.example already', 'replace that connection, or keep it', { connection: 'con_2' })
  it('is the one that the refusal names', () => {
    expect(inTheWay(conflict, connections)?.host).toBe('b.example')
    for (const other of [undefined, new Error('x'), new ApiError(409, 'CONFLICT', 'x'), new ApiError(409, 'CONFLICT', 'x', '', { connection: 'con_3' }), new ApiError(400, 'BAD_REQUEST', 'x', '', { connection: 'con_2' })]) {
      expect(inTheWay(other, connections), String(other)).toBeUndefined()
    }
  })
  it('is offered to be replaced, in the place of the refusal', () => {
    const shown = (error: unknown, known: Connection | undefined) => renderToStaticMarkup(createElement(Refused, { error, known }))
    expect(shown(conflict, inTheWay(conflict, connections))).toMatch(/b\.example.*replaces that one/)
    expect(shown(conflict, inTheWay(conflict, connections))).not.toContain('role="alert"')
    expect(shown(new Error('it failed'), connections[0])).toMatch(/a\.example.*it failed/)
    expect(shown(new Error('it failed'), undefined)).not.toContain('replaces')
  })
})

describe('a link that is clicked while this computer is being connected', () => {
  const question: Question = { id: 'ask_1', coordinator: 'https://b.example', host: 'b.example', account: { subject: 'ada', workspace: 'blue' }, expiresAt: '2030-01-01T00:00:00Z' }
  const shown = (pairing: Partial<Pairing> | null) => {
    const p = pairing && { coordinator: 'https://a.example', host: 'a.example', status: 'waiting', byLink: false, text: 'It waits.', ...pairing }
    return renderToStaticMarkup(createElement(Clicked, { q: question, state: { connections: [], pairing: p } as unknown as State }))
  }
  const button = (html: string, name: string) => html.match(new RegExp(`<button[^>]*>${name}</button>`))?.[0]
  it('asks beside the pairing, which keeps its number and its Cancel', () => {
    const html = shown({ number: '47' })
    for (const words of ['Approve it in the browser', '47', 'Connect this computer to b.example as ada?', 'A yes here ends that']) expect(html).toContain(words)
    expect(button(html, 'Cancel')).toBeDefined()
    expect(button(html, 'No')).toBeDefined()
  })
  it('waits for one that may have made a runner', () => {
    const html = shown({ status: 'redeeming' })
    expect(html).toContain('Wait until that is done')
    expect(html).not.toContain('A yes here ends that')
  })
  it('asks alone when there is none', () => {
    for (const none of [null, { status: 'done' }, { status: 'failed' }] as const) {
      const html = shown(none)
      expect(html).toContain('Connect this computer to b.example as ada?')
      expect(html).not.toContain('a.example')
    }
  })
})
