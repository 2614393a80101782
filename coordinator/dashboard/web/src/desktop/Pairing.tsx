/** How this computer becomes a runner: the address, the number, the approval; or the answer to a link that was clicked. */
import { AlertTriangle, CheckCircle2, CircleX, LoaderCircle, MonitorCheck } from 'lucide-react'
import { useState, type FormEvent, type ReactNode } from 'react'
import { left } from '../data/pairing'
import { Digits } from '../ui/Digits'
import { Button, ErrorNote, Field, useNow } from '../ui/parts'
import { useAct } from '../ui/useAct'
import { tell } from './app'
import type { Answer, Connection, Pairing, PairRequest, Question as Asked, State } from './documents'
import { address, addressFault, goesOn, inTheWay, systemName, twoDigits } from './words'

const dismiss = () => tell('POST', 'api/notices/dismiss', { id: 'pairing' })

function LeftUntil({ at }: { at: string | undefined }) {
  const now = useNow()
  if (!at) return null
  return (
    <span className="faint tnum" role="timer" aria-live="off">
      {left(Date.parse(at) - now)} left
    </span>
  )
}

/** The first start, and the way to one more coordinator. */
export function Welcome({ state }: { state: State }) {
  const [typed, setTyped] = useState('')
  const [named, setNamed] = useState(false)
  const { busy, error, act } = useAct()
  const first = state.connections.length === 0
  const fault = typed.trim() === '' ? undefined : addressFault(typed)
  const [asked, setAsked] = useState('') // what error is about
  const refusal = asked === address(typed) ? error : undefined
  const known = state.connections.find((c) => c.coordinator === address(typed)) ?? inTheWay(refusal, state.connections)
  const submit = (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const label = String(new FormData(e.currentTarget).get('label') ?? '').trim()
    void act('pair', async () => {
      const body: PairRequest = { coordinator: address(typed) }
      setAsked(body.coordinator)
      if (label && label !== state.device.name) body.label = label
      if (known) body.replace = true
      await tell('POST', 'api/pair', body)
      location.hash = '#/'
    })
  }
  return (
    <section className="card hero" aria-label="Connect">
      <div className="hero-mark" aria-hidden>
        <MonitorCheck size={26} strokeWidth={1.7} />
      </div>
      <h1>{first ? 'Let this computer take your runs' : 'Connect to one more coordinator'}</h1>
      <p className="dim">
        {first
          ? 'Everdict runs evaluations of AI agents on machines that you own. Say where your coordinator is; your browser opens there and asks you once.'
          : 'Each coordinator has its own queue, settings and pause. Your browser opens there and asks you once.'}
      </p>
      <form className="stack wide" onSubmit={submit}>
        <Field label="Coordinator’s address" hint="The address at which you open the dashboard. A link from there, under Connect this device, fills it in.">
          {(id) => (
            <input
              id={id}
              className="input"
              value={typed}
              onChange={(e) => setTyped(e.target.value)}
              placeholder="everdict.example"
              inputMode="url"
              autoComplete="off"
              autoCapitalize="off"
              spellCheck={false}
              required
              autoFocus
            />
          )}
        </Field>
        {named ? (
          <Field label="Name of this computer there">{(id) => <input id={id} name="label" className="input" defaultValue={state.device.name} maxLength={80} autoComplete="off" />}</Field>
        ) : (
          <p className="faint">
            It will be called <strong className="wrap">{state.device.name}</strong> there ({systemName(state.device.os)}, {state.device.arch}).{' '}
            <button type="button" className="as-link" onClick={() => setNamed(true)}>
              Change
            </button>
          </p>
        )}
        {fault && busy === '' && typed.length > 3 && <p className="ink-bad small-line" role="alert">{fault}</p>}
        <Refused error={refusal} known={known} />
        <div className="row wraps">
          <Button look="primary tall" type="submit" busy={busy !== ''} disabled={typed.trim() === '' || fault !== undefined}>
            {known ? 'Replace the connection' : 'Connect this computer'}
          </Button>
          {!first && (
            <a className="button tall" href="#/">
              Back
            </a>
          )}
        </div>
      </form>
    </section>
  )
}

