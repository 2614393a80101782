import { useQuery } from '@tanstack/react-query'
import { Ban, ChevronDown, Download, GitCompare, RotateCcw, Terminal, Waypoints } from 'lucide-react'
import { lazy, Suspense, useEffect, useMemo, useRef, useState, type ReactNode } from 'react'
import { Link, useLocation, useSearchParams } from 'wouter'
import { usePageKeys } from '../app/keys'
import { ReconnectBanner } from '../app/Shell'
import { useMay } from '../app/session'
import { change, seg } from '../data/client'
import { bytes, count, dash, short, usd } from '../data/format'
import { over } from '../data/outcome'
import { client, runKey, runQuery } from '../data/queries'
import { useStore } from '../data/store'
import type { Run } from '../data/types'
import { useTitle } from '../pages/title'
import { Took, where } from '../pages/Runs'
import { Ago, Button, Confirm, CopyButton, ErrorNote, RunBadge, Skeleton } from '../ui/parts'
import { toast } from '../ui/toast'
import { Decide, FailureCard, Scores, Underway, Waiting } from './cards'
import { curlOf } from './curl'
import { FileLink } from './FileLink'
import { Overview } from './Overview'
import { LiveRun } from './live'
import { LogView } from './LogView'
import { TraceView } from './TraceView'

const DiffView = lazy(() => import('./DiffView').then((m) => ({ default: m.DiffView })))

export function RunPage({ id }: { id: string }) {
  const { data: run, error, refetch } = useQuery(runQuery(id))
  useTitle(run ? `${run.caseId} · ${id.slice(0, 10)}…` : 'Run')
  if (error && !run) {
    return (
      <div className="page">
        <ErrorNote error={error} retry={() => void refetch()} />
        <p>
          <Link href="/ui/runs">All runs</Link>
        </p>
      </div>
    )
  }
  if (!run) {
    return (
      <div className="page">
        <Skeleton rows={9} />
      </div>
    )
  }
  return <Loaded run={run} />
}

const tabs = ['trace', 'log', 'diff', 'overview'] as const
type Tab = (typeof tabs)[number]

function Loaded({ run }: { run: Run }) {
  const live = useMemo(() => new LiveRun(run.id), [run.id])
  const start = useRef(run)
  useEffect(() => {
    const l = live
    void l.start(start.current)
    return () => l.stop()
  }, [live])
  useStore(live)
  useStore(live.trace)
  useStore(live.log)
  const [params, setParams] = useSearchParams()
  const asked = params.get('tab') as Tab
  const tab: Tab = tabs.includes(asked) ? asked : 'trace'
  const show = (t: Tab) =>
    setParams(
      (old) => {
        const next = new URLSearchParams(old)
        next.set('tab', t)
        return next
      },
      { replace: true },
    )
  usePageKeys({
    t: { name: 'Trace', run: () => show('trace') },
    l: { name: 'Log', run: () => show('log') },
    d: { name: 'Diff', run: () => show('diff') },
    o: { name: 'Overview', run: () => show('overview') },
  })
  const changed = run.result?.snapshot?.changedFiles?.length
  const names: Record<Tab, [ReactNode, string]> = {
    trace: [<Waypoints size={15} aria-hidden key="i" />, 'Trace'],
    log: [<Terminal size={15} aria-hidden key="i" />, 'Log'],
    diff: [<GitCompare size={15} aria-hidden key="i" />, 'Diff'],
    overview: [<ChevronDown size={15} aria-hidden key="i" />, 'Overview'],
  }
  const counts: Record<Tab, string | undefined> = {
    trace: live.trace.total ? count(live.trace.total) : undefined,
    log: live.log.bytes ? bytes(live.log.bytes) : undefined,
    diff: changed !== undefined ? count(changed) : undefined,
    overview: undefined,
  }
  return (
    <div className="page full run-page">
      {live.state === 'reconnecting' && <ReconnectBanner />}
      <Header run={run} live={live} />
      {run.status === 'suspended' && <Decide run={run} />}
      {run.status === 'queued' && <Waiting run={run} />}
      {run.status === 'running' && run.placement?.blockedReason && <Underway reason={run.placement.blockedReason} />}
      {run.failure && <FailureCard run={run} failure={run.failure} />}
      {(run.scores?.length ?? 0) > 0 && <Scores run={run} />}
      <div className="card run-evidence">
        <div className="tabs" role="tablist" aria-label="Evidence">
          {tabs.map((t) => (
            <button
              key={t}
              type="button"
              role="tab"
              id={`tab-${t}`}
              aria-selected={tab === t}
              aria-controls="evidence"
              tabIndex={tab === t ? 0 : -1}
              className="tab"
              onClick={() => show(t)}
              onKeyDown={(e) => {
                const by = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0
                if (!by) return
                const to = tabs[(tabs.indexOf(t) + by + tabs.length) % tabs.length]!
                show(to)
                document.getElementById(`tab-${to}`)?.focus()
              }}
            >
              {names[t][1]}
              {counts[t] && <span className="count">{counts[t]}</span>}
            </button>
          ))}
        </div>
        <div id="evidence" role="tabpanel" aria-labelledby={`tab-${tab}`} className="evidence">
          {tab === 'trace' && <TraceView run={run} trace={live.trace} />}
          {tab === 'log' && <LogView run={run} log={live.log} choose={(s) => live.chooseStream(s)} />}
          {tab === 'diff' && (
            <Suspense fallback={<Skeleton rows={6} />}>
              <DiffView run={run} />
            </Suspense>
          )}
          {tab === 'overview' && <Overview run={run} events={live.events} />}
        </div>
      </div>
    </div>
  )
}

