/** What is set on this computer alone: a coordinator cannot change any of it. */
import { AlertTriangle, Plus, Trash2, Unplug } from 'lucide-react'
import { useEffect, useState, type FormEvent, type ReactNode } from 'react'
import { ApiError } from '../data/client'
import { Button, Confirm, ErrorNote, Fact, Facts, Field, Segments } from '../ui/parts'
import { toast } from '../ui/toast'
import { useAct } from '../ui/useAct'
import { app, tell } from './app'
import type { Connection, ConnectionSettings, Hours, Settings, State } from './documents'
import { Unpair } from './Home'
import { dayName, days, hoursFault, hoursWords, jobNames, systemName, wide } from './words'

export function SettingsPage({ state }: { state: State }) {
  return (
    <div className="stack wide">
      <div className="desk-title">
        <h1>Settings</h1>
      </div>
      {state.connections.map((c) => (
        <ConnectionForm key={c.id} c={c} />
      ))}
      <div>
        <a className="button" href="#/connect">
          <Plus size={15} aria-hidden /> {state.connections.length ? 'Add another coordinator' : 'Connect this computer'}
        </a>
      </div>
      <Computer state={state} />
      <KeysCard state={state} />
      <About state={state} />
    </div>
  )
}

function Switch({ label, hint, on, disabled, onChange }: { label: string; hint?: ReactNode; on: boolean; disabled?: boolean; onChange: (on: boolean) => void }) {
  return (
    <label className="switch-row">
      <span className="grow">
        <span className="switch-name">{label}</span>
        {hint && <span className="hint">{hint}</span>}
      </span>
      <input type="checkbox" role="switch" className="switch" checked={on} disabled={disabled} onChange={(e) => onChange(e.target.checked)} />
    </label>
  )
}

/** The settings of one connection. They are kept together, since what is safe depends on all of them. */
function ConnectionForm({ c }: { c: Connection }) {
  const [draft, setDraft] = useState<ConnectionSettings>(c.settings)
  const [understood, setUnderstood] = useState(false)
  const [asking, setAsking] = useState(false)
  const { busy, error, act } = useAct()
  const kept = JSON.stringify(c.settings)
  useEffect(() => {
    setDraft(JSON.parse(kept) as ConnectionSettings)
    setUnderstood(false)
  }, [kept])
  const changed = draft.slots !== c.settings.slots || draft.sandbox !== c.settings.sandbox || (draft.image ?? '') !== (c.settings.image ?? '') || draft.onlyMine !== c.settings.onlyMine
  const risky = wide(draft)
  const asks = risky && !wide(c.settings)
  const submit = (e: FormEvent) => {
    e.preventDefault()
    void act('save', async () => {
      await tell('PUT', `api/connections/${encodeURIComponent(c.id)}`, risky ? { ...draft, understood: true } : draft)
      toast.done('Kept.')
    })
  }
  return (
    <section className="card" aria-label={`Settings of ${c.host}`}>
      <div className="card-head">
        <h2 className="grow wrap">{c.host}</h2>
        <Button look="small danger" onClick={() => setAsking(true)}>
          <Unplug size={13} aria-hidden /> Disconnect
        </Button>
      </div>
      <form className="card-body stack wide" onSubmit={submit}>
        <Field label="Jobs at a time" hint="1 to 64. Each wants memory and a processor.">
          {(id) => <input id={id} className="input short-input" type="number" min={1} max={64} required value={Number.isNaN(draft.slots) ? '' : draft.slots} onChange={(e) => setDraft({ ...draft, slots: e.target.valueAsNumber })} />}
        </Field>
        <fieldset className="radios">
          <legend>Where runs that name no image are carried out</legend>
          <label className="check">
            <input type="radio" name={`sandbox-${c.id}`} checked={draft.sandbox === 'docker'} onChange={() => setDraft({ ...draft, sandbox: 'docker' })} />
            <span>
              In a container <span className="faint">apart from your files; needs Docker</span>
            </span>
          </label>
          <label className="check">
            <input type="radio" name={`sandbox-${c.id}`} checked={draft.sandbox === 'process'} onChange={() => setDraft({ ...draft, sandbox: 'process' })} />
            <span>
              As a process of yours <span className="faint">with the agents and logins that this computer has</span>
            </span>
          </label>
        </fieldset>
        {draft.sandbox === 'docker' && (
          <Field label="Image of their containers" hint="Without one, runs that name no image are refused here.">
            {(id) => <input id={id} className="input mono" value={draft.image ?? ''} onChange={(e) => setDraft({ ...draft, image: e.target.value.trim() })} placeholder="ghcr.io/you/agents:1" autoComplete="off" autoCapitalize="off" spellCheck={false} maxLength={255} />}
          </Field>
        )}
        {draft.sandbox === 'process' && (
          <div className="note warn">
            <AlertTriangle size={16} aria-hidden />
            <div className="grow">
              <strong>Such a run acts as you.</strong> It can read and change what you can: files, logins, keys.{draft.onlyMine ? ' Only your own runs are taken.' : ''}
            </div>
          </div>
        )}
        <Switch
          label="Only my runs"
          hint={`Take runs of ${c.account.subject} alone. Off: those of everybody in the workspace ${c.account.workspace}.`}
          on={draft.onlyMine}
          onChange={(onlyMine) => setDraft({ ...draft, onlyMine })}
        />
        {asks && (
          <label className="note error understood">
            <input type="checkbox" checked={understood} onChange={(e) => setUnderstood(e.target.checked)} />
            <span className="grow">
              I understand: everybody in the workspace <strong className="wrap">{c.account.workspace}</strong> can then run anything on this computer as me, with my files and logins.
            </span>
          </label>
        )}
        <ErrorNote error={error} />
        {changed && (
          <div className="row wraps">
            <Button look="primary" type="submit" busy={busy !== ''} disabled={Number.isNaN(draft.slots) || (asks && !understood)}>
              Save
            </Button>
            <Button disabled={busy !== ''} onClick={() => setDraft(c.settings)}>
              Undo
            </Button>
          </div>
        )}
      </form>
      {asking && <Unpair c={c} onClose={() => setAsking(false)} />}
    </section>
  )
}

