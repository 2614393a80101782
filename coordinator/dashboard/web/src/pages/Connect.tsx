/** Connects a machine: a token that is shown once, and the commands that use it. */
import { useQuery } from '@tanstack/react-query'
import { CheckCircle2, LoaderCircle } from 'lucide-react'
import { useState, type FormEvent } from 'react'
import { useMay } from '../app/session'
import { change } from '../data/client'
import { client, runnersQuery } from '../data/queries'
import type { Paired } from '../data/types'
import { shellWord } from '../run/curl'
import { Button, ErrorNote, Field, Snippet } from '../ui/parts'

export function Connect({ compact, onDone }: { compact?: boolean; onDone?: () => void }) {
  const [paired, setPaired] = useState<Paired>()
  const [error, setError] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const admin = useMay('admin', 'admin')
  const submit = async (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const form = new FormData(e.currentTarget)
    setBusy(true)
    setError(undefined)
    try {
      const body = { label: String(form.get('label')).trim(), capabilities: ['git'] }
      setPaired(await change<Paired>('POST', form.get('whose') === 'workspace' ? '/workspace/runners' : '/runners', body))
      void client.invalidateQueries({ queryKey: ['runners'] })
    } catch (cause) {
      setError(cause)
    }
    setBusy(false)
  }
  if (paired) return <Commands paired={paired} {...(onDone ? { onDone } : {})} />
  return (
    <form className="stack wide" onSubmit={(e) => void submit(e)}>
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
        <Button look="primary" type="submit" busy={busy}>
          Make a token
        </Button>
      </div>
      {!compact && (
        <p className="faint">
          A run that names no image is carried out as the user who starts the runner, with that user’s logins and files. Give it a user of its own where you do not trust who submits.
        </p>
      )}
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
