import { useQuery } from '@tanstack/react-query'
import { AlertTriangle, CheckCircle2, Plus, RefreshCw, Server } from 'lucide-react'
import { useState, type FormEvent, type ReactNode } from 'react'
import { Link, useLocation } from 'wouter'
import { useMay } from '../app/session'
import { change, get, seg } from '../data/client'
import { bytes, cores, count, megabytes, plural } from '../data/format'
import { client, poolsQuery, poolTokensQuery, runtimeQuery, runtimesQuery } from '../data/queries'
import type { Inspection, IssuedPoolToken, Pool, PoolToken, Probe, Registered, RuntimeEntry, RuntimeSpec, RuntimeValidation } from '../data/types'
import { DataTable, type Column } from '../ui/DataTable'
import { ListPage } from '../ui/ListPage'
import { Ago, Badge, Button, Confirm, Dialog, Empty, ErrorNote, Field, Meter, Segments, Skeleton, Snippet } from '../ui/parts'
import { toast } from '../ui/toast'
import { parseJson, useAct } from '../ui/useAct'
import { stateOf } from './Runners'
import { useTitle } from './title'

export function Runtimes() {
  const { data, error, refetch } = useQuery(runtimesQuery)
  const { data: pools } = useQuery(poolsQuery)
  const [adding, setAdding] = useState(false)
  const [, navigate] = useLocation()
  const may = useMay('admin', 'write')
  const pool = (id: string) => pools?.find((p) => p.runtime === id)
  const columns: Column<RuntimeEntry>[] = [
    {
      id: 'id',
      header: 'Runtime',
      by: (r) => r.id,
      cell: (r) => (
        <div className="two-lines">
          <Link href={`/ui/runtimes/${seg(r.id)}`} className="run-link clip">
            {r.id}
          </Link>
          <span className="faint">{plural(r.versions.length, 'version')}, latest {r.latestVersion}</span>
        </div>
      ),
    },
    { id: 'kind', header: 'Kind', by: (r) => r.kind, cell: (r) => <span className="tag">{r.kind}</span> },
    {
      id: 'running',
      header: 'Running',
      numeric: true,
      by: (r) => pool(r.id)?.running ?? -1,
      cell: (r) => {
        const p = pool(r.id)
        return p ? `${count(p.running)}/${count(p.maxConcurrent)}` : '–'
      },
    },
    {
      id: 'use',
      header: 'Capacity',
      cell: (r) => {
        const p = pool(r.id)
        return p ? <div className="meter-cell"><Meter value={p.running} max={p.maxConcurrent} label={`${r.id}: running`} /></div> : null
      },
    },
    {
      id: 'memory',
      header: 'Memory budget',
      numeric: true,
      by: (r) => pool(r.id)?.memoryMb ?? -1,
      cell: (r) => {
        const p = pool(r.id)
        return p?.memoryBudgetMb ? `${megabytes(p.memoryMb ?? 0)} of ${megabytes(p.memoryBudgetMb)}` : <span className="faint">no limit</span>
      },
    },
    { id: 'queued', header: 'Waiting', numeric: true, by: (r) => pool(r.id)?.queued ?? 0, cell: (r) => count(pool(r.id)?.queued ?? 0) },
    { id: 'online', header: 'Online', numeric: true, by: (r) => pool(r.id)?.online ?? 0, cell: (r) => count(pool(r.id)?.online ?? 0) },
    { id: 'updated', header: 'Changed', by: (r) => Date.parse(r.updatedAt), cell: (r) => <Ago at={r.updatedAt} /> },
  ]
  const add = may && (
    <Button look="primary" onClick={() => setAdding(true)}>
      <Plus size={15} aria-hidden /> Register a runtime
    </Button>
  )
  return (
    <ListPage title="Runtimes" sub={data && plural(data.length, 'runtime')} rows={data} error={error} retry={() => void refetch()} actions={add} beside={adding && <Register onClose={() => setAdding(false)} />}>
      {data?.length === 0 ? (
        <Empty icon={Server} title="No runtime is registered" actions={add}>
          A runtime is a pool of machines with limits: a Nomad or Kubernetes cluster on which the coordinator starts runners, or machines that join with a token. Machines connected under Runners need none.
        </Empty>
      ) : (
        <DataTable label="Runtimes" rows={data ?? []} columns={columns} id={(r) => r.id} onOpen={(r) => navigate(`/ui/runtimes/${seg(r.id)}`)} />
      )}
    </ListPage>
  )
}

