import { useVirtualizer } from '@tanstack/react-virtual'
import { ListFilter, Play, Plus, X } from 'lucide-react'
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type ComponentProps } from 'react'
import { Link, useLocation, useSearchParams } from 'wouter'
import { useQuery } from '@tanstack/react-query'
import { useMover } from '../app/keys'
import { count, duration, plural, short, shortId, usd } from '../data/format'
import { builtins } from '../data/builtin'
import { feed } from '../data/feed'
import { failureWords, over } from '../data/outcome'
import { harnessesQuery, runtimesQuery } from '../data/queries'
import { filterNames, RunList, type RunFilter } from '../data/runlist'
import { useStore } from '../data/store'
import type { Run } from '../data/types'
import { Ago, Button, cx, Empty, ErrorNote, RunBadge, SearchBox, Skeleton, useNow } from '../ui/parts'
import { useTitle } from './title'

const rowHeight = 48
const estimateSize = () => rowHeight

/** The states that a reader thinks in, and the filters that they are. */
const states: [name: string, label: string, filter: RunFilter][] = [
  ['', 'All', {}],
  ['running', 'Running', { status: 'running' }],
  ['queued', 'Queued', { status: 'queued' }],
  ['suspended', 'Needs you', { status: 'suspended' }],
  ['passed', 'Passed', { verdict: 'true' }],
  ['notpassed', 'Not passed', { verdict: 'false' }],
  ['failed', 'Failed', { status: 'failed' }],
]

export function Runs() {
  useTitle('Runs')
  const [params, setParams] = useSearchParams()
  const filter = useMemo(() => {
    const f: RunFilter = {}
    for (const name of filterNames) {
      const v = params.get(name)
      if (v) f[name] = v
    }
    return f
  }, [params])
  const set = useCallback(
    (change: RunFilter) =>
      setParams(
        (old) => {
          const next = new URLSearchParams(old)
          for (const [k, v] of Object.entries(change)) {
            if (v) next.set(k, v)
            else next.delete(k)
          }
          return next
        },
        { replace: true },
      ),
    [setParams],
  )
  const key = JSON.stringify(filter)
  const list = useMemo(() => new RunList(JSON.parse(key) as RunFilter), [key])
  useEffect(() => {
    void list.refresh()
    return feed.watch(list)
  }, [list])
  useStore(list)
  const active = Object.keys(filter).length > 0
  return (
    <div className="page full runs-page">
      <div className="page-head">
        <h1>Runs</h1>
        <span className="sub tnum" role="status">
          {list.total !== undefined ? plural(list.total, 'run') : ''}
        </span>
        <div className="actions">
          <Link className="button primary" href="/ui/new">
            <Plus size={15} aria-hidden /> New run
          </Link>
        </div>
      </div>
      <Filters filter={filter} set={set} active={active} />
      <ErrorNote error={list.error} retry={() => void list.refresh()} />
      <div className="card runs-card">
        {!list.loaded && !list.error ? (
          <Skeleton rows={10} />
        ) : list.rows.length === 0 && list.loaded ? (
          active ? (
            <Empty icon={ListFilter} title="No run matches" actions={<Button onClick={() => setParams({})}>Clear the filters</Button>}>
              No run of this workspace has all of these properties.
            </Empty>
          ) : (
            <Empty icon={Play} title="No runs yet" actions={<Link className="button primary" href="/">Take the first steps</Link>}>
              A run is one evaluation: an agent works on a case, graders judge it, and everything that happened is kept here.
            </Empty>
          )
        ) : (
          <Rows list={list} />
        )}
      </div>
    </div>
  )
}