/** What holds for all connections. Each change is kept at once. */
function Computer({ state }: { state: State }) {
  const { busy, error, act } = useAct()
  const s = state.settings
  const put = (change: Partial<Settings>) => act('put', async () => void (await tell('PUT', 'api/settings', { ...s, ...change })))
  const off = busy !== ''
  return (
    <section className="card" aria-label="This computer">
      <div className="card-head">
        <h2>This computer</h2>
      </div>
      <div className="card-body stack wide">
        <AllowedHours hours={s.hours} put={(hours) => put({ hours })} busy={off} />
        <Switch
          label="Pause on battery"
          hint={state.power.known ? `It is on ${state.power.onBattery ? 'battery' : 'mains'} now.` : 'This system does not say what it runs on, and is taken to be on mains.'}
          on={s.pauseOnBattery}
          disabled={off}
          onChange={(pauseOnBattery) => void put({ pauseOnBattery })}
        />
        <Switch label="Start at login" hint={state.connections.length === 0 && s.startAtLogin ? 'From the first connection on, without a window.' : 'Without a window: the tray shows it, or starting Everdict again.'} on={s.startAtLogin} disabled={off} onChange={(startAtLogin) => void put({ startAtLogin })} />
        <Switch label="Notifications" hint="When a job ends, and when something needs you." on={s.notifications} disabled={off} onChange={(notifications) => void put({ notifications })} />
        <div className="row wraps">
          <span className="grow switch-name">Appearance</span>
          <Segments
            label="Appearance"
            value={s.appearance}
            options={[
              ['system', 'As the system'],
              ['light', 'Light'],
              ['dark', 'Dark'],
            ]}
            onChange={(appearance) => void put({ appearance })}
          />
        </div>
        <ErrorNote error={error} />
      </div>
    </section>
  )
}

const evening: Hours = { days: ['mon', 'tue', 'wed', 'thu', 'fri'], from: '18:00', to: '08:00' }

