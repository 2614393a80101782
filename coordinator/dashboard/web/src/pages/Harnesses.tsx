import { useQuery } from '@tanstack/react-query'
import { AlertTriangle, Boxes, Plus } from 'lucide-react'
import { useState, type FormEvent } from 'react'
import { Link, useLocation } from 'wouter'
import { useMay } from '../app/session'
import { change, seg } from '../data/client'
import { plural } from '../data/format'
import { builtins, isBuiltin } from '../data/builtin'
import { client, harnessDiffQuery, harnessesQuery, harnessQuery } from '../data/queries'
import type { HarnessEntry, Registered, Validation } from '../data/types'
import { visible } from '../run/patch'
import { DataTable, type Column } from '../ui/DataTable'
import { ListPage } from '../ui/ListPage'
import { Ago, Button, Confirm, cx, Dialog, Empty, ErrorNote, Field, Skeleton, Snippet } from '../ui/parts'
import { toast } from '../ui/toast'
import { parseJson, useAct } from '../ui/useAct'
import { useTitle } from './title'

export function Harnesses() {
  const { data, error, refetch } = useQuery(harnessesQuery)
  const [adding, setAdding] = useState(false)
  const [find, setFind] = useState('')
  const [, navigate] = useLocation()
  const may = useMay('viewer', 'write')
  const rows = [...(data ?? []), ...(data ? builtins(data) : [])].filter((h) => h.id.toLowerCase().includes(find.trim().toLowerCase()))
  const columns: Column<HarnessEntry>[] = [
    {
      id: 'id',
      header: 'Harness',
      by: (h) => h.id,
      cell: (h) => (
        <Link href={`/ui/harnesses/${seg(h.id)}`} className="run-link">
          {h.id}
        </Link>
      ),
    },
    { id: 'kind', header: 'Kind', by: (h) => h.kind, cell: (h) => <span className="tag">{h.kind ?? h.category ?? '–'}</span> },
    { id: 'latest', header: 'Latest', by: (h) => h.latestVersion, cell: (h) => <code>{h.latestVersion}</code> },
    { id: 'versions', header: 'Versions', numeric: true, by: (h) => h.versionCount, cell: (h) => h.versionCount },
    { id: 'owner', header: 'From', by: (h) => h.owner, cell: (h) => <span className="dim">{isBuiltin(h) ? 'comes with Everdict' : (h.latestCreatedBy ?? h.createdBy ?? 'this workspace')}</span> },
    { id: 'updated', header: 'Changed', by: (h) => Date.parse(h.updatedAt) || 0, cell: (h) => (isBuiltin(h) ? <span className="faint">–</span> : <Ago at={h.updatedAt} />) },
  ]
  return (
    <ListPage
      title="Harnesses"
      sub={data?.length === 0 ? 'none of your own yet' : data && `${plural(data.length, 'harness', 'harnesses')} of your own`}
      rows={data}
      error={error}
      retry={() => void refetch()}
      search={{ label: 'Find a harness', value: find, onChange: setFind }}
      actions={
        may && (
          <Button look="primary" onClick={() => setAdding(true)}>
            <Plus size={15} aria-hidden /> Register a harness
          </Button>
        )
      }
      beside={adding && <Register onClose={() => setAdding(false)} />}
    >
      {rows.length === 0 ? (
        <Empty icon={Boxes} title="No harness matches" actions={<Button onClick={() => setFind('')}>Clear the search</Button>} />
      ) : (
        <DataTable label="Harnesses" rows={rows} columns={columns} id={(h) => h.id} onOpen={(h) => navigate(`/ui/harnesses/${seg(h.id)}`)} />
      )}
    </ListPage>
  )
}

const example = {
  kind: 'command',
  id: 'my-agent',
  version: '1.0.0',
  description: 'Writes its task into a file. Stands in for a command line of your own.',
  command: "printf '%s\\n' {{task}} > note.txt && echo wrote note.txt",
  trace: { kind: 'none' },
}

