import { useQuery } from '@tanstack/react-query'
import { Hand, Hourglass, Plus } from 'lucide-react'
import { lazy, Suspense, useEffect, useMemo, type ReactNode } from 'react'
import { Link } from 'wouter'
import { feed } from '../data/feed'
import { bytes, count, dash, plural, short, usd } from '../data/format'
import { summaryQuery } from '../data/queries'
import { RunList, type RunFilter } from '../data/runlist'
import { useStore } from '../data/store'
import type { Outcomes, PoolUse, Summary } from '../data/types'
import { Ago, cx, Empty, ErrorNote, Meter, Skeleton } from '../ui/parts'
import { FirstSteps } from './FirstSteps'
import { poolName, RunHead, RunRow } from './Runs'
import { useTitle } from './title'

const HoursChart = lazy(() => import('./HoursChart').then((m) => ({ default: m.HoursChart })))

/** A short list of runs that takes part in what comes. */
export function useRuns(filter: RunFilter, size: number): RunList {
  const key = JSON.stringify(filter)
  const list = useMemo(() => new RunList(JSON.parse(key) as RunFilter, size), [key, size])
  useEffect(() => {
    void list.refresh()
    return feed.watch(list)
  }, [list])
  return useStore(list)
}

export function Home() {
  useTitle('')
  const { data: summary, error, refetch } = useQuery(summaryQuery)
  const recent = useRuns({}, 12)
  const first = recent.loaded && (recent.total ?? recent.rows.length) <= 1
  return (
    <div className="page">
      <div className="page-head">
        <h1>Home</h1>
        {summary && !first && (
          <span className="sub">
            as of <Ago at={summary.at} />
          </span>
        )}
        <div className="actions">
          <Link className={cx('button', !first && 'primary')} href="/ui/new">
            <Plus size={15} aria-hidden /> New run
          </Link>
        </div>
      </div>
      <ErrorNote error={error} retry={() => void refetch()} />
      {first && <FirstSteps run={recent.rows[0]} summary={summary} />}
      {summary ? !first && <Overview summary={summary} recent={recent} /> : !error && <Skeleton rows={6} />}
    </div>
  )
}

function Overview({ summary: s, recent }: { summary: Summary; recent: RunList }) {
  const day = s.day
  const failures = Object.values(day.failures).reduce((n, x) => n + (x ?? 0), 0)
  return (
    <>
      <div className="stats">
        <Stat name="Running" href="/ui/runs?status=running" value={count(s.runs.running)} note={s.runners.slots ? `of ${plural(s.runners.slots, 'slot')} online` : 'no slot is online'} />
        <Stat name="Waiting" href="/ui/runs?status=queued" value={count(s.runs.queued)} note={s.waiting[0] ? <>oldest from <Ago at={oldest(s)} /></> : 'nothing waits'} />
        <Stat name="Needs you" href="/ui/runs?status=suspended" value={count(s.runs.suspended)} tone={s.runs.suspended ? 'hold' : undefined} note={s.runs.suspended ? 'approve or reject' : 'nothing to decide'} />
        <Stat
          name="Runners online"
          href="/ui/runners"
          value={
            <>
              {count(s.runners.online)}
              <span className="faint">/{count(s.runners.total)}</span>
            </>
          }
          tone={s.runners.degraded ? 'warn' : undefined}
          note={s.runners.degraded ? `${count(s.runners.degraded)} degraded` : s.runners.updateRequired ? `${plural(s.runners.updateRequired, 'needs', 'need')} an update` : `${count(s.runners.busy)} busy`}
        />
        <Stat name="Passed in 24 h" href="/ui/runs?verdict=true&since=24h" value={day.passed + day.failed ? `${Math.round((day.passed / (day.passed + day.failed)) * 100)} %` : dash} note={`${count(day.passed)} of ${count(day.passed + day.failed)} graded${failures ? `, ${count(failures)} failed` : ''}`} />
        <Stat name="Cost in 24 h" value={usd(day.usd)} note={day.usdRuns ? `${short(day.tokens)} tokens; known of ${count(day.usdRuns)} of ${count(day.runs)} runs` : day.tokensRuns ? `${short(day.tokens)} tokens; no run reported a cost` : 'no run reported a cost'} />
      </div>
      <div className="home-grid">
        <section className="card" aria-label="Outcomes">
          <div className="card-head">
            <h2 className="grow nowrap">Last 24 hours</h2>
            <Legend day={day} />
          </div>
          <div className="card-body">
            {day.runs === 0 && day.cancelled === 0 ? (
              <p className="dim">No run has ended in the last 24 hours.</p>
            ) : (
              <Suspense fallback={<div className="chart" />}>
                <HoursChart hours={s.hours} />
              </Suspense>
            )}
          </div>
        </section>
        <section className="card" aria-label="Pools">
          <div className="card-head">
            <h2 className="grow">Pools</h2>
            <Link href="/ui/runtimes">Runtimes</Link>
          </div>
          {s.pools.length === 0 ? (
            <div className="card-body dim">
              No runtime is registered. Runs go to paired machines; a <Link href="/ui/runtimes">runtime</Link> is a pool of machines or a cluster.
            </div>
          ) : (
            <ul className="pools">
              {s.pools.map((p) => (
                <PoolRow key={p.runtime} p={p} />
              ))}
            </ul>
          )}
        </section>
      </div>
      {s.waiting.length > 0 && (
        <section className="card" aria-label="Waiting">
          <div className="card-head">
            <h2 className="grow">Waiting, and for what</h2>
          </div>
          <ul className="waits">
            {s.waiting.map((w, i) => (
              <li key={i}>
                {w.why === 'parked' ? <Hand size={15} className="ink-hold" aria-hidden /> : <Hourglass size={15} className="ink-wait" aria-hidden />}
                <span className="num">{count(w.count)}</span>
                <span className="grow wrap">
                  {w.reason} {w.pool && <span className="tag">{poolName(w.pool)}</span>}
                </span>
                {w.since && <Ago at={w.since} className="faint" />}
                <Link href={w.count === 1 ? `/ui/runs/${w.runId}` : `/ui/runs?status=${w.why === 'parked' ? 'suspended' : 'queued'}`}>{w.count === 1 ? 'Open' : 'Show'}</Link>
              </li>
            ))}
          </ul>
        </section>
      )}
      <section className="card" aria-label="Recent runs">
        <div className="card-head">
          <h2 className="grow">Recent runs</h2>
          <Link href="/ui/runs">All runs</Link>
        </div>
        <RecentRows list={recent} />
      </section>
    </>
  )
}

