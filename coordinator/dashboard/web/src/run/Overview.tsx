/** Everything about a run that is not its evidence: how it got here, its attempts, what it used, what was asked. */
import { useQuery } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { seg } from '../data/client'
import { bytes, count, duration, instant, megabytes, plural, usd } from '../data/format'
import { attemptsQuery, placementQuery, runEventsQuery } from '../data/queries'
import type { Attempt, Run, RunEvent } from '../data/types'
import { over } from '../data/outcome'
import { Ago, Badge, Button, cx, ErrorNote, Fact, Facts, Skeleton, Snippet } from '../ui/parts'
import { poolName } from '../pages/Runs'
import { FileLink } from './FileLink'
import { visible } from './patch'

export function Overview({ run, events }: { run: Run; events: RunEvent[] }) {
  return (
    <div className="overview">
      <div className="stack wide">
        <Life run={run} live={events} />
        <Attempts run={run} />
      </div>
      <div className="stack wide">
        <Spent run={run} />
        <Where run={run} />
        <Asked run={run} />
      </div>
    </div>
  )
}

function Part({ title, note, children }: { title: string; note?: ReactNode; children: ReactNode }) {
  return (
    <section className="part" aria-label={title}>
      <h2>
        {title} {note && <span className="faint">{note}</span>}
      </h2>
      {children}
    </section>
  )
}

const kindTone: Record<string, string> = { submitted: 'mute', leased: 'active', started: 'active', requeued: 'warn', suspended: 'hold', resumed: 'active', cancelling: 'warn', runner_revoked: 'warn', settled: 'good', late_result: 'warn' }

function Life({ run, live }: { run: Run; live: RunEvent[] }) {
  const { data, error, refetch } = useQuery(runEventsQuery(run.id))
  const { data: placement } = useQuery(placementQuery(run.id))
  const seen = new Set(live.map((e) => e.seq))
  const events = [...(data ?? []).filter((e) => !seen.has(e.seq)), ...live].sort((a, b) => a.seq - b.seq)
  const base = events[0] ? Date.parse(events[0].at) : 0
  const notes = (placement?.placement.events ?? []).filter((e) => !events.some((x) => x.message === e.message || x.kind === e.message))
  return (
    <Part title="How it got here" note={run.placement?.pool && <>in {poolName(run.placement.pool)}</>}>
      {run.placement?.why && <p className="dim wrap">{visible(run.placement.why)}</p>}
      <ErrorNote error={error} retry={() => void refetch()} />
      {!data && !error && live.length === 0 && <Skeleton rows={3} />}
      <ol className="life">
        {events.map((e) => (
          <li key={e.seq}>
            <span className={cx('dot', kindTone[e.kind] === 'good' ? (run.status === 'succeeded' ? 'good' : 'warn') : kindTone[e.kind])} aria-hidden />
            <span className="at tnum faint" title={instant(new Date(e.at))}>
              +{duration(Date.parse(e.at) - base)}
            </span>
            <span className="wrap">
              <strong>{e.kind.replaceAll('_', ' ')}</strong>
              {e.attempt ? <span className="faint"> attempt {e.attempt}</span> : null}
              {e.message && <span className="dim"> {visible(e.message)}</span>}
            </span>
          </li>
        ))}
        {notes.map((e, i) => (
          <li key={`n${i}`}>
            <span className="dot" aria-hidden />
            <span className="at tnum faint">{e.at && <Ago at={e.at} />}</span>
            <span className="wrap dim">
              {e.type && <strong>{e.type} </strong>}
              {visible(e.message)}
            </span>
          </li>
        ))}
      </ol>
    </Part>
  )
}

const outcomes: Record<string, [tone: 'good' | 'warn' | 'active' | 'mute', word: string]> = {
  active: ['active', 'holds the run'],
  settled: ['good', 'gave the result'],
  expired: ['warn', 'superseded: its runner was lost'],
  released: ['warn', 'superseded: given back'],
  cancelled: ['mute', 'cancelled'],
}