function Register({ onClose, from }: { onClose: () => void; from?: unknown }) {
  const [, navigate] = useLocation()
  const [json, setJson] = useState(JSON.stringify(from ?? example, null, 2))
  const { busy, error, act } = useAct()
  const [valid, setValid] = useState<Validation>()
  const check = () =>
    act('check', async () => {
      setValid(undefined)
      setValid(await change<Validation>('POST', '/harnesses/validate', parseJson(json)))
    })
  const submit = (e: FormEvent) => {
    e.preventDefault()
    void act('register', async () => {
      const r = await change<Registered>('POST', '/harnesses', parseJson(json))
      void client.invalidateQueries({ queryKey: ['harnesses'] })
      toast.done(`${r.id} ${r.version} is registered.`)
      onClose()
      navigate(`/ui/harnesses/${seg(r.id)}`)
    })
  }
  return (
    <Dialog
      title={from ? 'Register a new version' : 'Register a harness'}
      onClose={onClose}
      foot={
        <>
          <Button busy={busy === 'check'} disabled={busy !== ''} onClick={() => void check()}>
            Check
          </Button>
          <span className="grow" />
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" form="register-harness" busy={busy === 'register'} disabled={busy !== ''}>
            Register
          </Button>
        </>
      }
    >
      <form id="register-harness" className="stack wide" onSubmit={submit}>
        <Field label="Specification" hint="A command line, or an instance of a template. A registered version never changes: give a changed one another version.">
          {(id) => <textarea id={id} className="textarea" rows={18} spellCheck={false} value={json} onChange={(e) => setJson(e.target.value)} />}
        </Field>
        {valid && (
          <div className={cx('note', valid.ok ? 'good' : 'error')} role="status">
            {!valid.ok && <AlertTriangle size={16} aria-hidden />}
            <ul className="stack tight grow">
              {valid.ok ? <li>It can be registered{valid.versionExists ? '; this version is there already' : ''}.</li> : (valid.errors ?? []).map((e, i) => <li key={i} className="wrap">{e}</li>)}
            </ul>
          </div>
        )}
        <ErrorNote error={error} />
      </form>
    </Dialog>
  )
}

