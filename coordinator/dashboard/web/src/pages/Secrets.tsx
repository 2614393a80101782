import { useQuery } from '@tanstack/react-query'
import { LockKeyhole, Plus } from 'lucide-react'
import { useState, type FormEvent } from 'react'
import { Link } from 'wouter'
import { useMay } from '../app/session'
import { change, query, seg } from '../data/client'
import { plural } from '../data/format'
import { client, ownSecretsQuery, secretsQuery } from '../data/queries'
import type { SecretUsage } from '../data/types'
import { DataTable, type Column } from '../ui/DataTable'
import { ListPage } from '../ui/ListPage'
import { Ago, Button, Confirm, Dialog, Empty, ErrorNote, Field } from '../ui/parts'
import { toast } from '../ui/toast'

type Row = Omit<SecretUsage, 'refs'> & { refs?: SecretUsage['refs'] }

export function Secrets() {
  const admin = useMay('admin', 'admin')
  const usage = useQuery({ ...secretsQuery, enabled: admin })
  const own = useQuery({ ...ownSecretsQuery, enabled: !admin })
  const { data, error, refetch } = (admin ? usage : own) as { data: Row[] | undefined; error: Error | null; refetch: () => void }
  const [setting, setSetting] = useState<Row | 'new'>()
  const [deleting, setDeleting] = useState<Row>()
  const [find, setFind] = useState('')
  const rows = (data ?? []).filter((s) => s.name.toLowerCase().includes(find.trim().toLowerCase()))
  const columns: Column<Row>[] = [
    { id: 'name', header: 'Name', by: (s) => s.name, cell: (s) => <code className="strong">{s.name}</code> },
    { id: 'scope', header: 'Whose', by: (s) => s.scope, cell: (s) => <span className="tag">{s.scope === 'user' ? 'mine' : 'workspace'}</span> },
    { id: 'refs', header: 'Used by', by: (s) => s.refs?.length ?? 0, cell: (s) => <Refs s={s} /> },
    { id: 'updated', header: 'Set', by: (s) => Date.parse(s.updatedAt), cell: (s) => <Ago at={s.updatedAt} /> },
    {
      id: 'act',
      header: '',
      cell: (s) => (
        <div className="row end">
          <Button look="bare small" onClick={() => setSetting(s)}>
            Replace
          </Button>
          <Button look="bare small danger" onClick={() => setDeleting(s)}>
            Delete
          </Button>
        </div>
      ),
    },
  ]
  const add = (
    <Button look="primary" onClick={() => setSetting('new')}>
      <Plus size={15} aria-hidden /> Set a secret
    </Button>
  )
  return (
    <ListPage
      title="Secrets"
      sub={data && `${plural(data.length, 'secret')}; values are never shown`}
      rows={data}
      error={error}
      retry={() => void refetch()}
      search={{ label: 'Find a secret', value: find, onChange: setFind }}
      actions={add}
      beside={
        <>
          {setting && <SetSecret of={setting === 'new' ? undefined : setting} admin={admin} onClose={() => setSetting(undefined)} />}
          {deleting && <Delete s={deleting} onClose={() => setDeleting(undefined)} />}
        </>
      }
    >
      {data?.length === 0 ? (
        <Empty icon={LockKeyhole} title="No secret is set" actions={add}>
          Harnesses and runtimes name a secret; a job gets its value in its environment, and it is masked in everything that is kept of the run.
        </Empty>
      ) : (
        <DataTable label="Secrets" rows={rows} columns={columns} id={(s) => `${s.scope} ${s.name}`} />
      )}
    </ListPage>
  )
}

function Refs({ s }: { s: Row }) {
  if (!s.refs) return <span className="faint">–</span>
  if (s.refs.length === 0) return <span className="faint">nothing</span>
  return (
    <span className="tags">
      {s.refs.slice(0, 4).map((r, i) => {
        const text = r.label
        const href = r.kind === 'runtime' ? `/ui/runtimes/${seg(r.resourceId ?? r.label)}` : r.kind === 'harness' ? `/ui/harnesses/${seg(r.resourceId ?? r.label)}` : undefined
        return href ? (
          <Link key={i} href={href} className="tag" title={`${r.kind}, ${r.field}`}>
            {text}
          </Link>
        ) : (
          <span key={i} className="tag" title={`${r.kind}, ${r.field}`}>
            {text}
          </span>
        )
      })}
      {s.refs.length > 4 && <span className="faint">+{s.refs.length - 4}</span>}
    </span>
  )
}

function SetSecret({ of, admin, onClose }: { of: Row | undefined; admin: boolean; onClose: () => void }) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const submit = async (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const form = e.currentTarget
    const name = of?.name ?? String(new FormData(form).get('name')).trim()
    const value = form.elements.namedItem('value') as HTMLTextAreaElement
    setBusy(true)
    setError(undefined)
    try {
      await change('PUT', `/secrets/${seg(name)}`, { value: value.value, scope: of?.scope ?? String(new FormData(form).get('scope') ?? 'user') })
      value.value = ''
      void client.invalidateQueries({ queryKey: ['secrets'] })
      toast.done(`${name} is set.`)
      onClose()
    } catch (cause) {
      setError(cause)
      setBusy(false)
    }
  }
  return (
    <Dialog
      title={of ? `Replace ${of.name}` : 'Set a secret'}
      narrow
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" form="set-secret" busy={busy}>
            {of ? 'Replace' : 'Set'}
          </Button>
        </>
      }
    >
      <form id="set-secret" className="stack wide" autoComplete="off" onSubmit={(e) => void submit(e)}>
        {!of && (
          <>
            <Field label="Name" hint="How harnesses and runtimes refer to it.">
              {(id) => <input id={id} name="name" className="input mono" required autoComplete="off" placeholder="DEPLOY_TOKEN" />}
            </Field>
            <Field label="Whose">
              {(id) => (
                <select id={id} name="scope" className="select" defaultValue={admin ? 'workspace' : 'user'}>
                  {admin && <option value="workspace">the workspace’s</option>}
                  <option value="user">mine</option>
                </select>
              )}
            </Field>
          </>
        )}
        <Field label="Value" hint="It goes to the coordinator, which seals it, and is never shown again.">
          {(id) => <textarea id={id} name="value" className="textarea" rows={4} required spellCheck={false} autoComplete="off" />}
        </Field>
        <ErrorNote error={error} />
      </form>
    </Dialog>
  )
}

function Delete({ s, onClose }: { s: Row; onClose: () => void }) {
  const [error, setError] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const remove = async () => {
    setBusy(true)
    try {
      await change('DELETE', query(`/secrets/${seg(s.name)}`, { scope: s.scope }))
      void client.invalidateQueries({ queryKey: ['secrets'] })
      toast.done(`${s.name} was deleted.`)
      onClose()
    } catch (e) {
      setError(e)
      setBusy(false)
    }
  }
  return (
    <Confirm title={`Delete ${s.name}?`} action="Delete" busy={busy} error={error} onClose={onClose} onConfirm={() => void remove()}>
      {s.refs?.length ? `${plural(s.refs.length, 'place')} refer to it: their next runs fail until it is set again.` : 'Nothing refers to it.'}
    </Confirm>
  )
}