function AllowedHours({ hours, put, busy }: { hours: Hours[]; put: (h: Hours[]) => Promise<void>; busy: boolean }) {
  const [draft, setDraft] = useState<Hours>()
  const fault = draft && hoursFault(draft)
  return (
    <div className="stack">
      <div className="row wraps">
        <span className="grow">
          <span className="switch-name">Allowed hours</span>
          <span className="hint">{hours.length ? 'Outside of them no new runs are taken; what runs goes on.' : 'Runs are taken at any time.'}</span>
        </span>
        {!draft && (
          <Button look="small" disabled={busy} onClick={() => setDraft(evening)}>
            <Plus size={13} aria-hidden /> Add hours
          </Button>
        )}
      </div>
      {hours.length > 0 && (
        <ul className="stack tight">
          {hours.map((h, i) => (
            <li key={i} className="row hours">
              <span className="grow tnum">{hoursWords(h)}</span>
              <Button look="bare small icon" aria-label={`Remove ${hoursWords(h)}`} disabled={busy} onClick={() => void put(hours.filter((_, at) => at !== i))}>
                <Trash2 size={14} aria-hidden />
              </Button>
            </li>
          ))}
        </ul>
      )}
      {draft && (
        <form
          className="stack hours-form"
          onSubmit={(e) => {
            e.preventDefault()
            void put([...hours, draft]).then(() => setDraft(undefined))
          }}
        >
          <div className="row wraps" role="group" aria-label="Days">
            {days.map((d) => (
              <button key={d} type="button" className="chip" aria-pressed={draft.days.includes(d)} onClick={() => setDraft({ ...draft, days: days.filter((x) => (x === d ? !draft.days.includes(d) : draft.days.includes(x))) })}>
                {dayName(d)}
              </button>
            ))}
          </div>
          <div className="row wraps align-end">
            <Field label="From">{(id) => <input id={id} className="input time-input" value={draft.from} onChange={(e) => setDraft({ ...draft, from: e.target.value })} inputMode="numeric" placeholder="18:00" maxLength={5} />}</Field>
            <Field label="To">{(id) => <input id={id} className="input time-input" value={draft.to} onChange={(e) => setDraft({ ...draft, to: e.target.value })} inputMode="numeric" placeholder="08:00" maxLength={5} />}</Field>
            <Button look="primary" type="submit" disabled={busy || fault !== undefined}>
              Add
            </Button>
            <Button disabled={busy} onClick={() => setDraft(undefined)}>
              Cancel
            </Button>
          </div>
          <p className={fault ? 'ink-bad small-line' : 'faint small-line'}>{fault ?? `${hoursWords(draft)}, by this computer’s clock.`}</p>
        </form>
      )}
    </div>
  )
}

function KeysCard({ state }: { state: State }) {
  const { busy, error, act } = useAct()
  const { place, keyring, warning } = state.keys
  const move = (to: 'keyring' | 'file') => void act('move', async () => void (await tell('POST', 'api/keys', { place: to })))
  return (
    <section className="card" aria-label="Device keys">
      <div className="card-head">
        <h2>Device keys</h2>
      </div>
      <div className="card-body stack">
        <p className="dim">
          Each connection has a key that never leaves this computer. New ones go into {place === 'keyring' ? 'the system’s keyring' : 'a file that you alone may read'}.
        </p>
        {warning && (
          <div className="note warn">
            <AlertTriangle size={16} aria-hidden />
            <div className="grow wrap">{warning}</div>
          </div>
        )}
        <ErrorNote error={error} />
        <div className="row wraps">
          {place === 'file' ? (
            <>
              <Button busy={busy !== ''} disabled={!keyring} onClick={() => move('keyring')}>
                Move to the keyring
              </Button>
              {!keyring && <span className="faint">No keyring of this system answers.</span>}
            </>
          ) : (
            <Button busy={busy !== ''} onClick={() => move('file')}>
              Move to a file
            </Button>
          )}
        </div>
      </div>
    </section>
  )
}

function About({ state }: { state: State }) {
  const { busy, error, act } = useAct()
  const [asking, setAsking] = useState(false)
  const jobs = state.connections.flatMap((c) => c.jobs)
  const quit = (force: boolean) =>
    void act('quit', async () => {
      try {
        await app.quit(force)
      } catch (e) {
        if (force || !(e instanceof ApiError) || e.status !== 409) throw e
        setAsking(true)
      }
    })
  return (
    <section className="card" aria-label="About">
      <div className="card-head">
        <h2 className="grow">About</h2>
        <Button look="small danger" busy={busy !== '' && !asking} onClick={() => quit(false)}>
          Quit Everdict
        </Button>
      </div>
      <div className="card-body stack">
        <Facts>
          <Fact name="Everdict">
            <code>{state.version}</code>
          </Fact>
          <Fact name="Computer">
            {state.device.name}, {systemName(state.device.os)} {state.device.arch}
          </Fact>
          <Fact name="Licence">Apache-2.0</Fact>
        </Facts>
        {!asking && <ErrorNote error={error} />}
      </div>
      {asking && (
        <Confirm title="Quit while a job runs?" action="Quit now" busy={busy !== ''} error={error} onClose={() => setAsking(false)} onConfirm={() => quit(true)}>
          {jobNames(jobs)} {jobs.length === 1 ? 'ends' : 'end'} at once and {jobs.length === 1 ? 'goes' : 'go'} back to the queue. To let it end first, pause after this job and quit then.
        </Confirm>
      )}
    </section>
  )
}
