/** Connects a machine: by the desktop app, by a command that shows a code, or by a token for what no person starts. */
import { useQuery } from '@tanstack/react-query'
import { AlertTriangle, CheckCircle2, LoaderCircle, MonitorDown } from 'lucide-react'
import { useEffect, useState, type FormEvent } from 'react'
import { useMay } from '../app/session'
import { change } from '../data/client'
import { appLink, codeOpen, left, pairCodeQuery, reasonOf } from '../data/pairing'
import { client, ownRunnersQuery, runnersQuery } from '../data/queries'
import type { PairCode, Paired } from '../data/types'
import { shellWord } from '../run/curl'
import { Digits } from '../ui/Digits'
import { Button, ErrorNote, Field, Snippet, useNow } from '../ui/parts'
import { useAct } from '../ui/useAct'

/** A page does not learn whether anything opened a link: after so long without a word it names the other ways. */
const patience = 3000

interface Props {
  compact?: boolean
  onDone?: () => void
}

export function Connect({ compact, onDone }: Props) {
  const [code, setCode] = useState<PairCode>()
  const [paired, setPaired] = useState<Paired>()
  const { busy, error, act } = useAct()
  const open = () =>
    act('code', async () => {
      const made = await change<PairCode>('POST', '/pair-codes')
      setCode(made)
      const link = appLink(made.link)
      if (link) location.assign(link)
    })
  const done = onDone ? { onDone } : {}
  if (paired) return <Commands paired={paired} {...done} />
  if (code) return <ByApp key={code.id} made={code} again={() => void open()} busy={busy !== ''} error={error} {...done} />
  return (
    <div className="stack wide">
      <div className="row wraps">
        <Button look="primary" busy={busy !== ''} onClick={() => void open()}>
          <MonitorDown size={15} aria-hidden /> Open the Everdict app
        </Button>
        <span className="faint">It asks you, and then this computer takes your runs.</span>
      </div>
      <ErrorNote error={error} />
      <Headless />
      <details className="ways">
        <summary>With a token, for automation</summary>
        <TokenForm compact={compact ?? false} onPaired={setPaired} />
      </details>
      {!compact && (
        <p className="faint">
          A run that names no image is carried out as the user who starts the runner, with that user’s logins and files. Give it a user of its own where you do not trust who submits.
        </p>
      )}
    </div>
  )
}

/** A machine without a screen, or without the app: the command shows a code, which is typed in at /ui/pair. */
function Headless() {
  return (
    <div className="stack tight">
      <span className="dim">Without the app, or on a server: this shows a code and where to type it in.</span>
      <Snippet wrapped label="Command for a machine without the app" text={`everdict runner --pair --api-url ${shellWord(location.origin)}`} />
    </div>
  )
}

/** A link was followed. What became of it, the coordinator says. */
function ByApp({ made, again, busy, error, onDone }: { made: PairCode; again: () => void; busy: boolean; error: unknown; onDone?: () => void }) {
  const { data, error: lost } = useQuery({ ...pairCodeQuery(made.id), initialData: made })
  const [late, setLate] = useState(false)
  const [until] = useState(() => Date.now() + made.expiresInSec * 1000)
  const now = useNow()
  useEffect(() => {
    const t = setTimeout(() => setLate(true), patience)
    return () => clearTimeout(t)
  }, [])
  const runner = data.runner
  const { data: runners } = useQuery({ ...ownRunnersQuery, enabled: runner !== undefined, refetchInterval: 2000 })
  const online = runner && (runners?.find((r) => r.id === runner.id) ?? runner).online
  const status = reasonOf(lost) === 'expired' ? 'expired' : data.status
  useEffect(() => {
    if (!codeOpen(data)) void client.invalidateQueries({ queryKey: ['runners'] })
  }, [data])

  if (runner) {
    return (
      <div className="stack wide" data-testid="pair-code">
        <div className="row" role="status">
          {online ? <CheckCircle2 size={16} className="ink-good" aria-hidden /> : <LoaderCircle size={16} className="spin ink-active" aria-hidden />}
          <span className="grow">
            <strong className="wrap">{runner.label}</strong> {online ? 'is online and takes your runs.' : 'is a runner of yours; waiting for it to come online…'}
          </span>
          {onDone && (
            <Button look={online ? 'primary' : ''} onClick={onDone}>
              Done
            </Button>
          )}
        </div>
      </div>
    )
  }
  if (status === 'spoilt' || status === 'expired') {
    return (
      <div className="stack wide" data-testid="pair-code">
        <div className="note error" role="alert">
          <AlertTriangle size={16} aria-hidden />
          <div className="grow">
            {status === 'spoilt' ? (
              <>
                <strong>A wrong number was typed in.</strong> The link is worthless now and nothing was connected. If that was not you, somebody else had the link.
              </>
            ) : (
              <>
                <strong>No app came within five minutes.</strong> The link is worthless now and nothing was connected.
              </>
            )}
          </div>
          <Button look="small" busy={busy} onClick={again}>
            Try again
          </Button>
        </div>
        <ErrorNote error={error} />
        <Headless />
      </div>
    )
  }
  const link = appLink(made.link)
  return (
    <div className="stack wide" data-testid="pair-code">
      <div className="pair-number">
        <Digits value={made.number} />
        <p>
          Type this number into the app, which asks whether to connect this computer.
          <span className="faint block-line" role="status">
            {status === 'used' ? 'The app has come with it…' : `Waiting for the app, ${left(until - now)} left`}
          </span>
        </p>
      </div>
      <ErrorNote error={lost} />
      {late && status === 'waiting' && (
        <div className="note">
          <div className="grow stack">
            <strong>Nothing happened?</strong>
            <span>
              If the browser asks whether to open Everdict, allow it.{' '}
              {link && (
                <>
                  Or <a href={link}>open the app once more</a>.
                </>
              )}{' '}
              If the app is not installed, get <code>everdict-desktop</code> from where this coordinator’s <code>everdict</code> came from, start it once, and try again.
            </span>
            <Headless />
          </div>
        </div>
      )}
    </div>
  )
}

