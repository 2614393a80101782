/** An empty workspace: three steps that end with a green run. */
import { useQuery } from '@tanstack/react-query'
import { Check, PartyPopper } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { Link } from 'wouter'
import { change } from '../data/client'
import { plural } from '../data/format'
import { over } from '../data/outcome'
import { client, runnersQuery, summaryQuery } from '../data/queries'
import type { Run, RunRequest, Summary } from '../data/types'
import { Button, cx, ErrorNote, RunBadge, Snippet } from '../ui/parts'
import { Elapsed } from './Runs'
import { Connect } from './Connect'

/** Small, needs no model, and shows a task, an agent's work and a grader. */
export const firstRun: RunRequest = {
  harness: { id: 'scripted', version: 'latest', params: { delay: '700ms' } },
  case: {
    id: 'first-run',
    env: { kind: 'repo', source: { files: { 'README.md': 'The first run of this workspace.\n' } } },
    task: 'Create ok.txt containing the text done',
    graders: [{ id: 'tests-pass', config: { cmd: 'grep -q done ok.txt' } }],
    timeoutSec: 120,
    tags: [],
  },
}

export function FirstSteps({ run, summary }: { run: Run | undefined; summary: Summary | undefined }) {
  const { data: runners } = useQuery(runnersQuery)
  const [error, setError] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const online = Math.max(summary?.runners.online ?? 0, runners?.filter((r) => r.online).length ?? 0)
  const connected = online > 0 || run?.startedAt !== undefined
  const passed = run?.status === 'succeeded' && run.verdict === true
  const submit = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await change('POST', '/runs', firstRun)
      void client.invalidateQueries({ queryKey: summaryQuery.queryKey })
    } catch (e) {
      setError(e)
    }
    setBusy(false)
  }
  return (
    <section className="card steps" aria-label="First steps">
      <div className="steps-head">
        <h2>{passed ? 'Your first run passed' : 'Three steps to a first green run'}</h2>
        <p className="dim">
          {passed
            ? 'A machine of yours ran an agent on a case, a grader judged its work, and the evidence is here.'
            : 'Everdict runs evaluations of AI agents on machines that you own. Connect one, give it a run, watch it pass.'}
        </p>
      </div>
      <ol>
        <Step n={1} done={connected} now={!connected} title="Connect a machine">
          {connected ? (
            <p className="dim">{online > 0 ? `${plural(online, 'machine')} online.` : 'A machine took the run.'}</p>
          ) : (
            <>
              <p className="dim">It dials out to this coordinator and opens no port. This computer will do.</p>
              <Connect compact />
            </>
          )}
        </Step>
        <Step n={2} done={run !== undefined} now={connected && !run} title="Submit a run">
          {run ? (
            <p className="dim">
              <Link href={`/ui/runs/${run.id}`}>{run.caseId}</Link> was submitted.
            </p>
          ) : (
            <>
              <p className="dim">A scripted agent creates a file, and a grader looks for it. It needs no model and no key.</p>
              <details>
                <summary>What is submitted</summary>
                <Snippet label="Request" text={JSON.stringify(firstRun, null, 2)} />
              </details>
              <ErrorNote error={error} />
              <div className="row">
                <Button look={connected ? 'primary' : ''} busy={busy} onClick={() => void submit()}>
                  Submit the first run
                </Button>
                {!connected && <span className="faint">It needs a machine first.</span>}
              </div>
            </>
          )}
        </Step>
        <Step n={3} done={passed} now={run !== undefined && !passed} title="Watch it pass">
          {run ? (
            <div className="row wraps">
              <RunBadge run={run} />
              {run.startedAt && !over(run.status) && (
                <span className="faint tnum">
                  <Elapsed since={run.startedAt} />
                </span>
              )}
              {run.placement?.blockedReason && run.status === 'queued' && <span className="dim wrap">{run.placement.blockedReason}</span>}
              <Link className={cx('button', 'small', passed ? 'primary' : '')} href={`/ui/runs/${run.id}`}>
                {passed && <PartyPopper size={14} aria-hidden />} {passed ? 'See what it did' : 'Watch it live'}
              </Link>
            </div>
          ) : (
            <p className="dim">Its trace, log, diff and scores appear while it runs.</p>
          )}
        </Step>
      </ol>
      {passed && (
        <div className="steps-foot">
          <span className="dim">Next:</span>
          <Link href="/ui/new">submit a run of your own</Link>
          <Link href="/ui/harnesses">register your agent as a harness</Link>
          <Link href="/ui/runtimes">add a cluster</Link>
        </div>
      )}
    </section>
  )
}

function Step({ n, title, done, now, children }: { n: number; title: string; done: boolean; now: boolean; children: ReactNode }) {
  return (
    <li className={cx('step', done && 'done', now && 'now')} aria-current={now ? 'step' : undefined}>
      <span className="mark" aria-hidden>
        {done ? <Check size={15} strokeWidth={3} /> : n}
      </span>
      <div className="stack">
        <h3>
          {title}
          {done && <span className="visually-hidden"> (done)</span>}
        </h3>
        {children}
      </div>
    </li>
  )
}
