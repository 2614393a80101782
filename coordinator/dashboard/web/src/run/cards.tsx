/** What stands between the head of a run and its evidence: what it waits for, why it failed, how it was judged. */
import { useQuery } from '@tanstack/react-query'
import { CheckCircle2, ChevronRight, CircleDashed, Hand, Hourglass, TriangleAlert, Unplug, XCircle } from 'lucide-react'
import { useState } from 'react'
import { useMay } from '../app/session'
import { change, seg } from '../data/client'
import { duration } from '../data/format'
import { failureWords } from '../data/outcome'
import { client, placementQuery, runKey } from '../data/queries'
import type { Failure, Run, Score } from '../data/types'
import { Elapsed } from '../pages/Runs'
import { Ago, Badge, Button, cx, ErrorNote } from '../ui/parts'
import { visible } from './patch'

/** A run that waits for a person: the question and the two answers. */
export function Decide({ run }: { run: Run }) {
  const [comment, setComment] = useState('')
  const [busy, setBusy] = useState('')
  const [error, setError] = useState<unknown>()
  const may = useMay('member', 'write')
  const s = run.suspended
  const before = s?.kind === 'before-start'
  const answer = async (what: 'approve' | 'reject') => {
    setBusy(what)
    setError(undefined)
    try {
      client.setQueryData<Run>(runKey(run.id), await change<Run>('POST', `/runs/${seg(run.id)}/${what}`, comment.trim() ? { comment: comment.trim() } : {}))
      void client.invalidateQueries({ queryKey: runKey(run.id) })
    } catch (e) {
      setError(e)
    }
    setBusy('')
  }
  return (
    <section className="card decide" aria-label="Decision">
      <div className="row">
        <Hand size={18} className="ink-hold" aria-hidden />
        <h2 className="grow">{before ? 'This run waits for your approval before it starts' : 'The agent asks a person'}</h2>
        {s && (
          <span className="faint">
            asked <Ago at={s.since} />
          </span>
        )}
      </div>
      {s?.question && <blockquote className="prewrap">{visible(s.question)}</blockquote>}
      {may ? (
        <>
          <div className="row wraps">
            <input className="input grow" aria-label="Comment" placeholder="Comment (optional)" value={comment} onChange={(e) => setComment(e.target.value)} />
            <Button look="primary" busy={busy === 'approve'} disabled={busy !== ''} onClick={() => void answer('approve')}>
              Approve
            </Button>
            <Button look="danger" busy={busy === 'reject'} disabled={busy !== ''} onClick={() => void answer('reject')}>
              Reject
            </Button>
          </div>
          <p className="faint">{before ? 'Rejecting ends the run.' : 'Rejecting tells the agent no; the run goes on.'}</p>
        </>
      ) : (
        <p className="faint">Answering takes the role member and a key with the scope write.</p>
      )}
      <ErrorNote error={error} />
    </section>
  )
}

/** Why a run has not begun. */
export function Waiting({ run }: { run: Run }) {
  const { data } = useQuery(placementQuery(run.id))
  const reason = run.placement?.blockedReason ?? data?.placement.blockedReason
  return (
    <section className="note" aria-label="Why it waits">
      <Hourglass size={16} className="ink-wait" aria-hidden />
      <div className="grow">
        <strong>
          Waiting <Elapsed since={run.createdAt} />.
        </strong>{' '}
        <span className="wrap">{reason ? `${visible(reason)}.` : 'A runner takes it as soon as one is free.'}</span>
        {run.placement?.queueDeadline && !reason?.includes('unschedulable') && (
          <span className="faint">
            {' '}
            If nobody has taken it, it fails <Ago at={run.placement.queueDeadline} />.
          </span>
        )}
      </div>
    </section>
  )
}

/** What is wrong with the attempt that is under way: its runner is not there, was revoked, or was asked to stop it. */
export function Underway({ reason }: { reason: string }) {
  return (
    <section className="note" aria-label="The attempt">
      <Unplug size={16} className="ink-warn" aria-hidden />
      <span className="grow wrap">{visible(reason)}.</span>
    </section>
  )
}

const stages: Record<string, string> = { dispatch: 'before it began', install: 'while the harness was installed', run: 'while the agent worked', collect: 'while its work was collected', grade: 'while it was graded' }