/** What a yes replaces, and why the last one was refused, unless it was for want of that. */
export function Refused({ error, known }: { error: unknown; known: Connection | undefined }) {
  return (
    <>
      {known && <Replacing host={known.host} />}
      {!(known && inTheWay(error, [known])) && <ErrorNote error={error} />}
    </>
  )
}

function Replacing({ host }: { host: string }) {
  return (
    <div className="note warn">
      <AlertTriangle size={16} aria-hidden />
      <div className="grow">
        This computer is connected to <strong className="wrap">{host}</strong> already. The new connection replaces that one, with a new key.
      </div>
    </div>
  )
}

/** A pairing that goes on, or how the last one ended. */
export function Connecting({ p, state }: { p: Pairing; state: State }) {
  const { busy, error, act } = useAct()
  const made = state.connections.find((c) => c.id === p.connection)
  const known = inTheWay(error, state.connections)
  if (p.status === 'done') {
    return (
      <Step icon={<CheckCircle2 size={26} className="ink-good" aria-hidden />} title="This computer is connected">
        <p className="dim wrap">
          {made ? (
            <>
              It takes runs of <strong>{made.account.subject}</strong> in the workspace <strong>{made.account.workspace}</strong> from {p.host}, as <strong>{made.label}</strong>, and nobody else’s.
            </>
          ) : (
            p.text
          )}
        </p>
        {made && made.settings.sandbox === 'process' && (
          <div className="note warn">
            <AlertTriangle size={16} aria-hidden />
            <div className="grow">A run that names no image acts as you on this computer, with your files and logins. With Docker it can be kept in a container: Settings.</div>
          </div>
        )}
        {state.keys.warning && (
          <div className="note warn">
            <AlertTriangle size={16} aria-hidden />
            <div className="grow wrap">{state.keys.warning}</div>
          </div>
        )}
        <ErrorNote error={error} />
        <div className="row wraps">
          <Button look="primary tall" busy={busy !== ''} onClick={() => void act('done', dismiss)}>
            Done
          </Button>
        </div>
      </Step>
    )
  }
  if (p.status === 'failed') {
    return (
      <Step icon={<CircleX size={26} className="ink-bad" aria-hidden />} title="It was not connected">
        <div role="alert" className="stack tight">
          <p className="wrap">{p.text}</p>
          {p.next && <p className="dim wrap">{p.next}</p>}
        </div>
        <Refused error={error} known={known} />
        <div className="row wraps">
          {!p.byLink && (
            <Button look="primary tall" busy={busy === 'again'} disabled={busy !== ''} onClick={() => void act('again', async () => void (await tell('POST', 'api/pair', { coordinator: p.coordinator, ...(known && { replace: true }) } satisfies PairRequest)))}>
              {known ? 'Replace the connection' : 'Try again'}
            </Button>
          )}
          <Button look="tall" busy={busy === 'back'} disabled={busy !== ''} onClick={() => void act('back', dismiss)}>
            Back
          </Button>
        </div>
      </Step>
    )
  }
  const waiting = p.status === 'waiting'
  return (
    <Step icon={<LoaderCircle size={26} className="spin ink-active" aria-hidden />} title={waiting ? 'Approve it in the browser' : `Connecting to ${p.host}`}>
      {waiting && p.number ? (
        <>
          <div className="pair-number">
            <Digits value={p.number} />
            <p>
              Your browser shows <strong className="wrap">{p.host}</strong> with this number. <strong>If the numbers differ, deny it there.</strong>
            </p>
          </div>
          <div className="row wraps" role="status">
            <span className="grow dim">Waiting for your approval…</span>
            <LeftUntil at={p.expiresAt} />
          </div>
        </>
      ) : (
        <p className="dim wrap" role="status">
          {p.text}
        </p>
      )}
      <ErrorNote error={error} />
      <div className="row wraps">
        {waiting && p.url && (
          <Button look="tall" busy={busy === 'browser'} disabled={busy !== ''} onClick={() => void act('browser', async () => void (await tell('POST', 'api/pair/browser')))}>
            Open the browser again
          </Button>
        )}
        <Button look="tall" busy={busy === 'cancel'} disabled={busy !== ''} onClick={() => void act('cancel', () => tell('POST', 'api/pair/cancel'))}>
          Cancel
        </Button>
      </div>
      {waiting && p.url && (
        <details>
          <summary>It opened the wrong browser?</summary>
          <p className="dim">
            Open this address where you are signed in: <code className="wrap">{p.url}</code>
          </p>
        </details>
      )}
    </Step>
  )
}