export function Harness({ id }: { id: string }) {
  useTitle(id)
  const { data: all, error } = useQuery(harnessesQuery)
  const entry = all && [...all, ...builtins(all)].find((h) => h.id === id)
  const [chosen, setVersion] = useState('')
  const version = chosen || entry?.latestVersion || ''
  const [base, setBase] = useState('')
  const { data: spec, error: specError } = useQuery({ ...harnessQuery(id, version), enabled: version !== '' })
  const [adding, setAdding] = useState(false)
  const [deleting, setDeleting] = useState(false)
  const [failed, setFailed] = useState<unknown>()
  const may = useMay('viewer', 'write')
  if (error) return <div className="page"><ErrorNote error={error} /></div>
  if (!all) return <div className="page"><Skeleton rows={8} /></div>
  if (!entry) {
    return (
      <div className="page">
        <Empty icon={Boxes} title={`There is no harness ${id}`} actions={<Link className="button" href="/ui/harnesses">All harnesses</Link>}>
          Not in this workspace. A deleted version is hidden; runs that used it keep it.
        </Empty>
      </div>
    )
  }
  const others = entry.versions.filter((v) => v !== version)
  return (
    <div className="page">
      <div className="page-head">
        <Link href="/ui/harnesses" className="faint">
          Harnesses
        </Link>
        <span className="faint" aria-hidden>
          /
        </span>
        <h1>{id}</h1>
        <div className="actions">
          <Link className="button" href={`/ui/runs?harness=${seg(id)}`}>
            Its runs
          </Link>
          {may && !isBuiltin(entry) && spec && (
            <Button onClick={() => setAdding(true)}>
              <Plus size={15} aria-hidden /> New version
            </Button>
          )}
        </div>
      </div>
      <div className="two-cols">
        <nav className="card versions" aria-label="Versions">
          <div className="card-head">
            <h2>Versions</h2>
          </div>
          <ul>
            {entry.versions.map((v) => (
              <li key={v}>
                <button type="button" data-row="" aria-current={v === version ? 'true' : undefined} onClick={() => setVersion(v)}>
                  <code className="grow clip">{v}</code>
                  {(entry.versionTags?.[v] ?? []).map((t) => (
                    <span key={t} className="tag">
                      {t}
                    </span>
                  ))}
                  {v === entry.latestVersion && <span className="tag">latest</span>}
                </button>
              </li>
            ))}
          </ul>
        </nav>
        <div className="stack wide">
          <section className="card" aria-label="Specification">
            <div className="card-head">
              <h2 className="grow">
                {id}@{version}
              </h2>
              {!isBuiltin(entry) && may && (
                <Button look="bare small danger" onClick={() => setDeleting(true)}>
                  Delete this version
                </Button>
              )}
            </div>
            <div className="card-body stack">
              {spec?.description && <p className="dim">{spec.description}</p>}
              <ErrorNote error={specError} />
              {spec ? <Snippet label="Specification" text={JSON.stringify(spec, null, 2)} /> : !specError && <Skeleton rows={3} />}
            </div>
          </section>
          {others.length > 0 && (
            <section className="card" aria-label="Compare">
              <div className="card-head">
                <h2>What changed</h2>
                <span className="faint">from</span>
                <select className="select version-select" aria-label="Compare with" value={base} onChange={(e) => setBase(e.target.value)}>
                  <option value="">choose a version</option>
                  {others.map((v) => (
                    <option key={v} value={v}>
                      {v}
                    </option>
                  ))}
                </select>
                <span className="faint">to {version}</span>
              </div>
              {base && base !== version ? <Changes id={id} base={base} candidate={version} /> : <p className="card-body dim">Choose the version to compare with.</p>}
            </section>
          )}
        </div>
      </div>
      {adding && spec && <Register from={{ ...spec, version: nextVersion(entry.latestVersion) }} onClose={() => setAdding(false)} />}
      {deleting && (
        <Confirm
          title={`Delete ${id}@${version}?`}
          action="Delete"
          error={failed}
          onClose={() => setDeleting(false)}
          onConfirm={() => {
            change('DELETE', `/harnesses/${seg(id)}/versions/${seg(version)}`)
              .then(() => {
                setDeleting(false)
                setVersion('')
                toast.done(`${id}@${version} was deleted.`)
                return client.invalidateQueries({ queryKey: ['harnesses'] })
              })
              .catch(setFailed)
          }}
        >
          New runs cannot name it any more. Runs that used it keep what they resolved.
        </Confirm>
      )}
    </div>
  )
}

/** 1.0.0 -> 1.0.1; a version of another form gets a suffix. */
export function nextVersion(v: string): string {
  const m = /^(.*?)(\d+)$/.exec(v)
  return m ? `${m[1]}${Number(m[2]) + 1}` : `${v}.1`
}

function Changes({ id, base, candidate }: { id: string; base: string; candidate: string }) {
  const { data, error, refetch } = useQuery(harnessDiffQuery(id, base, candidate))
  if (error) return <ErrorNote error={error} retry={() => void refetch()} />
  if (!data) return <Skeleton rows={3} />
  if (data.changes.length === 0) return <p className="card-body dim">Nothing: the two say the same.</p>
  const text = (v: unknown) => (v === undefined || v === null ? '' : visible(typeof v === 'string' ? v : JSON.stringify(v, null, 2)))
  return (
    <div className="table-scroll">
      <table className="table spec-diff">
        <thead>
          <tr>
            <th>Field</th>
            <th>{base}</th>
            <th>{candidate}</th>
          </tr>
        </thead>
        <tbody>
          {data.changes.map((c) => (
            <tr key={c.path}>
              <td>
                <code>{c.path}</code>
              </td>
              <td className={cx(c.base !== undefined && 'was')}>{c.base === undefined ? <span className="faint">not there</span> : <pre>{text(c.base)}</pre>}</td>
              <td className={cx(c.candidate !== undefined && 'is')}>{c.candidate === undefined ? <span className="faint">not there</span> : <pre>{text(c.candidate)}</pre>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
