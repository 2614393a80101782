import { useQuery } from '@tanstack/react-query'
import { KeyRound, Plus } from 'lucide-react'
import { useState, type FormEvent } from 'react'
import { useMay } from '../app/session'
import { change, seg } from '../data/client'
import { plural } from '../data/format'
import { client, keysQuery } from '../data/queries'
import type { IssuedKey, Key } from '../data/types'
import { DataTable, type Column } from '../ui/DataTable'
import { ListPage } from '../ui/ListPage'
import { Ago, Button, Confirm, Dialog, Empty, ErrorNote, Field, Snippet } from '../ui/parts'
import { toast } from '../ui/toast'

const scopes = [
  ['read', 'see everything that you may see'],
  ['write', 'also submit, decide, register and connect'],
  ['admin', 'also secrets and settings of the workspace, if your role allows it'],
] as const

export function ApiKeys() {
  const { data, error, refetch } = useQuery(keysQuery)
  const [making, setMaking] = useState(false)
  const [ending, setEnding] = useState<Key>()
  const [failed, setFailed] = useState<unknown>()
  const may = useMay('viewer', 'write')
  const manages = useMay('admin', 'admin') // and so is shown everybody's
  const columns: Column<Key>[] = [
    { id: 'label', header: 'Name', by: (k) => k.label, cell: (k) => k.label || <span className="faint">without a name</span> },
    { id: 'prefix', header: 'Key', cell: (k) => <code>{k.prefix}…</code> },
    {
      id: 'of',
      header: 'Acts as',
      by: (k) => k.subject,
      cell: (k) => (
        <>
          {k.subject} <span className="dim">{k.role}</span>
        </>
      ),
    },
    {
      id: 'scopes',
      header: 'May',
      by: (k) => k.scopes?.join(' '),
      cell: (k) => (
        <span className="tags">
          {(k.scopes ?? ['everything of its owner']).map((s) => (
            <span key={s} className="tag">
              {s}
            </span>
          ))}
        </span>
      ),
    },
    { id: 'created', header: 'Made', by: (k) => Date.parse(k.createdAt), cell: (k) => <Ago at={k.createdAt} /> },
    {
      id: 'act',
      header: '',
      cell: (k) => (
        <div className="row end">
          <Button look="bare small danger" onClick={() => setEnding(k)}>
            End
          </Button>
        </div>
      ),
    },
  ]
  const add = may && (
    <Button look="primary" onClick={() => setMaking(true)}>
      <Plus size={15} aria-hidden /> Make a key
    </Button>
  )
  return (
    <ListPage
      title="API keys"
      sub={data && `${plural(data.length, 'key')} of ${manages ? 'this workspace' : 'yours'}`}
      rows={data}
      error={error}
      retry={() => void refetch()}
      actions={add}
      beside={
        <>
          {making && <Make onClose={() => setMaking(false)} />}
          {ending && (
            <Confirm
              title={`End ${ending.label || ending.prefix + '…'}?`}
              action="End the key"
              error={failed}
              onClose={() => {
                setEnding(undefined)
                setFailed(undefined)
              }}
              onConfirm={() => {
                change('DELETE', `/keys/${seg(ending.id)}`)
                  .then(() => {
                    setEnding(undefined)
                    toast.done('The key was ended.')
                    return client.invalidateQueries({ queryKey: ['keys'] })
                  })
                  .catch(setFailed)
              }}
            >
              Whatever uses it gets a 401 at once, and sessions that were opened with it end.
            </Confirm>
          )}
        </>
      }
    >
      {data?.length === 0 ? (
        <Empty icon={KeyRound} title="You have no key" actions={add}>
          With a key, curl, the CLI and CI act as you: <code>Authorization: Bearer ak_…</code>
        </Empty>
      ) : (
        <DataTable label="API keys" rows={data ?? []} columns={columns} id={(k) => k.id} sort={{ id: 'created', desc: true }} />
      )}
    </ListPage>
  )
}

function Make({ onClose }: { onClose: () => void }) {
  const [issued, setIssued] = useState<IssuedKey>()
  const [error, setError] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const submit = async (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const form = new FormData(e.currentTarget)
    setBusy(true)
    setError(undefined)
    try {
      setIssued(await change<IssuedKey>('POST', '/keys', { label: String(form.get('label')).trim(), scopes: [String(form.get('scope'))] }))
      void client.invalidateQueries({ queryKey: ['keys'] })
    } catch (cause) {
      setError(cause)
    }
    setBusy(false)
  }
  return (
    <Dialog
      title={issued ? 'Your new key' : 'Make a key'}
      narrow
      onClose={onClose}
      foot={
        issued ? (
          <Button look="primary" onClick={onClose}>
            Done
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Cancel</Button>
            <Button look="primary" type="submit" form="make-key" busy={busy}>
              Make
            </Button>
          </>
        )
      }
    >
      {issued ? (
        <>
          <div className="note warn">It is shown this once. Keep it where your other credentials are.</div>
          <Snippet wrapped label="Key" text={issued.apiKey} />
        </>
      ) : (
        <form id="make-key" className="stack wide" onSubmit={(e) => void submit(e)}>
          <Field label="Name" hint="What it is for.">
            {(id) => <input id={id} name="label" className="input" maxLength={100} placeholder="ci" autoComplete="off" />}
          </Field>
          <fieldset className="radios">
            <legend>It may</legend>
            {scopes.map(([v, text]) => (
              <label key={v} className="check">
                <input type="radio" name="scope" value={v} defaultChecked={v === 'write'} />
                <span>
                  <strong>{v}</strong> <span className="dim">{text}</span>
                </span>
              </label>
            ))}
          </fieldset>
          <ErrorNote error={error} />
        </form>
      )}
    </Dialog>
  )
}