type Kind = RuntimeSpec['kind']

const examples: Record<Kind, Record<string, unknown>> = {
  local: { kind: 'local', id: 'build-machines', version: '1.0.0', description: 'Machines that join with a pool token', maxConcurrent: 8 },
  nomad: { kind: 'nomad', id: 'cluster', version: '1.0.0', addr: 'https://nomad.internal:4646', image: 'ghcr.io/everdict/job-runner:latest', authSecret: 'nomad-acl-token', maxConcurrent: 20 },
  k8s: { kind: 'k8s', id: 'cluster', version: '1.0.0', server: 'https://kubernetes.internal:6443', namespace: 'evals', image: 'ghcr.io/everdict/job-runner:latest', authSecret: 'k8s-token', maxConcurrent: 20 },
}

/** Fields of the form by kind: the common ones. JSON has all. */
const fields: Record<Kind, [name: string, label: string, hint: string, required?: boolean][]> = {
  local: [],
  nomad: [
    ['addr', 'Address', 'of Nomad’s API', true],
    ['image', 'Image', 'with the job runner in it', true],
    ['namespace', 'Namespace', ''],
    ['authSecret', 'Token', 'name of a secret that holds the ACL token'],
    ['runtime', 'Container runtime', 'such as runsc'],
  ],
  k8s: [
    ['server', 'Address', 'of the Kubernetes API, without a kubeconfig'],
    ['namespace', 'Namespace', ''],
    ['image', 'Image', 'with the job runner in it', true],
    ['authSecret', 'Token', 'name of a secret that holds the service account’s token'],
    ['kubeconfigSecret', 'Kubeconfig', 'name of a secret that holds one'],
    ['runtimeClass', 'Runtime class', 'such as gvisor'],
  ],
}