function Filters({ filter, set, active }: { filter: RunFilter; set: (f: RunFilter) => void; active: boolean }) {
  const { data: harnesses } = useQuery(harnessesQuery)
  const { data: runtimes } = useQuery(runtimesQuery)
  const [more, setMore] = useState(Boolean(filter.runtime || filter.cause || filter.class || filter.failureClass || filter.since || filter.runner))
  const [id, setId] = useState(filter.id ?? '')
  useEffect(() => setId(filter.id ?? ''), [filter.id])
  useEffect(() => {
    if (id === (filter.id ?? '')) return
    const t = setTimeout(() => set({ id: id.trim() }), 250)
    return () => clearTimeout(t)
  }, [id, filter.id, set])
  const state = states.find(([, , f]) => (f.status ?? '') === (filter.status ?? '') && (f.verdict ?? '') === (filter.verdict ?? ''))?.[0]
  const select = (name: keyof RunFilter, label: string, options: [string, string][]) => (
    <select className="select" aria-label={label} value={filter[name] ?? ''} onChange={(e) => set({ [name]: e.target.value })}>
      <option value="">{label}: any</option>
      {filter[name] && !options.some(([v]) => v === filter[name]) && <option value={filter[name]}>{filter[name]}</option>}
      {options.map(([v, t]) => (
        <option key={v} value={v}>
          {t}
        </option>
      ))}
    </select>
  )
  return (
    <div className="stack">
      <div className="row wraps">
        <div className="row wraps" role="group" aria-label="State">
          {states.map(([name, label, f]) => (
            <button key={name} type="button" className="chip" aria-pressed={state === name} onClick={() => set({ status: '', verdict: '', ...f })}>
              {label}
            </button>
          ))}
        </div>
        <div className="filter-search">
          <SearchBox value={id} onChange={setId} label="Run id" placeholder="Run id, or its beginning" />
        </div>
        <div className="filter-select">{select('harness', 'Harness', [...(harnesses ?? []), ...builtins(harnesses ?? [])].map((h) => [h.id, h.id]))}</div>
        <Button look="small bare" aria-expanded={more} onClick={() => setMore(!more)}>
          <ListFilter size={14} aria-hidden /> More filters
        </Button>
        {active && (
          <Button look="small bare" onClick={() => set(Object.fromEntries(filterNames.map((n) => [n, ''])))}>
            <X size={14} aria-hidden /> Clear
          </Button>
        )}
      </div>
      {more && (
        <div className="filter-more">
          {select('runtime', 'Runtime', [['self', 'own runners'], ['self:ws', "the workspace's runners"], ...(runtimes ?? []).map((r): [string, string] => [r.id, r.id])])}
          {select('cause', 'Origin', ['member', 'schedule', 'event', 'run', 'ci', 'api'].map((c) => [c, c]))}
          {select('class', 'Class', [['interactive', 'interactive'], ['batch', 'batch']])}
          {select('failureClass', 'Failure', ['infra', 'config', 'harness', 'agent'].map((c) => [c, c]))}
          {select('since', 'Submitted', [['1h', 'in the last hour'], ['24h', 'in the last day'], ['168h', 'in the last week'], ['720h', 'in the last 30 days']])}
        </div>
      )}
    </div>
  )
}

function Rows({ list }: { list: RunList }) {
  const scroller = useRef<HTMLDivElement>(null)
  const active = useRef(-1)
  const rows = list.rows
  // Functions that stay the same: with new ones all rows would be added up at each step of a scroll.
  const getItemKey = useCallback((i: number) => rows[i]!.id, [rows])
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize, overscan: 12, getItemKey })
  const items = virtual.getVirtualItems()
  const last = items.at(-1)?.index ?? 0
  useEffect(() => {
    if (last >= rows.length - 40) void list.more()
  }, [last, rows.length, list])
  const focusRow = (i: number) => scroller.current?.querySelector<HTMLElement>(`[data-index="${i}"]`)?.focus()
  useMover((by) => {
    const to = Math.min(rows.length - 1, Math.max(0, active.current + by))
    active.current = to
    virtual.scrollToIndex(to)
    requestAnimationFrame(() => focusRow(to))
  })
  // New rows on top move what is being read: keep it where it is.
  const first = useRef<string | undefined>(undefined)
  useLayoutEffect(() => {
    const el = scroller.current
    if (el && first.current && el.scrollTop > rowHeight) {
      const added = rows.findIndex((r) => r.id === first.current)
      if (added > 0) el.scrollTop += added * rowHeight
    }
    first.current = rows[0]?.id
  }, [rows])
  return (
    <div className="runs-table" role="table" aria-label="Runs" aria-rowcount={list.total ?? rows.length}>
      <RunHead />
      <div ref={scroller} className="runs-scroll" role="rowgroup" tabIndex={-1}>
        <div className="runs-space" style={{ height: virtual.getTotalSize() }}>
          {items.map((v) => {
            const run = rows[v.index]!
            return (
              <RunRow
                key={v.key}
                run={run}
                aria-rowindex={v.index + 2}
                data-index={v.index}
                style={{ transform: `translateY(${v.start}px)` }}
                onFocus={() => {
                  active.current = v.index
                }}
              />
            )
          })}
        </div>
      </div>
      {(list.loading || !list.complete) && (
        <div className="card-note" role="status">
          {list.loading ? 'Loading…' : `${count(rows.length)} loaded; scroll for more`}
        </div>
      )}
    </div>
  )
}