function TokenForm({ compact, onPaired }: { compact: boolean; onPaired: (p: Paired) => void }) {
  const { busy, error, act } = useAct()
  const admin = useMay('admin', 'admin')
  const submit = (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const form = new FormData(e.currentTarget)
    void act('token', async () => {
      const body = { label: String(form.get('label')).trim(), capabilities: ['git'] }
      onPaired(await change<Paired>('POST', form.get('whose') === 'workspace' ? '/workspace/runners' : '/runners', body))
      void client.invalidateQueries({ queryKey: ['runners'] })
    })
  }
  return (
    <form className="stack" onSubmit={submit}>
      <div className="row wraps align-end">
        <Field label="Name of the machine">{(id) => <input id={id} name="label" className="input" required maxLength={100} placeholder="my-laptop" autoComplete="off" />}</Field>
        {!compact && admin && (
          <Field label="Whose runs it takes">
            {(id) => (
              <select id={id} name="whose" className="select">
                <option value="own">mine only</option>
                <option value="workspace">everybody’s in the workspace</option>
              </select>
            )}
          </Field>
        )}
        <Button type="submit" busy={busy !== ''}>
          Make a token
        </Button>
      </div>
      <ErrorNote error={error} />
    </form>
  )
}

/** The commands for a machine with a token. The token goes in on standard input, never as an argument. */
export function Commands({ paired, onDone }: { paired: Paired; onDone?: () => void }) {
  const { data: runners } = useQuery({ ...runnersQuery, refetchInterval: 3000 })
  const online = runners?.find((r) => r.id === paired.runner.id)?.online
  const [headless, setHeadless] = useState(false)
  const base = `everdict runner --pair - --api-url ${shellWord(location.origin)}`
  const service = `install -m 600 /dev/stdin ./everdict-token <<'TOKEN'
${paired.token}
TOKEN
everdict runner --pair file:./everdict-token --api-url ${shellWord(location.origin)} &
sleep 5 && rm ./everdict-token   # it has kept it by then`
  return (
    <div className="stack wide" data-testid="pairing">
      <div className="note warn">
        <div className="grow">The token is shown this once. It lets a machine take your runs, and nothing else.</div>
      </div>
      <div className="stack">
        <h4>On the machine</h4>
        <Snippet wrapped label="Command" text={`${base} <<'TOKEN'\n${paired.token}\nTOKEN`} />
      </div>
      <div>
        <Button look="bare small" aria-expanded={headless} onClick={() => setHeadless(!headless)}>
          {headless ? 'Hide' : 'Show'} the commands for a server, in the background
        </Button>
        {headless && (
          <div className="stack">
            <Snippet wrapped label="Commands for a server" text={service} />
            <p className="faint">Later starts need no token: everdict runner --api-url {location.origin}</p>
          </div>
        )}
      </div>
      <div className="row" role="status">
        {online ? (
          <>
            <CheckCircle2 size={16} className="ink-good" aria-hidden /> <strong>{paired.runner.label} is online.</strong>
          </>
        ) : (
          <>
            <LoaderCircle size={16} className="spin ink-active" aria-hidden /> Waiting for {paired.runner.label} to connect…
          </>
        )}
        {onDone && (
          <>
            <span className="grow" />
            <Button look={online ? 'primary' : ''} onClick={onDone}>
              Done
            </Button>
          </>
        )}
      </div>
    </div>
  )
}