function Register({ onClose }: { onClose: () => void }) {
  const [, navigate] = useLocation()
  const [way, setWay] = useState<'form' | 'json'>('form')
  const [spec, setSpec] = useState<Record<string, unknown>>({ kind: 'local', id: '', version: '1.0.0', maxConcurrent: 20 })
  const [json, setJson] = useState('')
  const { busy, error, act } = useAct()
  const [probe, setProbe] = useState<Probe>()
  const [valid, setValid] = useState<RuntimeValidation>()
  const kind = spec['kind'] as Kind
  const set = (name: string, value: unknown) => {
    const next = { ...spec }
    if (value === '' || value === undefined) delete next[name]
    else next[name] = value
    setSpec(next)
    setProbe(undefined)
    setValid(undefined)
  }
  const body = (): unknown => (way === 'form' ? spec : parseJson(json))
  const test = () =>
    act('probe', async () => {
      setProbe(undefined)
      setValid(undefined)
      const v = await change<RuntimeValidation>('POST', '/runtimes/validate', body())
      if (!v.ok || v.missingSecrets?.length || v.warnings?.length) setValid(v)
      if (v.ok) setProbe(await change<Probe>('POST', '/runtimes/probe', body()))
    })
  const submit = (e: FormEvent) => {
    e.preventDefault()
    void act('register', async () => {
      const r = await change<Registered>('POST', '/runtimes', body())
      void client.invalidateQueries({ queryKey: ['runtimes'] })
      void client.invalidateQueries({ queryKey: ['pools'] })
      toast.done(`${r.id} ${r.version} is registered.`)
      navigate(`/ui/runtimes/${seg(r.id)}`)
    })
  }
  const text = (name: string) => String(spec[name] ?? '')
  return (
    <Dialog
      title="Register a runtime"
      onClose={onClose}
      foot={
        <>
          <Button busy={busy === 'probe'} disabled={busy !== ''} onClick={() => void test()}>
            Probe
          </Button>
          <span className="grow" />
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" form="register-runtime" busy={busy === 'register'} disabled={busy !== ''}>
            Register
          </Button>
        </>
      }
    >
      <form id="register-runtime" className="stack wide" onSubmit={submit}>
        <div>
          <Segments
            label="How to write it"
            value={way}
            options={[
              ['form', 'Form'],
              ['json', 'JSON'],
            ]}
            onChange={(v) => {
              if (v === 'json') setJson(JSON.stringify(spec['id'] ? spec : examples[kind], null, 2))
              setWay(v)
            }}
          />
        </div>
        {way === 'json' ? (
          <Field label="Specification" hint="The body of POST /runtimes: a spec is data, and a version of it never changes.">
            {(id) => <textarea id={id} className="textarea" rows={16} spellCheck={false} value={json} onChange={(e) => setJson(e.target.value)} />}
          </Field>
        ) : (
          <div className="fields">
            <Field label="Kind" span>
              {(id) => (
                <select id={id} className="select" value={kind} onChange={(e) => setSpec({ kind: e.target.value, id: spec['id'] ?? '', version: spec['version'] ?? '1.0.0', maxConcurrent: spec['maxConcurrent'] ?? 20 })}>
                  <option value="local">local: machines that join with a token</option>
                  <option value="nomad">nomad: allocations of a Nomad cluster</option>
                  <option value="k8s">k8s: Pods of a Kubernetes cluster</option>
                </select>
              )}
            </Field>
            <Field label="Id" hint="What runs name.">{(id) => <input id={id} className="input" required value={text('id')} onChange={(e) => set('id', e.target.value)} />}</Field>
            <Field label="Version">{(id) => <input id={id} className="input" required value={text('version')} onChange={(e) => set('version', e.target.value)} />}</Field>
            {fields[kind].map(([name, label, hint, required]) => (
              <Field key={name} label={label} hint={hint}>
                {(id) => <input id={id} className="input" required={required ?? false} value={text(name)} onChange={(e) => set(name, e.target.value.trim())} />}
              </Field>
            ))}
            <Field label="At most at a time" hint="runs">
              {(id) => <input id={id} className="input" type="number" min={1} value={text('maxConcurrent')} onChange={(e) => set('maxConcurrent', e.target.value ? Number(e.target.value) : undefined)} />}
            </Field>
            <Field label="Memory budget" hint="MiB of declared memory in flight; empty: no limit">
              {(id) => <input id={id} className="input" type="number" min={1} value={text('memoryBudgetMb')} onChange={(e) => set('memoryBudgetMb', e.target.value ? Number(e.target.value) : undefined)} />}
            </Field>
            <Field label="CPU budget" hint="thousandths of a core of declared CPU in flight; empty: no limit">
              {(id) => <input id={id} className="input" type="number" min={1} value={text('cpuBudget')} onChange={(e) => set('cpuBudget', e.target.value ? Number(e.target.value) : undefined)} />}
            </Field>
          </div>
        )}
        {valid && !valid.ok && (
          <div className="note error" role="alert">
            <AlertTriangle size={16} aria-hidden />
            <ul className="stack tight grow">
              {(valid.errors ?? ['It is not valid.']).map((e, i) => (
                <li key={i} className="wrap">
                  {e}
                </li>
              ))}
            </ul>
          </div>
        )}
        {valid?.missingSecrets?.length ? (
          <div className="note warn">
            <AlertTriangle size={16} aria-hidden />
            <div className="grow">
              Missing: {valid.missingSecrets.join(', ')}. <Link href="/ui/secrets">Set the secret</Link> first.
            </div>
          </div>
        ) : null}
        {valid?.warnings?.length ? (
          <div className="note warn">
            <AlertTriangle size={16} aria-hidden />
            <ul className="stack tight grow">
              {valid.warnings.map((w, i) => (
                <li key={i} className="wrap">
                  {w}
                </li>
              ))}
            </ul>
          </div>
        ) : null}
        {probe && <ProbeResult p={probe} />}
        <ErrorNote error={error} />
      </form>
    </Dialog>
  )
}