/** Since when the one that waits longest does. */
const oldest = (s: Summary): string | undefined => s.waiting.flatMap((w) => w.since ?? []).sort()[0]

function RecentRows({ list }: { list: RunList }) {
  if (list.error) return <ErrorNote error={list.error} retry={() => void list.refresh()} />
  if (!list.loaded) return <Skeleton rows={5} />
  if (list.rows.length === 0) return <Empty title="No runs yet" />
  return (
    <div role="table" aria-label="Recent runs" className="recent">
      <RunHead />
      <div role="rowgroup">
        {list.rows.slice(0, 12).map((run) => (
          <RunRow key={run.id} run={run} />
        ))}
      </div>
    </div>
  )
}

function Stat({ name, value, note, href, tone }: { name: string; value: ReactNode; note: ReactNode; href?: string; tone?: 'hold' | 'warn' | undefined }) {
  const inner = (
    <>
      <span className="name">{name}</span>
      <span className={cx('value tnum', tone && `ink-${tone}`)}>{value}</span>
      <span className="note-line">{note}</span>
    </>
  )
  return href ? (
    <Link className="card stat" href={href}>
      {inner}
    </Link>
  ) : (
    <div className="card stat">{inner}</div>
  )
}

function Legend({ day }: { day: Outcomes }) {
  const failures = Object.values(day.failures).reduce((n, x) => n + (x ?? 0), 0)
  const parts: [string, string, number][] = [
    ['good', 'passed', day.passed],
    ['bad', 'not passed', day.failed],
    ['warn', 'failed', failures],
    ['', 'ungraded or cancelled', day.ungraded + day.cancelled],
  ]
  return (
    <ul className="legend">
      {parts.map(([tone, name, n]) => (
        <li key={name}>
          <span className={cx('dot', tone)} aria-hidden />
          <span className="tnum">{count(n)}</span> <span className="dim">{name}</span>
        </li>
      ))}
    </ul>
  )
}

export function PoolRow({ p }: { p: PoolUse }) {
  return (
    <li>
      <div className="row">
        <Link href={`/ui/runtimes/${encodeURIComponent(p.runtime)}`} className="grow clip pool-name">
          {p.runtime}
        </Link>
        <span className="tag">{p.kind}</span>
        <span className="tnum nowrap">
          {count(p.running)}
          <span className="faint">/{count(p.maxConcurrent)}</span>
        </span>
      </div>
      <Meter value={p.running} max={p.maxConcurrent} label={`${p.runtime}: running`} />
      <div className="row faint small-line tnum">
        <span className="grow">
          {plural(p.online, 'runner')} online{p.queued ? `, ${count(p.queued)} waiting` : ''}
        </span>
        {p.memoryBudgetMb ? (
          <span>
            {bytes((p.memoryMb ?? 0) * 1024 * 1024)} of {bytes(p.memoryBudgetMb * 1024 * 1024)}
          </span>
        ) : null}
      </div>
    </li>
  )
}
