/** A computer asks to be a runner: who is signed in looks at it and decides. */
import { useQuery } from '@tanstack/react-query'
import { AlertTriangle, Check, CheckCircle2, CircleSlash, LoaderCircle, X } from 'lucide-react'
import { useEffect, useState, type FormEvent, type ReactNode } from 'react'
import { Link, useLocation } from 'wouter'
import { signOut, useMay, useSession } from '../app/session'
import { change, seg } from '../data/client'
import { appLink, left, loopbackCallback, pairingEnd, pairingQuery, reasonOf, userCode, userCodeLength } from '../data/pairing'
import { client, ownRunnersQuery } from '../data/queries'
import type { Pairing, PairingApproval } from '../data/types'
import { workspace } from '../data/workspace'
import { Digits } from '../ui/Digits'
import { Button, ErrorNote, Fact, Facts, Field, Skeleton, useNow } from '../ui/parts'
import { toast } from '../ui/toast'
import { useAct } from '../ui/useAct'
import { useTitle } from './title'

/** One card in the middle: nothing beside the question. */
function Frame({ title, children, foot }: { title: string; children: ReactNode; foot?: ReactNode }) {
  useTitle(title)
  const s = useSession()
  return (
    <main className="pair" id="main">
      <section className="card">
        <div className="pair-head">
          <img src="/assets/favicon.svg" alt="" width={26} height={26} />
          <h1>{title}</h1>
        </div>
        {children}
        {foot && <div className="pair-foot">{foot}</div>}
      </section>
      <p className="pair-who">
        {s.authRequired ? (
          <>
            Signed in as <strong className="wrap">{s.principal?.subject}</strong>, workspace <strong className="wrap">{s.principal?.workspace}</strong>.{' '}
            <button type="button" className="as-link" onClick={() => void signOut().catch(toast.failed)}>
              Not you?
            </button>
          </>
        ) : (
          <>
            Workspace <strong className="wrap">{workspace.name}</strong>, without login.
          </>
        )}{' '}
        <Link href="/">To the dashboard</Link>
      </p>
    </main>
  )
}

/** Types in the code that a machine without a browser shows. */
export function EnterCode() {
  const [code, setCode] = useState('')
  const { busy, error, act } = useAct()
  const [, navigate] = useLocation()
  const whole = code.replace('-', '').length === userCodeLength
  const submit = (e: FormEvent) => {
    e.preventDefault()
    void act('look', async () => {
      const p = await change<Pairing>('POST', '/pairings/lookup', { userCode: code })
      client.setQueryData(pairingQuery(p.id).queryKey, p)
      navigate(`/ui/pair/${seg(p.id)}`, { replace: true })
    })
  }
  return (
    <Frame title="Connect a machine">
      <form className="pair-body" onSubmit={submit}>
        <p className="dim">
          On the machine, <code>everdict runner --pair</code> shows a code of {userCodeLength} characters. It is good for five minutes.
        </p>
        <Field label="Code">
          {(id) => (
            <input
              id={id}
              className="input code-input mono"
              value={code}
              onChange={(e) => setCode(userCode(e.target.value))}
              placeholder="XXXX-XXXX"
              autoComplete="off"
              autoCapitalize="characters"
              spellCheck={false}
              autoFocus
              required
            />
          )}
        </Field>
        <ErrorNote error={error} />
        <Button look="primary tall" type="submit" busy={busy !== ''} disabled={!whole}>
          Continue
        </Button>
      </form>
    </Frame>
  )
}

export function Pair({ id }: { id: string }) {
  const { data: p, error, refetch } = useQuery(pairingQuery(id))
  const [approval, setApproval] = useState<PairingApproval>()
  const end = pairingEnd(p?.status, p ? undefined : error)
  if (end) {
    return (
      <Frame title={end.title} foot={<Link className="button" href="/ui/runners">See the runners</Link>}>
        <div className="pair-body">
          <p className="dim row">
            <CircleSlash size={18} className="ink-mute" aria-hidden />
            <span className="grow">{end.text}</span>
          </p>
        </div>
      </Frame>
    )
  }
  if (!p) {
    return (
      <Frame title="Connect a computer">
        <div className="pair-body">{error ? <ErrorNote error={error} retry={() => void refetch()} /> : <Skeleton rows={4} />}</div>
      </Frame>
    )
  }
  if (p.status === 'pending') return <Question p={p} onApproved={setApproval} />
  return <Follow p={p} approval={approval} onApproval={setApproval} />
}