const hints: Record<string, string> = {
  auth: 'The cluster answers and does not accept the credential: set the secret anew, or name the right one.',
  unreachable: 'Nothing answers there: check the address, and that this coordinator’s machine reaches it.',
  error: 'The cluster answered with an error of its own: its log says more.',
}

export function ProbeResult({ p }: { p: Probe }) {
  return (
    <div className={`note ${p.reachable ? 'good' : 'error'}`} role="status" data-testid="probe">
      {p.reachable ? <CheckCircle2 size={16} aria-hidden /> : <AlertTriangle size={16} aria-hidden />}
      <div className="grow stack tight">
        <div className="wrap">
          <strong>{p.reachable ? 'It answers.' : p.reason === 'auth' ? 'It refuses the credential.' : p.reason === 'unreachable' ? 'It cannot be reached.' : 'It does not work.'}</strong> {p.detail}
        </div>
        {!p.reachable && <div className="next">{hints[p.reason ?? 'error'] ?? hints['error']}</div>}
      </div>
    </div>
  )
}

export function Runtime({ id }: { id: string }) {
  useTitle(id)
  const { data: entries, error } = useQuery(runtimesQuery)
  const entry = entries?.find((r) => r.id === id)
  const [version, setVersion] = useState('latest')
  const { data: spec, error: specError } = useQuery({ ...runtimeQuery(id, version), enabled: entry !== undefined })
  const { data: pools } = useQuery({ ...poolsQuery, refetchInterval: 10_000 })
  const pool = pools?.find((p) => p.runtime === id)
  const [probe, setProbe] = useState<Probe>()
  const { busy, error: failed, act } = useAct()
  const test = () => act('probe', async () => setProbe(await change<Probe>('POST', '/runtimes/probe', { id, version: entry?.latestVersion })))
  if (error) return <div className="page"><ErrorNote error={error} /></div>
  if (!entries) return <div className="page"><Skeleton rows={8} /></div>
  if (!entry) {
    return (
      <div className="page">
        <Empty icon={Server} title={`There is no runtime ${id}`} actions={<Link className="button" href="/ui/runtimes">All runtimes</Link>}>
          Not in this workspace.
        </Empty>
      </div>
    )
  }
  return (
    <div className="page">
      <div className="page-head">
        <Link href="/ui/runtimes" className="faint">
          Runtimes
        </Link>
        <span className="faint" aria-hidden>
          /
        </span>
        <h1>{id}</h1>
        <span className="tag">{entry.kind}</span>
        <div className="actions">
          <Link className="button" href={`/ui/runs?runtime=${seg(id)}`}>
            Its runs
          </Link>
          <Button busy={busy === 'probe'} onClick={() => void test()}>
            Probe
          </Button>
        </div>
      </div>
      <ErrorNote error={failed} />
      {probe && <ProbeResult p={probe} />}
      {pool && <Capacity p={pool} />}
      {entry.kind !== 'local' && <Inspect id={id} />}
      {entry.kind === 'local' && <Tokens id={id} />}
      <section className="card" aria-label="Specification">
        <div className="card-head">
          <h2 className="grow">Specification</h2>
          <select className="select version-select" aria-label="Version" value={version} onChange={(e) => setVersion(e.target.value)}>
            <option value="latest">latest ({entry.latestVersion})</option>
            {entry.versions.map((v) => (
              <option key={v} value={v}>
                {v}
              </option>
            ))}
          </select>
        </div>
        <div className="card-body">
          <ErrorNote error={specError} />
          {spec ? <Snippet label="Specification" text={JSON.stringify(spec, null, 2)} /> : !specError && <Skeleton rows={3} />}
        </div>
      </section>
    </div>
  )
}