function Attempts({ run }: { run: Run }) {
  const { data, error, refetch } = useQuery({ ...attemptsQuery(run.id), ...(over(run.status) ? {} : { refetchInterval: 10_000 }) })
  return (
    <Part title="Attempts" note={data && data.length > 1 ? 'newest first' : undefined}>
      <ErrorNote error={error} retry={() => void refetch()} />
      {!data && !error && <Skeleton rows={2} />}
      {data?.length === 0 && <p className="faint">No runner has taken it yet.</p>}
      <ul className="stack">
        {[...(data ?? [])].sort((a, b) => b.attempt - a.attempt).map((a) => (
          <AttemptRow key={a.attempt} a={a} run={run} only={data!.length === 1} />
        ))}
      </ul>
    </Part>
  )
}

/** What an attempt that is not the run's any more left, as files. */
function Left({ run, attempt, diff }: { run: Run; attempt: number; diff: boolean }) {
  const files = [
    ['Log', 'logs?raw=1&', 'log'],
    ['Trace', 'trace?format=jsonl&', 'trace.jsonl'],
    ...(diff ? [['Diff', 'diff?', 'diff']] : []),
  ] as const
  return (
    <p className="row">
      <span className="faint">It left</span>
      {files.map(([name, path, suffix]) => (
        <FileLink
          key={name}
          name={name}
          label={`${name} of attempt ${attempt}`}
          href={`/runs/${seg(run.id)}/${path}attempt=${attempt}`}
          file={`${run.id}.${attempt}.${suffix}`}
        />
      ))}
    </p>
  )
}

function AttemptRow({ a, run, only }: { a: Attempt; run: Run; only: boolean }) {
  const [open, setOpen] = useState(false)
  const [tone, word] = outcomes[a.outcome] ?? ['mute', a.outcome]
  const f = a.result?.failure
  return (
    <li className="attempt">
      <div className="row wraps">
        <strong className="tnum">{a.attempt}</strong>
        <Badge tone={tone}>{word}</Badge>
        <span className="dim clip">{a.runnerLabel ?? a.runner}</span>
        <span className="grow" />
        {a.startedAt && a.endedAt && <span className="tnum faint">{duration(Date.parse(a.endedAt) - Date.parse(a.startedAt))}</span>}
        {a.leasedAt && <Ago at={a.leasedAt} className="faint" />}
      </div>
      {a.message && <p className="dim wrap">{visible(a.message)}</p>}
      {a.lateAt && (
        <p className="ink-warn">
          Its result came <Ago at={a.lateAt} />, after it had lost the run: it is kept as evidence and changed nothing.
        </p>
      )}
      {f && !only && (
        <p className="dim wrap">
          {f.class}: {visible(f.message)}
        </p>
      )}
      {a.answers?.map((x) => (
        <p key={x.id} className="wrap">
          <span className="faint">asked:</span> {visible(x.question)} <Badge tone={x.approved ? 'good' : 'bad'}>{x.approved ? 'approved' : 'rejected'}</Badge>{' '}
          <span className="faint">
            {x.by} <Ago at={x.at} />
          </span>
          {x.comment && <span className="dim"> “{visible(x.comment)}”</span>}
        </p>
      ))}
      {a.startedAt && a.attempt !== run.attempt && <Left run={run} attempt={a.attempt} diff={a.result?.snapshot?.kind === 'repo'} />}
      {a.result && !only && (
        <>
          <Button look="bare small" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? 'Hide its result' : 'Show its result'}
          </Button>
          {open && <Snippet label="Result" text={JSON.stringify({ ...a.result, trace: `${plural(a.result.trace?.length ?? 0, 'event')}`, snapshot: { ...a.result.snapshot, diff: undefined } }, null, 2)} />}
        </>
      )}
    </li>
  )
}

