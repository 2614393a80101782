import { QueryObserver } from '@tanstack/react-query'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { nextOf, query } from './client'
import { upsert } from './feed'
import { ago, bytes, count, duration, short, usd } from './format'
import { outcome } from './outcome'
import { client, revise } from './queries'
import { matches, merge, newer, RunList } from './runlist'
import { backoff } from './stream'
import type { Run } from './types'

const run = (id: string, more: Partial<Run> = {}): Run => ({ id, tenant: 'w', status: 'queued', caseId: 'c', harness: { id: 'h' }, kind: 'eval', class: 'interactive', createdAt: '', updatedAt: '1', ...more })
const ids = (rows: Run[]) => rows.map((r) => r.id)

afterEach(() => vi.unstubAllGlobals())

/** Answers requests of lists from a table of pages. */
function serve(pages: Record<string, { rows: Run[]; next?: string; total?: number }>) {
  vi.stubGlobal('fetch', (path: string) => {
    const p = pages[path]
    if (!p) throw new Error(`asked for ${path}`)
    const headers: Record<string, string> = {}
    if (p.next) headers['link'] = `<${p.next}>; rel="next"`
    if (p.total !== undefined) headers['x-everdict-total'] = String(p.total)
    return Promise.resolve(new Response(JSON.stringify(p.rows), { headers }))
  })
}

describe('a list of runs', () => {
  const first = '/runs?limit=200&count=true'
  it('joins pages and live records, newest first, each once', async () => {
    serve({ [first]: { rows: [run('run_5'), run('run_4')], next: '/runs?cursor=a', total: 4 }, '/runs?cursor=a': { rows: [run('run_4'), run('run_2')] } })
    const list = new RunList({})
    await list.refresh()
    list.apply([run('run_6'), run('run_4', { status: 'running', updatedAt: '2' }), run('run_1')])
    expect(ids(list.rows)).toEqual(['run_6', 'run_5', 'run_4'])
    expect(list.rows[2]!.status).toBe('running')
    expect(list.total).toBe(5)
    await list.more()
    expect(ids(list.rows)).toEqual(['run_6', 'run_5', 'run_4', 'run_2'])
    expect(list.complete).toBe(true)
    list.apply([run('run_1')])
    expect(ids(list.rows).at(-1)).toBe('run_1')
  })
  it('drops what has left the filter and takes what has come into it', async () => {
    serve({ '/runs?status=running&limit=200&count=true': { rows: [run('run_2', { status: 'running' })], total: 1 } })
    const list = new RunList({ status: 'running' })
    await list.refresh()
    list.apply([run('run_2', { status: 'failed', updatedAt: '3' }), run('run_3', { status: 'running' }), run('run_4')])
    expect(ids(list.rows)).toEqual(['run_3'])
    expect(list.total).toBe(1)
  })
  it('keeps the pages below when the first is read again', async () => {
    const pages: Record<string, { rows: Run[]; next?: string }> = { [first]: { rows: [run('run_5'), run('run_4')], next: '/runs?cursor=a' }, '/runs?cursor=a': { rows: [run('run_2'), run('run_1')] } }
    serve(pages)
    const list = new RunList({})
    await list.refresh()
    await list.more()
    pages[first] = { rows: [run('run_6'), run('run_5')], next: '/runs?cursor=b' }
    await list.refresh()
    expect(ids(list.rows)).toEqual(['run_6', 'run_5', 'run_4', 'run_2', 'run_1'])
  })
  it('keeps what comes while a page is on its way', async () => {
    const answers: ((rows: Run[]) => void)[] = []
    vi.stubGlobal('fetch', () => new Promise((resolve) => answers.push((rows) => resolve(new Response(JSON.stringify(rows), { headers: { 'x-everdict-total': '1' } })))))
    const answer = (rows: Run[]) => answers.pop()!(rows)
    const list = new RunList({})
    const loads = list.refresh()
    list.apply([run('run_2')]) // submitted after the page was read, told before it came
    answer([run('run_1')])
    await loads
    expect(ids(list.rows)).toEqual(['run_2', 'run_1'])
    expect(list.total).toBe(2)
    const again = list.refresh()
    list.apply([run('run_1', { status: 'running', updatedAt: '2' })])
    answer([run('run_2'), run('run_1')])
    await again
    expect(list.rows[1]!.status).toBe('running')
    const first = list.refresh()
    list.apply([run('run_3')])
    const second = list.refresh() // the answer to the one before does not count any more
    answer([run('run_1')])
    await second
    answer([])
    await first
    expect(ids(list.rows)).toEqual(['run_3', 'run_1'])
  })
  it('never goes back in a run’s life', () => {
    const over = run('run_1', { status: 'succeeded', updatedAt: '1' })
    expect(newer(over, run('run_1', { status: 'running', updatedAt: '9' }))).toBe(over)
    expect(newer(run('run_1', { updatedAt: '2' }), run('run_1', { updatedAt: '1', status: 'running' })).status).toBe('queued')
  })
  it('knows what a filter says, or that it does not know', () => {
    const r = run('run_1', { status: 'failed', resolvedHarness: { id: 'h', version: '2' } })
    expect(matches(r, { harness: 'h@2', status: 'failed' })).toBe(true)
    expect(matches(r, { harness: 'h@1' })).toBe(false)
    expect(matches(r, { verdict: 'true' })).toBe(false)
    expect(matches(r, { since: '24h' })).toBeUndefined()
  })
  it('merges lists that overlap', () => {
    expect(ids(merge([run('run_3'), run('run_1')], [run('run_2'), run('run_1')]))).toEqual(['run_3', 'run_2', 'run_1'])
    expect(merge([], [run('run_1')])).toHaveLength(1)
  })
})