function Capacity({ p }: { p: Pool }) {
  return (
    <section className="card" aria-label="Capacity">
      <div className="card-head">
        <h2>Capacity</h2>
      </div>
      <div className="card-body capacity">
        <Gauge name="Running" value={count(p.running)} of={count(p.maxConcurrent)}>
          <Meter value={p.running} max={p.maxConcurrent} label="Running" />
        </Gauge>
        {p.memoryBudgetMb ? (
          <Gauge name="Memory declared in flight" value={megabytes(p.memoryMb ?? 0)} of={megabytes(p.memoryBudgetMb)}>
            <Meter value={p.memoryMb ?? 0} max={p.memoryBudgetMb} label="Memory" />
          </Gauge>
        ) : (
          <Gauge name="Memory budget" value="no limit" />
        )}
        {p.cpuBudget ? (
          <Gauge name="CPU declared in flight" value={cores(p.cpu ?? 0)} of={`${cores(p.cpuBudget)} cores`}>
            <Meter value={p.cpu ?? 0} max={p.cpuBudget} label="CPU" />
          </Gauge>
        ) : null}
        <Gauge name="Waiting" value={count(p.queued)} />
        <Gauge name="Runners online" value={count(p.online)} of={p.slots ? plural(p.slots, 'slot') : undefined} />
      </div>
      {p.runners.length > 0 && (
        <ul className="mini-list">
          {p.runners.map((r) => {
            const [tone, word] = stateOf(r)
            return (
              <li key={r.id}>
                <Badge tone={tone}>{word}</Badge>
                <span className="clip">{r.label}</span>
                <span className="faint clip grow">{[r.hostname, r.unit].filter(Boolean).join(' · ')}</span>
                {r.job && (
                  <Link href={`/ui/runs/${r.job}`}>
                    <code>…{r.job.slice(-6)}</code>
                  </Link>
                )}
                <span className="faint tnum">{r.online ? `${r.busy ?? 0}/${r.slots ?? 1}` : ''}</span>
                {!r.online && <Ago at={r.lastSeenAt} className="faint" />}
              </li>
            )
          })}
        </ul>
      )}
    </section>
  )
}

function Gauge({ name, value, of, children }: { name: string; value: string; of?: string | undefined; children?: ReactNode }) {
  return (
    <div className="stack tight">
      <span className="faint">{name}</span>
      <span className="tnum gauge">
        {value} {of && <span className="faint">of {of}</span>}
      </span>
      {children}
    </div>
  )
}

/** What the cluster says: asked only when somebody wants it, since it takes seconds. */
function Inspect({ id }: { id: string }) {
  const { data, error, isFetching, refetch } = useQuery({ queryKey: ['inspect', id], queryFn: ({ signal }) => get<Inspection>(`/runtimes/${seg(id)}/versions/latest/inspect`, signal), retry: false, staleTime: 60_000 })
  return (
    <section className="card" aria-label="Cluster">
      <div className="card-head">
        <h2 className="grow">Cluster {data?.cluster?.name && <span className="faint">{[data.cluster.name, data.cluster.version].filter(Boolean).join(' · ')}</span>}</h2>
        <Button look="small" busy={isFetching} onClick={() => void refetch()}>
          {!isFetching && <RefreshCw size={13} aria-hidden />} Look again
        </Button>
      </div>
      <ErrorNote error={error} />
      {!data ? (
        !error && <Skeleton rows={3} />
      ) : (
        <>
          <div className="card-body stack">
            {!data.reachable && <ProbeResult p={{ kind: data.kind, reachable: false, detail: data.detail, ...(data.reason ? { reason: data.reason } : {}) }} />}
            {data.reachable && (
              <p className="dim">
                {data.detail}
                {data.nodes && ` ${data.nodes.ready} of ${plural(data.nodes.total, 'node')} ready.`}
              </p>
            )}
            {data.warnings.map((w, i) => (
              <div key={i} className="note warn">
                <AlertTriangle size={16} aria-hidden />
                <span className="wrap">{w}</span>
              </div>
            ))}
          </div>
          {data.nodes && data.nodes.items.length > 0 && (
            <DataTable
              label="Nodes"
              rows={data.nodes.items}
              id={(n) => n.name}
              columns={[
                { id: 'name', header: 'Node', by: (n) => n.name, cell: (n) => n.name },
                { id: 'state', header: 'State', by: (n) => n.status, cell: (n) => <Badge tone={n.ready && n.schedulable ? 'good' : 'warn'}>{n.schedulable ? n.status : `${n.status}, takes no work`}</Badge> },
                { id: 'cpu', header: 'CPU', numeric: true, by: (n) => n.cpuTotal, cell: (n) => count(n.cpuTotal) },
                { id: 'memory', header: 'Memory', numeric: true, by: (n) => n.memoryMbTotal, cell: (n) => (n.memoryMbTotal === undefined ? '–' : bytes(n.memoryMbTotal * 1024 * 1024)) },
                { id: 'gpu', header: 'GPU', numeric: true, by: (n) => n.gpuTotal, cell: (n) => count(n.gpuTotal) },
                { id: 'os', header: 'System', cell: (n) => <span className="dim">{[n.os, n.arch, n.containerRuntime].filter(Boolean).join(' · ')}</span> },
              ]}
            />
          )}
          {data.workload && data.workload.length > 0 && (
            <DataTable
              label="Our workload"
              rows={data.workload}
              id={(u) => u.id}
              columns={[
                { id: 'name', header: 'What runs there for us', by: (u) => u.name, cell: (u) => <code>{u.name}</code> },
                { id: 'role', header: 'Role', by: (u) => u.role, cell: (u) => u.role },
                { id: 'status', header: 'State', by: (u) => u.status, cell: (u) => u.status },
                { id: 'node', header: 'Node', by: (u) => u.node, cell: (u) => u.node ?? '–' },
              ]}
            />
          )}
        </>
      )}
    </section>
  )
}