function Spent({ run }: { run: Run }) {
  const u = run.usage ?? run.result?.usage
  const t = run.result?.timing
  const phases: [string, number | undefined][] = t ? [['Prepare', t.prepareMs], ['Install', t.installMs], ['Agent', t.runMs], ['Collect', t.snapshotMs], ['Grade', t.gradeMs]] : []
  const sum = phases.reduce((n, [, ms]) => n + (ms ?? 0), 0)
  return (
    <Part title="What it took" note={u?.partial ? 'cut short: at least this' : undefined}>
      {t && (
        <>
          <div className="phases" aria-hidden>
            {phases.map(([name, ms]) => (ms ? <span key={name} className={`phase-${name.toLowerCase()}`} style={{ flexGrow: ms / sum }} title={`${name}: ${duration(ms)}`} /> : null))}
          </div>
          <dl className="inline-facts">
            {phases.map(([name, ms]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd className="tnum">{duration(ms)}</dd>
              </div>
            ))}
            {t.frozenMs ? (
              <div>
                <dt>Frozen</dt>
                <dd className="tnum">{duration(t.frozenMs)}</dd>
              </div>
            ) : null}
          </dl>
        </>
      )}
      <Facts>
        <Fact name="Cost">
          {usd(u?.usd)} {u?.usdSource && <span className="faint">from {u.usdSource}</span>}
        </Fact>
        <Fact name="Tokens">
          <span className="tnum">{count(u?.totalTokens)}</span> {u?.tokensSource && <span className="faint">from {u.tokensSource}</span>}
        </Fact>
        {u && (u.promptTokens !== null || u.completionTokens !== null) && (
          <Fact name="of them">
            <span className="tnum">
              {count(u.promptTokens)} in{u.cacheReadTokens !== undefined ? ` (${count(u.cacheReadTokens)} from the cache)` : ''}, {count(u.completionTokens)} out{u.reasoningTokens !== undefined ? ` (${count(u.reasoningTokens)} reasoning)` : ''}
            </span>
          </Fact>
        )}
        <Fact name="Model calls">{count(u?.calls)}</Fact>
        {run.result?.execution?.peakMemoryMb !== undefined && <Fact name="Peak memory">{megabytes(run.result.execution.peakMemoryMb)}</Fact>}
        {run.result?.execution?.cpuMs !== undefined && <Fact name="CPU time">{duration(run.result.execution.cpuMs)}</Fact>}
      </Facts>
    </Part>
  )
}

function Where({ run }: { run: Run }) {
  const x = run.result?.execution
  const p = run.provenance
  const e = run.result?.evidence
  if (!x && !p) return null
  return (
    <Part title="Where it ran">
      <Facts>
        {p && (
          <Fact name="Machine">
            {p.runnerLabel ?? p.hostname ?? p.ranOn} <span className="faint">{[p.ranOn, p.hostname !== p.runnerLabel ? p.hostname : undefined].filter(Boolean).join(' · ')}</span>
          </Fact>
        )}
        {x?.driver && (
          <Fact name="Sandbox">
            {x.driver}
            {x.enclosure && <span className="faint"> {visible(x.enclosure)}</span>}
          </Fact>
        )}
        {x?.actsAsYou && <Fact name="Reach">It could act as the runner’s user.</Fact>}
        {x?.image && <Fact name="Image">{visible(x.image)}</Fact>}
        {x && <Fact name="System">{visible([x.osResolved, x.arch, x.emulated ? 'emulated' : ''].filter(Boolean).join(' '))}</Fact>}
        {x?.harnessVersion && <Fact name="Program">{x.harnessVersion}</Fact>}
        {x?.limits && (
          <Fact name="Limits">
            {Object.entries(x.limits).map(([k, v]) => (
              <span key={k} className="tag">
                {k} {k === 'memory' && typeof v === 'number' ? bytes(v) : String(v)}
              </span>
            ))}
          </Fact>
        )}
        {e && (
          <Fact name="Evidence">
            {plural(e.traceEvents, 'event')}, log {bytes(e.logBytes)}, diff {bytes(e.diffBytes)}
            {e.redactions ? `, ${plural(e.redactions, 'value')} masked` : ''}
          </Fact>
        )}
        {e?.gaps?.map((g, i) => (
          <Fact key={i} name="Missing">
            {bytes(g.bytes)} of the {g.channel}: {g.reason}
          </Fact>
        ))}
        {x?.notes?.map((n, i) => (
          <Fact key={i} name="Note">
            {visible(n)}
          </Fact>
        ))}
      </Facts>
    </Part>
  )
}

function Asked({ run }: { run: Run }) {
  const c = run.caseSpec
  return (
    <Part title="What was asked">
      {c ? (
        <>
          <pre className="block prose" tabIndex={0} aria-label="Task">
            {visible(c.task)}
          </pre>
          <details>
            <summary>The whole request</summary>
            <Snippet label="Request" text={JSON.stringify({ harness: run.harness, runtime: run.runtime, priority: run.class, trigger: run.trigger, origin: run.origin, case: c }, null, 2)} />
          </details>
        </>
      ) : (
        <Skeleton rows={2} />
      )}
    </Part>
  )
}