function Question({ p, onApproved }: { p: Pairing; onApproved: (a: PairingApproval) => void }) {
  const { busy, error, act } = useAct()
  const may = useMay('viewer', 'write')
  const query = pairingQuery(p.id)
  const decide = (what: 'approve' | 'deny') =>
    act(what, async () => {
      try {
        if (what === 'deny') {
          client.setQueryData(query.queryKey, await change<Pairing>('POST', `/pairings/${seg(p.id)}/deny`))
          return
        }
        const a = await change<PairingApproval>('POST', `/pairings/${seg(p.id)}/approve`)
        onApproved(a)
        client.setQueryData(query.queryKey, a.pairing)
        const back = loopbackCallback(a.callback)
        if (back) location.assign(back)
      } catch (e) {
        // It was decided elsewhere, or took too long: the page says which.
        if (reasonOf(e)) await client.invalidateQueries({ queryKey: query.queryKey })
        throw e
      }
    })
  const system = [p.os, p.arch].filter(Boolean).join(' · ')
  return (
    <Frame
      title="Connect this computer?"
      foot={
        <>
          <TimeLeft p={p} />
          <span className="grow" />
          <Button look="tall" busy={busy === 'deny'} disabled={busy !== '' || !may} onClick={() => void decide('deny')}>
            Deny
          </Button>
          <Button look="primary tall" busy={busy === 'approve'} disabled={busy !== '' || !may} onClick={() => void decide('approve')}>
            Approve
          </Button>
        </>
      }
    >
      <div className="pair-body">
        <p>
          <strong className="wrap">{p.label}</strong> asks to become a runner of yours.
        </p>
        <div className="pair-number">
          <Digits value={p.number} />
          <p>
            Compare it with the number on the computer. <strong>If it differs, deny.</strong>
          </p>
        </div>
        {p.headless && (
          <div className="note warn" role="note">
            <AlertTriangle size={16} aria-hidden />
            <div className="grow">
              <strong>Somebody may have sent you here.</strong> Approve only what you started yourself a moment ago, on a machine that you see: whoever runs it gets your runs, with what is in them.
            </div>
          </div>
        )}
        <Facts>
          <Fact name="Computer">{p.hostname || p.label}</Fact>
          {system && <Fact name="System">{system}</Fact>}
          <Fact name="Asks from">
            <code>{p.from}</code>
          </Fact>
          {p.version && <Fact name="Version">{p.version}</Fact>}
          {p.capabilities.length > 0 && (
            <Fact name="Offers">
              <span className="tags">
                {p.capabilities.map((c) => (
                  <span key={c} className="tag">
                    {c}
                  </span>
                ))}
              </span>
            </Fact>
          )}
        </Facts>
        <div className="stack tight">
          <h2>What it will be allowed to do</h2>
          <ul className="may">
            <li>
              <Check size={15} className="ink-good" aria-hidden />
              <span>Take your own runs, with the secrets that they name, and send back what happened.</span>
            </li>
            <li>
              <AlertTriangle size={15} className="ink-warn" aria-hidden />
              <span>A run that names no image acts as the user of that computer, with that user’s files and logins.</span>
            </li>
            <li>
              <X size={15} className="ink-mute" aria-hidden />
              <span>Nothing else of the workspace: no other person’s runs, no secrets beyond those, no settings.</span>
            </li>
          </ul>
        </div>
        {!may && <div className="note warn">Your key may only read. Sign in with one that may write to decide.</div>}
        <ErrorNote error={error} />
      </div>
    </Frame>
  )
}

/** How long a request is good, from what was last said of it. */
function TimeLeft({ p }: { p: Pairing }) {
  const [until, setUntil] = useState(() => Date.now() + p.expiresInSec * 1000)
  useEffect(() => setUntil(Date.now() + p.expiresInSec * 1000), [p])
  const now = useNow()
  return (
    <span className="faint tnum" role="timer" aria-live="off">
      {left(until - now)} left
    </span>
  )
}

/** After the approval: the way back to the machine, and then until it is online. */
function Follow({ p, approval, onApproval }: { p: Pairing; approval: PairingApproval | undefined; onApproval: (a: PairingApproval) => void }) {
  const { data: runners } = useQuery({ ...ownRunnersQuery, enabled: p.status === 'done', refetchInterval: 2000 })
  const { busy, error, act } = useAct()
  if (p.status === 'done') {
    const online = runners?.find((r) => r.id === p.runner)?.online
    return (
      <Frame title={online ? 'Connected' : 'Approved'} foot={<Link className="button" href="/ui/runners">See the runners</Link>}>
        <div className="pair-body">
          <p className="row" role="status">
            {online ? <CheckCircle2 size={18} className="ink-good" aria-hidden /> : <LoaderCircle size={18} className="spin ink-active" aria-hidden />}
            <span className="grow">
              <strong className="wrap">{p.label}</strong> {online ? 'is online and takes your runs.' : 'is a runner of yours; waiting for it to come online…'}
            </span>
          </p>
          <p className="dim">You can close this page.</p>
        </div>
      </Frame>
    )
  }
  const link = appLink(approval?.link)
  const callback = loopbackCallback(approval?.callback)
  const deny = () =>
    void act('deny', async () => {
      client.setQueryData(pairingQuery(p.id).queryKey, await change<Pairing>('POST', `/pairings/${seg(p.id)}/deny`))
    })
  // Whoever comes back from a callback that failed has a new page, which asks for the way once more.
  const again = () =>
    void act('again', async () => {
      const a = await change<PairingApproval>('POST', `/pairings/${seg(p.id)}/approve`)
      onApproval(a)
      const to = appLink(a.link)
      if (to) location.assign(to)
    })
  return (
    <Frame
      title="Approved"
      foot={
        <>
          <TimeLeft p={p} />
          <span className="grow" />
          <Button look="bare" busy={busy === 'deny'} disabled={busy !== ''} onClick={deny}>
            Deny after all
          </Button>
        </>
      }
    >
      <div className="pair-body">
        <p className="row" role="status">
          <LoaderCircle size={18} className="spin ink-active" aria-hidden />
          <span className="grow">
            Waiting for <strong className="wrap">{p.label}</strong> to take it up…
          </span>
        </p>
        {p.headless ? (
          <p className="dim">It asks every few seconds. You can close this page.</p>
        ) : (
          <>
            <p className="dim">The browser goes back to the app by itself. If nothing happens:</p>
            <div className="row wraps">
              {link ? (
                <a className="button primary" href={link}>
                  Return to the app
                </a>
              ) : (
                <Button look="primary" busy={busy === 'again'} disabled={busy !== ''} onClick={again}>
                  Return to the app
                </Button>
              )}
              {callback && (
                <a className="button" href={callback}>
                  Try the first way again
                </a>
              )}
            </div>
          </>
        )}
        <ErrorNote error={error} />
      </div>
    </Frame>
  )
}
