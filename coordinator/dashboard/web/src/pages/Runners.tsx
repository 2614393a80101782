import { useQuery } from '@tanstack/react-query'
import { Cpu, KeyRound, Plus } from 'lucide-react'
import { useMemo, useState } from 'react'
import { useMay, useSession } from '../app/session'
import { change, seg } from '../data/client'
import { plural } from '../data/format'
import { client, runnersQuery } from '../data/queries'
import type { Runner } from '../data/types'
import { DataTable, type Column } from '../ui/DataTable'
import { ListPage } from '../ui/ListPage'
import { Ago, Badge, Button, Confirm, Dialog, Empty, Fact, Facts, Snippet } from '../ui/parts'
import { toast } from '../ui/toast'
import { Connect } from './Connect'
import { Link } from 'wouter'

export function stateOf(r: Runner): ['good' | 'warn' | 'active' | 'hold' | 'mute', string] {
  if (!r.online) return ['mute', 'Offline']
  if (r.updateRequired) return ['warn', 'Needs an update']
  if (r.status && r.status.level !== 'info') return ['warn', 'Degraded']
  if (r.paused) return ['hold', r.busy ? 'Pausing' : 'Paused']
  if (r.busy) return ['active', 'Busy']
  return ['good', 'Online']
}

export function Runners() {
  const { data, error, refetch } = useQuery(runnersQuery)
  const [connecting, setConnecting] = useState(false)
  const [open, setOpen] = useState<string>()
  const [find, setFind] = useState('')
  const may = useMay('viewer', 'write')
  const rows = useMemo(() => {
    const want = find.trim().toLowerCase()
    return (data ?? []).filter((r) => !want || [r.label, r.hostname, r.id, r.runtime, r.os, r.arch, ...r.capabilities].some((x) => x?.toLowerCase().includes(want)))
  }, [data, find])
  const online = data?.filter((r) => r.online).length ?? 0
  const shown = data?.find((r) => r.id === open)
  const columns: Column<Runner>[] = [
    {
      id: 'state',
      header: 'State',
      by: (r) => stateOf(r)[1],
      cell: (r) => {
        const [tone, word] = stateOf(r)
        return <Badge tone={tone}>{word}</Badge>
      },
    },
    {
      id: 'label',
      header: 'Machine',
      by: (r) => r.label,
      cell: (r) => (
        <div className="two-lines">
          <strong className="clip">
            {r.label} {r.device && <KeyRound size={12} className="ink-mute" aria-label="paired with a key of its own" />}
          </strong>
          <span className="faint clip">{inWords(r) ?? [r.hostname !== r.label ? r.hostname : '', r.os, r.arch].filter(Boolean).join(' · ')}</span>
        </div>
      ),
    },
    { id: 'whose', header: 'Takes', by: (r) => r.runtime ?? r.owner, cell: (r) => (r.runtime ? <Link href={`/ui/runtimes/${seg(r.runtime)}`}>{r.runtime}</Link> : <span className="dim">{whose(r)}</span>) },
    { id: 'slots', header: 'Busy', numeric: true, by: (r) => r.busy ?? 0, cell: (r) => (r.online ? `${r.busy ?? 0}/${r.slots ?? 1}` : '–') },
    {
      id: 'can',
      header: 'Offers',
      cell: (r) => (
        <span className="tags">
          {r.capabilities.slice(0, 4).map((c) => (
            <span key={c} className="tag">
              {c}
            </span>
          ))}
          {r.capabilities.length > 4 && <span className="faint">+{r.capabilities.length - 4}</span>}
        </span>
      ),
    },
    { id: 'version', header: 'Version', by: (r) => r.version, cell: (r) => <span className="dim">{r.version ?? '–'}</span> },
    { id: 'seen', header: 'Seen', by: (r) => (r.lastSeenAt ? Date.parse(r.lastSeenAt) : undefined), cell: (r) => (r.online ? <span className="faint">now</span> : <Ago at={r.lastSeenAt} />) },
  ]
  const connect = may && (
    <Button look="primary" onClick={() => setConnecting(true)}>
      <Plus size={15} aria-hidden /> Connect this device
    </Button>
  )
  return (
    <ListPage
      title="Runners"
      sub={data && `${online} of ${plural(data.length, 'machine')} online`}
      rows={data}
      error={error}
      retry={() => void refetch()}
      search={{ label: 'Find a machine', value: find, onChange: setFind }}
      actions={connect}
      beside={
        <>
          {connecting && (
            <Dialog title="Connect this device" onClose={() => setConnecting(false)}>
              <Connect onDone={() => setConnecting(false)} />
            </Dialog>
          )}
          {shown && <RunnerDialog r={shown} onClose={() => setOpen(undefined)} />}
        </>
      }
    >
      {data?.length === 0 ? (
        <Empty icon={Cpu} title="No machine is connected" actions={connect}>
          A runner is a program on a machine of yours. It dials out, takes runs and sends back what happened.
        </Empty>
      ) : rows.length === 0 ? (
        <Empty icon={Cpu} title="No machine matches" actions={<Button onClick={() => setFind('')}>Clear the search</Button>} />
      ) : (
        <DataTable label="Runners" rows={rows} columns={columns} id={(r) => r.id} onOpen={(r) => setOpen(r.id)} />
      )}
    </ListPage>
  )
}