/** The names of the columns, here and on the home page. */
export function RunHead() {
  return (
    <div role="rowgroup">
      <div className="runs-row head" role="row">
        {['Outcome', 'Case', 'Harness', 'Where', 'Cost', 'Tokens', 'Took', 'Submitted'].map((h) => (
          <div key={h} role="columnheader" className={cx(['Cost', 'Tokens', 'Took'].includes(h) && 'num', `c-${h.toLowerCase()}`)}>
            {h}
          </div>
        ))}
      </div>
    </div>
  )
}

/** One run of a list, here and on the home page: the row leads to it, and so does its name. */
export function RunRow({ run, ...rest }: { run: Run } & ComponentProps<'div'> & { 'data-index'?: number }) {
  const [, navigate] = useLocation()
  return (
    <div
      {...rest}
      role="row"
      data-row=""
      data-run={run.id}
      tabIndex={0}
      className="runs-row link"
      onClick={(e) => {
        if (!(e.target as HTMLElement).closest('a')) navigate(`/ui/runs/${run.id}`)
      }}
      onKeyDown={(e) => {
        if (e.key === 'Enter' && e.target === e.currentTarget) navigate(`/ui/runs/${run.id}`)
      }}
    >
      <RunCells run={run} />
    </div>
  )
}

function RunCells({ run }: { run: Run }) {
  const h = run.resolvedHarness ?? run.harness
  return (
    <>
      <div role="cell" className="c-outcome">
        <RunBadge run={run} />
      </div>
      <div role="cell" className="c-case">
        <Link href={`/ui/runs/${run.id}`} className="run-link clip" tabIndex={-1}>
          {run.caseId}
        </Link>
        <span className="sub clip">{reason(run) || <code title={run.id}>{shortId(run.id)}</code>}</span>
      </div>
      <div role="cell" className="c-harness">
        <span className="clip" title={`${h.id}@${h.version ?? 'latest'}`}>
          {h.id} <span className="faint">{h.version && h.version !== 'latest' ? h.version : ''}</span>
        </span>
      </div>
      <div role="cell" className="c-where">
        <span className="clip" title={where(run)}>
          {where(run)}
        </span>
      </div>
      <div role="cell" className="num c-cost">
        {usd(run.usage?.usd)}
      </div>
      <div role="cell" className="num c-tokens">
        {short(run.usage?.totalTokens)}
      </div>
      <div role="cell" className="num c-took">
        <Took run={run} />
      </div>
      <div role="cell" className="c-submitted">
        <Ago at={run.createdAt} />
      </div>
    </>
  )
}

/** Why it is as it is, in a few words. */
function reason(run: Run): string {
  if (run.status === 'suspended') return run.suspended?.question ?? 'waits for approval before it starts'
  if (run.status === 'queued') return run.placement?.blockedReason ?? ''
  if (run.failure && run.error?.code !== 'CANCELLED') return `${run.failure.class}: ${failureWords(run.failure)}`
  return ''
}

/** A pool without its workspace, which is the same everywhere here. */
export function poolName(pool: string | undefined): string {
  return pool?.replace(/^[^/]*\//, '') ?? ''
}

export function where(run: Run): string {
  const p = run.provenance
  if (p) return p.runnerLabel || p.hostname || p.runner || p.ranOn
  return poolName(run.placement?.pool) || run.placement?.target || run.runtime || 'auto'
}

/** How long it has been running, or ran. */
export function Took({ run }: { run: Run }) {
  if (!run.startedAt) return <span className="faint">–</span>
  if (run.finishedAt) return <>{duration(Date.parse(run.finishedAt) - Date.parse(run.startedAt))}</>
  return over(run.status) ? <span className="faint">–</span> : <Elapsed since={run.startedAt} />
}

export function Elapsed({ since }: { since: string }) {
  const now = useNow()
  return <>{duration(Math.max(0, Math.floor((now - Date.parse(since)) / 1000) * 1000))}</>
}