function Step({ icon, title, children }: { icon: ReactNode; title: string; children: ReactNode }) {
  return (
    <section className="card hero" aria-label="Connect">
      <div className="hero-mark plain" aria-hidden>
        {icon}
      </div>
      <h1>{title}</h1>
      {children}
    </section>
  )
}

/** What a link asks. Any web page can fire one: a pairing that goes on stays in sight, with its number and its Cancel. */
export function Clicked({ q, state }: { q: Asked; state: State }) {
  return (
    <>
      {goesOn(state.pairing) && <Connecting p={state.pairing} state={state} />}
      <Question key={q.id} q={q} state={state} />
    </>
  )
}

/** A link was clicked. Until the answer nobody is contacted. */
function Question({ q, state }: { q: Asked; state: State }) {
  const [number, setNumber] = useState('')
  const { busy, error, act } = useAct()
  const known = state.connections.find((c) => c.id === q.known) ?? inTheWay(error, state.connections)
  const other = goesOn(state.pairing) ? state.pairing : undefined
  const late = other?.status === 'redeeming' // it may have made a runner
  const answer = (connect: boolean) =>
    act(connect ? 'yes' : 'no', async () => {
      const body: Answer = { question: q.id, connect }
      if (connect) {
        body.number = number
        if (known) body.replace = true
        if (other) body.instead = true
      }
      await tell('POST', 'api/question', body)
    })
  return (
    <section className="card hero" aria-label="Connect">
      <div className="hero-mark" aria-hidden>
        <MonitorCheck size={26} strokeWidth={1.7} />
      </div>
      <h1 className="wrap">
        Connect this computer to {q.host} as {q.account.subject}?
      </h1>
      <p className="dim wrap">
        A link asks for it. This computer would take runs of <strong>{q.account.subject}</strong> in the workspace <strong>{q.account.workspace}</strong> from <code>{q.coordinator}</code>. Say yes only if you clicked
        Connect this device there a moment ago: any web page can make such a link.
      </p>
      <form
        className="stack wide"
        onSubmit={(e) => {
          e.preventDefault()
          void answer(true)
        }}
      >
        <Field label="The number that the dashboard shows" hint="Two digits. A wrong one makes the link worthless.">
          {(id) => (
            <input id={id} className="input number-input" value={number} onChange={(e) => setNumber(twoDigits(e.target.value))} inputMode="numeric" autoComplete="off" placeholder="00" required autoFocus />
          )}
        </Field>
        <Refused error={error} known={known} />
        {other && (
          <div className="note warn">
            <AlertTriangle size={16} aria-hidden />
            <div className="grow">
              {late ? (
                <>
                  <strong className="wrap">{other.host}</strong> is making this computer a runner. Wait until that is done.
                </>
              ) : (
                <>
                  This computer is being connected to <strong className="wrap">{other.host}</strong>. A yes here ends that.
                </>
              )}
            </div>
          </div>
        )}
        <div className="row wraps">
          <Button look="primary tall" type="submit" busy={busy === 'yes'} disabled={busy !== '' || late || number.length !== 2}>
            Connect
          </Button>
          <Button look="tall" busy={busy === 'no'} disabled={busy !== ''} onClick={() => void answer(false)}>
            No
          </Button>
          <span className="grow" />
          <LeftUntil at={q.expiresAt} />
        </div>
      </form>
    </section>
  )
}
