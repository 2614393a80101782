/** What this computer can do, and what is missing for the rest. */
import { CheckCircle2, CircleDashed, RefreshCw, TriangleAlert } from 'lucide-react'
import { useState } from 'react'
import { Ago, Button, cx, ErrorNote, Skeleton, Snippet } from '../ui/parts'
import { useAct } from '../ui/useAct'
import { tell, useRead } from './app'
import type { Check, Machine, State } from './documents'
import { systemName } from './words'

export function MachinePage({ state }: { state: State }) {
  const { data: found, error, again } = useRead<Machine>('api/machine', state.machineRev)
  const [newer, setNewer] = useState<Machine>()
  const { busy, error: failed, act } = useAct()
  const data = newer && found && newer.rev >= found.rev ? newer : found
  const can = data?.checks.filter((c) => c.status !== 'missing') ?? []
  const missing = data?.checks.filter((c) => c.status === 'missing') ?? []
  return (
    <div className="stack wide">
      <div className="desk-title">
        <div className="grow">
          <h1 className="wrap">{state.device.name}</h1>
          <span className="faint">
            {systemName(state.device.os)}, {state.device.arch}
            {data && (
              <>
                {' '}
                · looked at <Ago at={data.at} />
              </>
            )}
          </span>
        </div>
        <Button busy={busy !== ''} onClick={() => void act('look', async () => setNewer(await tell<Machine>('POST', 'api/machine')))}>
          <RefreshCw size={14} aria-hidden /> Look again
        </Button>
      </div>
      <ErrorNote error={error} retry={again} />
      <ErrorNote error={failed} />
      {!data ? (
        !error && (
          <div className="card">
            <Skeleton rows={5} />
          </div>
        )
      ) : (
        <>
          {!data.canWork && <div className="note error">As it is, no runner can work here. What is marked “needed” below has to be there first.</div>}
          <section className="card" aria-label="What it can do">
            <div className="card-head">
              <h2 className="grow">What it can do</h2>
              <span className="tags">
                {data.capabilities.map((c) => (
                  <span key={c} className="tag">
                    {c}
                  </span>
                ))}
              </span>
            </div>
            <Checks all={can} />
          </section>
          {missing.length > 0 && (
            <section className="card" aria-label="What is missing">
              <div className="card-head">
                <h2>What is missing</h2>
                <span className="faint small-line">Runs that need it go to other machines.</span>
              </div>
              <Checks all={missing} />
            </section>
          )}
        </>
      )}
    </div>
  )
}

const icons = { ok: CheckCircle2, warn: TriangleAlert, missing: CircleDashed }
const inks = { ok: 'ink-good', warn: 'ink-warn', missing: 'ink-mute' }

function Checks({ all }: { all: Check[] }) {
  return (
    <ul className="checks">
      {all.map((c) => {
        const Icon = icons[c.status]
        return (
          <li key={c.id}>
            <Icon size={16} className={inks[c.status]} aria-hidden />
            <div className="stack tight grow">
              <div className="wrap">
                <strong>{c.id}</strong>
                {c.required && c.status === 'missing' && <span className="tag needed">needed</span>} <span className="visually-hidden">{c.status}: </span>
                <span className="dim">{c.evidence}</span>
              </div>
              {c.mend && (looksLikeCommand(c.mend) ? <Snippet wrapped label={`What helps: ${c.id}`} text={c.mend} /> : <p className={cx('wrap', c.status === 'missing' ? '' : 'dim')}>{c.mend}</p>)}
            </div>
          </li>
        )
      })}
    </ul>
  )
}

/** A mend is a command, or a sentence. */
function looksLikeCommand(s: string): boolean {
  return /^(sudo|apt|apt-get|brew|dnf|docker|podman|npm|curl|everdict|systemctl|git|export|winget|usermod)\b/.test(s) && !/\.\s/.test(s)
}