/** Why there is no result: what fired, what was configured and measured, what to do. */
export function FailureCard({ run, failure: f }: { run: Run; failure: Failure }) {
  const cancelled = run.error?.code === 'CANCELLED'
  return (
    <section className={cx('card failure', cancelled && 'calm')} aria-label="Failure">
      <div className="row wraps">
        <TriangleAlert size={17} className={cancelled ? 'ink-mute' : 'ink-warn'} aria-hidden />
        <h2 className="grow">
          {cancelled ? 'Ended by a person' : `${f.class}: ${failureWords(f)}`}
          <span className="faint"> {stages[f.stage] ?? f.stage}</span>
        </h2>
        <code className="faint">{f.code}</code>
      </div>
      <p className="prewrap">{visible(f.message)}</p>
      {f.limit && <LimitBar limit={f.limit} />}
      <dl className="inline-facts">
        {f.signal && (
          <div>
            <dt>Ended by</dt>
            <dd>{f.signal}</dd>
          </div>
        )}
        {f.exitCode !== undefined && (
          <div>
            <dt>Exit code</dt>
            <dd>{f.exitCode}</dd>
          </div>
        )}
        <div>
          <dt>Can a retry help?</dt>
          <dd>{f.retryable ? 'Yes: nothing in the run itself has to change' : 'No: change something first'}</dd>
        </div>
      </dl>
      {f.hint && (
        <p className="hint-line">
          <strong>What to do:</strong> {visible(f.hint)}
        </p>
      )}
      {f.logTail && (
        <details>
          <summary>The end of its output</summary>
          <pre className="block" tabIndex={0}>
            {visible(f.logTail)}
          </pre>
        </details>
      )}
    </section>
  )
}

function LimitBar({ limit }: { limit: NonNullable<Failure['limit']> }) {
  const top = Math.max(limit.configured, limit.measured) || 1
  const n = (v: number) => `${Number.isInteger(v) ? v : v.toFixed(3)} ${limit.unit}`
  return (
    <div className="limit">
      <span className="name">
        <code>{limit.name}</code>
      </span>
      <div className="bars">
        <div>
          <span className="label">Configured</span>
          <span className="bar">
            <span style={{ width: `${(limit.configured / top) * 100}%` }} />
          </span>
          <span className="num">{n(limit.configured)}</span>
        </div>
        <div className="over">
          <span className="label">Measured</span>
          <span className="bar">
            <span style={{ width: `${(limit.measured / top) * 100}%` }} />
          </span>
          <span className="num">{n(limit.measured)}</span>
        </div>
      </div>
    </div>
  )
}

/** Every score, and which of them decided the verdict. */
export function Scores({ run }: { run: Run }) {
  const deciders = new Set(run.verdictBasis?.deciders.map((d) => `${d.graderId}\n${d.metric}`))
  return (
    <section className="card scores" aria-label="Scores">
      <div className="card-head">
        <h2>Scores</h2>
        {run.verdictBasis && (
          <span className="faint">
            decided by {run.verdictBasis.authority.replaceAll('_', ' ')}
            {run.verdictBasis.deciders.length > 1 ? `, ${run.verdictBasis.aggregation.replaceAll('_', ' ')}` : ''}
          </span>
        )}
      </div>
      <ul>
        {run.scores!.map((s, i) => (
          <ScoreRow key={i} score={s} decides={deciders.has(`${s.graderId}\n${s.metric}`)} />
        ))}
      </ul>
    </section>
  )
}

function ScoreRow({ score: s, decides }: { score: Score; decides: boolean }) {
  const [open, setOpen] = useState(false)
  const evidence = s.detail || s.reason
  const long = (evidence?.length ?? 0) > 160 || evidence?.includes('\n')
  const Icon = s.pass === true ? CheckCircle2 : s.pass === false ? XCircle : CircleDashed
  return (
    <li>
      <div className="score-row">
        <Icon size={16} className={s.pass === true ? 'ink-good' : s.pass === false ? 'ink-bad' : 'ink-mute'} aria-label={s.pass === true ? 'passed' : s.pass === false ? 'did not pass' : s.status} />
        <span className="metric">
          <strong>{s.label ?? s.metric}</strong>
          {s.graderId !== s.metric && <span className="faint"> {s.graderId}</span>}
        </span>
        <span className="value num">{scoreValue(s)}</span>
        <span className="evidence-line clip dim">{evidence && !open ? visible(evidence.split('\n', 1)[0]!) : ''}</span>
        <span className="row">
          {decides && <Badge tone="active" icon={false}>decides</Badge>}
          {long && (
            <Button look="bare small icon" aria-label={open ? 'Hide the evidence' : 'Show the evidence'} aria-expanded={open} onClick={() => setOpen(!open)}>
              <ChevronRight size={14} className={open ? 'turned' : ''} aria-hidden />
            </Button>
          )}
        </span>
      </div>
      {open && evidence && (
        <pre className="block" tabIndex={0}>
          {visible(evidence)}
        </pre>
      )}
    </li>
  )
}

function scoreValue(s: Score): string {
  if (s.value === undefined || s.value === null) return s.status === 'measured' || s.status === 'ok' ? '–' : s.status.replaceAll('_', ' ')
  if (s.metric.includes('latency') || s.metric === 'duration_ms') return duration(s.value)
  if (s.metric.includes('usd')) return `$${s.value}`
  return Number.isInteger(s.value) ? String(s.value) : s.value.toFixed(3)
}