function Header({ run, live }: { run: Run; live: LiveRun }) {
  const h = run.resolvedHarness ?? run.harness
  const [, navigate] = useLocation()
  const may = useMay('member', 'write')
  const [asking, setAsking] = useState(false)
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<unknown>()
  const cancel = async () => {
    setBusy(true)
    try {
      client.setQueryData(runKey(run.id), await change<Run>('POST', `/runs/${seg(run.id)}/cancel`))
      void client.invalidateQueries({ queryKey: runKey(run.id) })
      setAsking(false)
    } catch (e) {
      setFailed(e)
    }
    setBusy(false)
  }
  const retry = async () => {
    setBusy(true)
    try {
      const next = await change<{ runId: string }>('POST', `/runs/${seg(run.id)}/retry`)
      navigate(`/ui/runs/${next.runId}`)
    } catch (e) {
      toast.failed(e)
    }
    setBusy(false)
  }
  return (
    <header className="run-head">
      <div className="page-head">
        <Link href="/ui/runs" className="faint">
          Runs
        </Link>
        <span className="faint" aria-hidden>
          /
        </span>
        <h1 className="clip" title={run.caseId}>
          {run.caseId}
        </h1>
        <RunBadge run={run} large />
        <span className="row faint">
          <code>{run.id}</code>
          <CopyButton text={run.id} label="Copy the id" />
        </span>
        <div className="actions">
          <Downloads run={run} live={live} />
          {run.caseSpec && (
            <CopyButton look="small" text={() => curlOf(run)} label="Copy as curl">
              Copy as curl
            </CopyButton>
          )}
          {over(run.status)
            ? may && (
                <Button look="small" busy={busy} onClick={() => void retry()}>
                  <RotateCcw size={14} aria-hidden /> Run again
                </Button>
              )
            : may && (
                <Button look="small danger" onClick={() => setAsking(true)}>
                  <Ban size={14} aria-hidden /> Cancel
                </Button>
              )}
        </div>
      </div>
      <dl className="run-facts">
        <HeadFact name="Harness">
          <Link href={`/ui/harnesses/${seg(h.id)}`}>{h.id}</Link> <span className="faint">{h.version}</span>
        </HeadFact>
        <HeadFact name="Ran on" title={run.placement?.why}>
          {where(run)}
          {run.result?.execution?.driver && <span className="faint"> · {run.result.execution.driver}</span>}
          {run.result?.execution?.actsAsYou && <span className="tag acts">could act as you</span>}
        </HeadFact>
        <HeadFact name="Took">
          <Took run={run} />
        </HeadFact>
        <HeadFact name="Cost" title={run.usage?.usdSource && `from ${run.usage.usdSource}`}>
          {usd(run.usage?.usd)}
          {run.usage?.partial && run.usage.usd !== null && <span className="faint"> at least</span>}
        </HeadFact>
        <HeadFact name="Tokens" title={run.usage?.tokensSource && `from ${run.usage.tokensSource}`}>
          {run.usage?.totalTokens === null || run.usage?.totalTokens === undefined ? (
            dash
          ) : (
            <>
              {short(run.usage.totalTokens)}{' '}
              <span className="faint">
                {short(run.usage.promptTokens)} in, {short(run.usage.completionTokens)} out
              </span>
            </>
          )}
        </HeadFact>
        <HeadFact name="Submitted">
          <Ago at={run.createdAt} />
          {run.createdBy && <span className="faint"> by {run.createdBy}</span>}
        </HeadFact>
        {run.attempt !== undefined && run.attempt > 1 && <HeadFact name="Attempt">{run.attempt}</HeadFact>}
        {run.origin?.causedByRunId && (
          <HeadFact name="Again from">
            <Link href={`/ui/runs/${run.origin.causedByRunId}`}>
              <code>…{run.origin.causedByRunId.slice(-6)}</code>
            </Link>
          </HeadFact>
        )}
      </dl>
      {asking && (
        <Confirm title="Cancel this run?" action="Cancel the run" busy={busy} error={failed} onClose={() => setAsking(false)} onConfirm={() => void cancel()}>
          {run.status === 'queued' ? 'It has not started and never will.' : 'Its agent is stopped. What it has done so far is kept as evidence, and the run ends as cancelled.'}
        </Confirm>
      )}
    </header>
  )
}

