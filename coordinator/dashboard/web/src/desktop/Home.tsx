/** One card for each coordinator: how it is, what runs, and what can be done about it. */
import { AlertTriangle, ExternalLink, OctagonX, Pause, Play, Plus, RotateCcw } from 'lucide-react'
import { useEffect, useState } from 'react'
import { duration, plural } from '../data/format'
import { Badge, Button, Confirm, ErrorNote, useNow } from '../ui/parts'
import { toast } from '../ui/toast'
import { useAct } from '../ui/useAct'
import { tell } from './app'
import type { Connection, Job, PairRequest, State, Unpaired } from './documents'
import { JobLog } from './JobLog'
import { jobNames, phaseWords, statusWords } from './words'

export function Home({ state }: { state: State }) {
  const { busy, error, act } = useAct()
  const several = state.connections.length > 1
  const allPaused = state.connections.every((c) => c.pauses?.includes('user'))
  return (
    <div className="stack wide">
      <div className="desk-title">
        <h1 className="wrap">{state.text}</h1>
        {several && (
          <Button look="small" busy={busy === 'all'} onClick={() => void act('all', async () => void (await tell('POST', allPaused ? 'api/resume' : 'api/pause')))}>
            {allPaused ? <Play size={13} aria-hidden /> : <Pause size={13} aria-hidden />} {allPaused ? 'Resume all' : 'Pause all'}
          </Button>
        )}
      </div>
      <ErrorNote error={error} />
      {state.connections.map((c) => (
        <ConnectionCard key={c.id} c={c} said={state.text} />
      ))}
      <a className="button bare add" href="#/connect">
        <Plus size={15} aria-hidden /> Add another coordinator
      </a>
    </div>
  )
}

function ConnectionCard({ c, said }: { c: Connection; said: string }) {
  const { busy, error, act } = useAct()
  const [asking, setAsking] = useState<'stop' | 'unpair'>()
  const [tone, word] = statusWords(c.status)
  const paused = c.pauses?.includes('user') ?? false
  const gone = c.reason === 'revoked' || c.reason === 'key_missing'
  const run = (what: string, fn: () => Promise<unknown>) => void act(what, async () => void (await fn()))
  return (
    <section className="card connection" aria-label={c.host}>
      <div className="card-head">
        <div className="grow">
          <h2 className="wrap">{c.host}</h2>
          <div className="faint small-line wrap">
            {c.account.subject} · {c.account.workspace} · as {c.label}
          </div>
        </div>
        <Badge tone={tone}>{word}</Badge>
      </div>
      <div className="card-body stack wide">
        <div className="stack tight about">
          {c.text !== said && (
            <p className="wrap" role="status">
              {c.text}
            </p>
          )}
          {c.next && <p className="dim wrap">{c.next}</p>}
          {c.retryAt && <Retry at={c.retryAt} />}
          {c.undelivered > 0 && <p className="dim">{plural(c.undelivered, 'result')} wait here until the coordinator takes them.</p>}
        </div>
        {c.jobs.map((j) => (
          <JobView key={`${j.run}/${j.epoch}`} j={j} c={c} alone={c.jobs.length === 1} />
        ))}
        <ErrorNote error={error} />
        <div className="row wraps">
          {gone ? (
            <>
              <Button look="primary" busy={busy === 'anew'} disabled={busy !== ''} onClick={() => run('anew', () => tell('POST', 'api/pair', { coordinator: c.coordinator, label: c.label, replace: true } satisfies PairRequest))}>
                Connect anew
              </Button>
              <Button busy={busy === 'unpair'} disabled={busy !== ''} onClick={() => setAsking('unpair')}>
                Remove
              </Button>
            </>
          ) : (
            <>
              {c.canResume ? (
                <Button look={c.status === 'paused' ? 'primary' : ''} busy={busy === 'resume'} disabled={busy !== ''} onClick={() => run('resume', () => tell('POST', 'api/resume', { connection: c.id }))}>
                  <Play size={14} aria-hidden /> Resume
                </Button>
              ) : (
                <Button busy={busy === 'pause'} disabled={busy !== ''} onClick={() => run('pause', () => tell('POST', 'api/pause', { connection: c.id }))}>
                  <Pause size={14} aria-hidden /> {c.jobs.length > 1 ? 'Pause after these jobs' : c.jobs.length === 1 ? 'Pause after this job' : 'Pause'}
                </Button>
              )}
              {c.canResume && !paused && (
                <Button busy={busy === 'pause'} disabled={busy !== ''} onClick={() => run('pause', () => tell('POST', 'api/pause', { connection: c.id }))}>
                  <Pause size={14} aria-hidden /> Pause until I resume
                </Button>
              )}
              {c.jobs.length > 0 && (
                <Button look="danger" disabled={busy !== ''} onClick={() => setAsking('stop')}>
                  <OctagonX size={14} aria-hidden /> Stop now
                </Button>
              )}
              {c.canRetry && (
                <Button busy={busy === 'retry'} disabled={busy !== ''} onClick={() => run('retry', () => tell('POST', `api/connections/${encodeURIComponent(c.id)}/retry`))}>
                  <RotateCcw size={14} aria-hidden /> Try now
                </Button>
              )}
              <span className="grow" />
              <Button look="bare" disabled={busy !== ''} onClick={() => run('visit', () => tell('POST', 'api/visit', { connection: c.id }))}>
                <ExternalLink size={14} aria-hidden /> Dashboard
              </Button>
            </>
          )}
        </div>
      </div>
      {asking === 'stop' && (
        <Confirm
          title="Stop now?"
          action="Stop now"
          busy={busy === 'stop'}
          error={error}
          onClose={() => setAsking(undefined)}
          onConfirm={() =>
            run('stop', async () => {
              await tell('POST', 'api/pause', { connection: c.id, stop: true })
              setAsking(undefined)
            })
          }
        >
          {jobNames(c.jobs)} {c.jobs.length === 1 ? 'ends' : 'end'} here at once and {c.jobs.length === 1 ? 'goes' : 'go'} back to the queue. What was done so far is lost. No new runs are taken until you resume.
        </Confirm>
      )}
      {asking === 'unpair' && <Unpair c={c} onClose={() => setAsking(undefined)} />}
    </section>
  )
}