/** Why a machine takes less than it could. */
function inWords(r: Runner): string | undefined {
  const state = stateOf(r)[1]
  if (state === 'Degraded') return r.status?.text
  return state === 'Paused' || state === 'Pausing' ? r.paused : undefined
}

function whose(r: Runner): string {
  if (!r.owner || r.scope === 'workspace') return 'everybody’s runs'
  if (r.owner === 'local:') return 'everybody’s runs'
  return r.owner.startsWith('ws:') || r.owner.startsWith('workspace') ? 'everybody’s runs' : `runs of ${r.owner}`
}

function RunnerDialog({ r, onClose }: { r: Runner; onClose: () => void }) {
  const [asking, setAsking] = useState(false)
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const admin = useMay('admin', 'admin')
  const me = useSession().principal?.subject
  const own = r.owner === me
  const revoke = async () => {
    setBusy(true)
    try {
      await change('DELETE', own ? `/runners/${seg(r.id)}` : `/workspace/runners/${seg(r.id)}`)
      void client.invalidateQueries({ queryKey: ['runners'] })
      toast.done(`${r.label} was revoked.`)
      onClose()
    } catch (e) {
      setError(e)
      setBusy(false)
    }
  }
  const [tone, word] = stateOf(r)
  if (asking) {
    return (
      <Confirm title={`Revoke ${r.label}?`} action="Revoke" busy={busy} error={error} onClose={() => setAsking(false)} onConfirm={() => void revoke()}>
        Its credential stops working at once, and what runs there is ended. A run that it holds goes to another machine. To use the machine again it has to be connected anew.
      </Confirm>
    )
  }
  return (
    <Dialog
      title={r.label}
      onClose={onClose}
      foot={
        (own || admin) && (
          <Button look="danger" onClick={() => setAsking(true)}>
            Revoke
          </Button>
        )
      }
    >
      <div className="row wraps">
        <Badge tone={tone}>{word}</Badge>
        {r.status && (
          <span className="wrap">
            {r.status.text} <Ago at={r.status.at} className="faint" />
          </span>
        )}
      </div>
      {r.online && r.paused && (
        <div className="note">
          <div className="grow wrap">
            It takes no runs for now: {r.paused}. {r.busy ? 'What runs there goes on. ' : ''}Its owner resumes it on the machine.
          </div>
        </div>
      )}
      {r.updateRequired && r.lastSeenAt && <div className="note warn">It speaks protocol {r.protocol} and gets no runs: install the coordinator’s version of everdict on it and start it again.</div>}
      <Facts>
        <Fact name="Id">
          <code>{r.id}</code>
        </Fact>
        <Fact name="Runs there">
          <code>{r.target ?? (r.runtime ? r.runtime : `self:${r.id}`)}</code>
        </Fact>
        <Fact name="Takes">
          {r.runtime ? `runs of the runtime ${r.runtime}` : whose(r)}
          {r.scope && !r.runtime && <span className="faint">, which is set on the machine alone</span>}
        </Fact>
        <Fact name="Host">{[r.hostname, r.os, r.arch].filter(Boolean).join(' · ') || '–'}</Fact>
        <Fact name="Slots">{r.slots ? `${r.busy ?? 0} of ${r.slots} busy` : '–'}</Fact>
        <Fact name="Offers">
          {r.capabilities.length ? (
            <ul className="evidence">
              {r.capabilities.map((c) => (
                <li key={c}>
                  <span className="tag">{c}</span> <span className="faint">{r.capabilityEvidence?.[c]}</span>
                </li>
              ))}
            </ul>
          ) : (
            '–'
          )}
        </Fact>
        <Fact name="Version">
          {r.version ?? '–'} {r.protocol !== undefined && <span className="faint">protocol {r.protocol}</span>}
        </Fact>
        {r.unit && <Fact name="Unit">{r.unit}</Fact>}
        <Fact name="Paired">
          <Ago at={r.pairedAt} />
          {!r.runtime && <span className="faint">, {r.device ? 'with a key that never leaves the machine' : 'with a token'}</span>}
        </Fact>
        <Fact name="Last seen">{r.online ? 'connected now' : <Ago at={r.lastSeenAt} />}</Fact>
      </Facts>
      <Link href={`/ui/runs?runner=${seg(r.id)}`}>Runs that it took</Link>
      <div className="stack tight">
        <span className="faint">Why a capability is missing, on the machine itself:</span>
        <Snippet label="Command" text="everdict doctor" />
      </div>
    </Dialog>
  )
}