function Tokens({ id }: { id: string }) {
  const may = useMay('admin', 'admin')
  const { data, error } = useQuery({ ...poolTokensQuery, enabled: may })
  const [issued, setIssued] = useState<IssuedPoolToken>()
  const [failed, setFailed] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const [revoking, setRevoking] = useState<PoolToken>()
  const make = async () => {
    setBusy(true)
    setFailed(undefined)
    try {
      setIssued(await change<IssuedPoolToken>('POST', '/pools/tokens', { runtime: id }))
      void client.invalidateQueries({ queryKey: ['pooltokens'] })
    } catch (e) {
      setFailed(e)
    }
    setBusy(false)
  }
  if (!may) return null
  const mine = data?.filter((t) => t.runtime === id) ?? []
  return (
    <section className="card" aria-label="Machines join with a token">
      <div className="card-head">
        <h2 className="grow">Join this pool</h2>
        <Button look="small" busy={busy} onClick={() => void make()}>
          Make a token
        </Button>
      </div>
      <ErrorNote error={error ?? failed} />
      {issued && (
        <div className="card-body stack">
          <div className="note warn">The token is shown this once. Any number of machines can join with it until it expires.</div>
          <Snippet wrapped label="Command" text={`${issued.joinCommand ?? 'everdict runner --pool-token -'} <<'TOKEN'\n${issued.token}\nTOKEN`} />
        </div>
      )}
      {mine.length === 0 ? (
        !issued && <p className="card-body dim">Machines join with a token: make one, and run the command that comes with it on each.</p>
      ) : (
        <ul className="mini-list">
          {mine.map((t) => (
            <li key={t.id}>
              <code>{t.prefix}…</code>
              <span className="dim grow">{t.label}</span>
              <span className="faint">
                expires <Ago at={t.expiresAt} />
              </span>
              <Button look="bare small danger" onClick={() => setRevoking(t)}>
                Revoke
              </Button>
            </li>
          ))}
        </ul>
      )}
      {revoking && (
        <Confirm
          title="Revoke this token?"
          action="Revoke"
          onClose={() => setRevoking(undefined)}
          onConfirm={() => {
            change('DELETE', `/pools/tokens/${seg(revoking.id)}`)
              .then(() => client.invalidateQueries({ queryKey: ['pooltokens'] }))
              .catch(toast.failed)
            setRevoking(undefined)
          }}
        >
          Every runner that joined with it is revoked too, and its runs go elsewhere.
        </Confirm>
      )}
    </section>
  )
}