function HeadFact({ name, title, children }: { name: string; title?: string | undefined; children: ReactNode }) {
  return (
    <div title={title}>
      <dt>{name}</dt>
      <dd className="clip tnum">{children}</dd>
    </div>
  )
}

function Downloads({ run, live }: { run: Run; live: LiveRun }) {
  const ref = useRef<HTMLDetailsElement>(null)
  useEffect(() => {
    const close = (e: Event) => {
      if (ref.current?.open && !(e.target instanceof Node && ref.current.contains(e.target))) ref.current.open = false
    }
    const esc = (e: KeyboardEvent) => {
      if (e.key === 'Escape' && ref.current?.open) ref.current.open = false
    }
    addEventListener('click', close)
    addEventListener('keydown', esc)
    return () => {
      removeEventListener('click', close)
      removeEventListener('keydown', esc)
    }
  }, [])
  const base = `/runs/${seg(run.id)}`
  const files: [string, string, string][] = [
    ['Record', `${base}`, `${run.id}.json`],
    ['Trace, a line per event', `${base}/trace?format=jsonl`, `${run.id}.trace.jsonl`],
    ['Log, as it was written', `${base}/logs?raw=1`, `${run.id}.log`],
    ['Diff, for git apply --binary', `${base}/diff`, `${run.id}.diff`],
    ['Attempts', `${base}/attempts`, `${run.id}.attempts.json`],
  ]
  return (
    <details className="menu" ref={ref}>
      <summary className="button small">
        <Download size={14} aria-hidden /> Download
      </summary>
      <ul>
        {files
          .filter(([name]) => (name.startsWith('Diff') ? run.result?.snapshot?.kind !== 'prompt' && over(run.status) : name.startsWith('Log') ? live.log.found : true))
          .map(([name, href, file]) => (
            <li key={name}>
              <FileLink name={name} href={href} file={file} taken={() => (ref.current!.open = false)} />
            </li>
          ))}
      </ul>
    </details>
  )
}