describe('the rest of the data layer', () => {
  it('asks again when something was told while the answer was on its way', async () => {
    let asked = 0
    const answers: ((n: number) => void)[] = []
    const queryFn = () => new Promise<number>((resolve) => void (asked++, answers.push(resolve)))
    const gone = new QueryObserver(client, { queryKey: ['told'], queryFn }).subscribe(() => {})
    answers.pop()!(1)
    await vi.waitFor(() => expect(client.getQueryData(['told'])).toBe(1))
    revise<number>(['told'], (n) => n + 1)
    expect([client.getQueryData(['told']), asked]).toEqual([2, 1])
    void client.invalidateQueries({ queryKey: ['told'] })
    revise<number>(['told'], (n) => n + 1)
    await vi.waitFor(() => expect(asked).toBe(3))
    answers.shift()!(2) // as it was before it was told
    answers.shift()!(4)
    await vi.waitFor(() => expect(client.getQueryData(['told'])).toBe(4))
    gone()
    client.clear()
  })
  it('updates rows in place and puts new ones first', () => {
    expect(upsert([{ id: 'a', n: 1 }, { id: 'b', n: 1 }], [{ id: 'c', n: 2 }, { id: 'b', n: 2 }], ['a'])).toEqual([{ id: 'c', n: 2 }, { id: 'b', n: 2 }])
  })
  it('reads Link headers and writes queries', () => {
    expect(nextOf('</runs?cursor=x&limit=2>; rel="next"')).toBe('/runs?cursor=x&limit=2')
    expect(nextOf(null)).toBeUndefined()
    expect(query('/x', { a: 1, b: undefined, c: '', d: false, e: 'ä&' })).toBe('/x?a=1&e=%C3%A4%26')
  })
  it('waits longer, never for ever, never in step', () => {
    expect(backoff(0, 0)).toBe(250)
    expect(backoff(20, 1)).toBe(10_250)
    expect(backoff(3, 0.5)).toBeLessThan(backoff(4, 0.5))
  })
  it('writes values; unknown is never 0', () => {
    expect([duration(undefined), duration(0), duration(950), duration(1234), duration(59_900), duration(61_000), duration(3_600_000), duration(90_000_000)]).toEqual(['–', '0 ms', '950 ms', '1.2 s', '59 s', '1m 1s', '1h', '1d 1h'])
    expect([usd(null), usd(0), usd(0.0042), usd(1.239)]).toEqual(['–', '$0', '$0.0042', '$1.24'])
    expect([short(null), short(999), short(12_345), short(4_100_000)]).toEqual(['–', '999', '12.3k', '4.1M'])
    expect([count(undefined), count(1234567), bytes(undefined), bytes(1536)]).toEqual(['–', '1,234,567', '–', '1.5 KiB'])
    expect([ago(0, 2000), ago(0, 65_000), ago(65_000, 0)]).toEqual(['now', '1m ago', 'in 1m'])
  })
  it('says what a run has come to', () => {
    expect(outcome(run('r', { status: 'succeeded' })).label).toBe('Ungraded')
    expect(outcome(run('r', { status: 'succeeded', verdict: false })).label).toBe('Not passed')
    expect(outcome(run('r', { status: 'failed', error: { code: 'CANCELLED', message: '' } })).label).toBe('Cancelled')
    expect(outcome(run('r', { status: 'failed' })).tone).toBe('warn')
  })
})