function Retry({ at }: { at: string }) {
  const wait = Date.parse(at) - useNow()
  return <p className="faint tnum">{wait > 1000 ? `It is tried again in ${duration(Math.ceil(wait / 1000) * 1000).replace(/\.\d /, ' ')}.` : 'It is tried again now.'}</p>
}

/** Asks, and then takes the connection away. */
export function Unpair({ c, onClose }: { c: Connection; onClose: () => void }) {
  const { busy, error, act } = useAct()
  return (
    <Confirm
      title={`Disconnect from ${c.host}?`}
      action="Disconnect"
      busy={busy !== ''}
      error={error}
      onClose={onClose}
      onConfirm={() =>
        void act('unpair', async () => {
          const u = await tell<Unpaired>('POST', `api/connections/${encodeURIComponent(c.id)}/unpair`)
          if (u.told) toast.done(u.text)
          else toast.failed(new Error(u.text))
          onClose()
        })
      }
    >
      The coordinator forgets this computer and its key is deleted here.
      {c.jobs.length > 0 && ` ${jobNames(c.jobs)} ${c.jobs.length === 1 ? 'ends' : 'end'} at once and ${c.jobs.length === 1 ? 'goes' : 'go'} back to the queue.`}
      {c.undelivered > 0 && ` ${plural(c.undelivered, 'result')} that the coordinator has not taken yet will be lost.`} To use this computer again it has to be connected anew.
    </Confirm>
  )
}

function JobView({ j, c, alone }: { j: Job; c: Connection; alone: boolean }) {
  const [open, setOpen] = useState(alone)
  useEffect(() => setOpen(alone), [alone])
  const now = useNow()
  return (
    <article className="job" aria-label={j.case}>
      <div className="row wraps">
        <strong className="wrap">{j.case}</strong>
        <span className="dim wrap">{j.harness}</span>
        {j.held && <span className="tag">held still</span>}
        <span className="grow" />
        <span className="faint tnum">{duration(Math.max(0, now - Date.parse(j.startedAt)))}</span>
      </div>
      <div className="row wraps faint small-line">
        <span className="grow wrap">
          {phaseWords(j.phase)}
          {j.submitter && `, for ${j.submitter}`}
        </span>
        <Button look="bare small" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? 'Hide the log' : 'Show the log'}
        </Button>
        <Button look="bare small" onClick={() => void tell('POST', 'api/visit', { connection: c.id, run: j.run }).catch(toast.failed)}>
          <ExternalLink size={13} aria-hidden /> Run
        </Button>
      </div>
      {j.actsAsYou && (
        <div className="acts-as-you">
          <AlertTriangle size={13} aria-hidden /> It acts as you on this computer, with your files and logins.
        </div>
      )}
      {open && <JobLog run={j.run} epoch={j.epoch} />}
    </article>
  )
}
