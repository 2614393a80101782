import { AlertTriangle, History as HistoryIcon, House, Laptop, Settings as SettingsIcon, X } from 'lucide-react'
import { useEffect, useSyncExternalStore, type ReactNode } from 'react'
import { applyTheme, type Theme } from '../app/theme'
import { useStore } from '../data/store'
import { Button, cx, ErrorNote, Skeleton } from '../ui/parts'
import { Failsafe } from '../ui/Failsafe'
import { ToastArea } from '../ui/toast'
import { useAct } from '../ui/useAct'
import { app, tell } from './app'
import type { Notice, State } from './documents'
import { HistoryPage } from './HistoryPage'
import { Home } from './Home'
import { MachinePage } from './MachinePage'
import { Clicked, Connecting, Welcome } from './Pairing'
import { SettingsPage } from './SettingsPage'

const pages = [
  { name: 'Home', at: '', icon: House },
  { name: 'History', at: 'history', icon: HistoryIcon },
  { name: 'This computer', at: 'machine', icon: Laptop },
  { name: 'Settings', at: 'settings', icon: SettingsIcon },
] as const

/** The page that is shown stands behind the #: what comes before it is a secret path. */
function usePlace(): string {
  return useSyncExternalStore(
    (fn) => {
      addEventListener('hashchange', fn)
      return () => removeEventListener('hashchange', fn)
    },
    () => location.hash.replace(/^#\/?/, ''),
  )
}

export function App() {
  useStore(app)
  useEffect(() => app.start(), [])
  const { state } = app
  const look = state?.settings.appearance
  useEffect(() => {
    if (look) applyTheme(look as Theme)
  }, [look])
  useEffect(() => {
    document.title = state ? `${state.text} · Everdict` : 'Everdict'
  }, [state])
  if (app.quitting) {
    return (
      <Bare>
        <h1>Everdict has quit</h1>
        <p className="dim">This computer takes no runs until it is started again. You can close this window.</p>
      </Bare>
    )
  }
  if (app.refused) {
    return (
      <Bare>
        <ErrorNote error={app.refused} />
      </Bare>
    )
  }
  if (!state) {
    return (
      <Bare>
        <Skeleton rows={3} />
        {app.link === 'reconnecting' && <p className="dim">The Everdict app does not answer yet…</p>}
      </Bare>
    )
  }
  return (
    <>
      <Content state={state} />
      <ToastArea />
    </>
  )
}

function Bare({ children }: { children: ReactNode }) {
  return (
    <main className="desk bare">
      <div className="desk-column">{children}</div>
    </main>
  )
}

function Content({ state }: { state: State }) {
  const place = usePlace()
  useEffect(() => {
    scrollTo(0, 0)
  }, [place])
  // What waits for an answer comes to the front once; whoever then looks elsewhere finds it under Home.
  const waits = state.question?.id ?? (state.pairing && `${state.pairing.coordinator} ${state.pairing.status}`)
  useEffect(() => {
    if (waits) location.hash = '#/'
  }, [waits])
  const page =
    place === 'history' ? (
      <HistoryPage state={state} />
    ) : place === 'machine' ? (
      <MachinePage state={state} />
    ) : place === 'settings' ? (
      <SettingsPage state={state} />
    ) : state.question ? (
      <Clicked q={state.question} state={state} />
    ) : state.pairing ? (
      <Connecting p={state.pairing} state={state} />
    ) : place === 'connect' || state.connections.length === 0 ? (
      <Welcome state={state} />
    ) : (
      <Home state={state} />
    )
  return (
    <div className="desk">
      <header className="desk-head">
        <img src="./assets/favicon.svg" alt="Everdict" width={22} height={22} />
        <nav aria-label="Main">
          {pages.map(({ name, at, icon: Icon }) => (
            <a key={at} href={`#/${at}`} aria-label={name} aria-current={(place === 'connect' ? '' : place) === at ? 'page' : undefined}>
              <Icon size={15} strokeWidth={1.9} aria-hidden />
              <span>{name}</span>
            </a>
          ))}
        </nav>
      </header>
      {app.link === 'reconnecting' && (
        <div className="desk-banner" role="status">
          <span className="dot warn" aria-hidden /> The Everdict app does not answer. What you see is from before.
        </div>
      )}
      <main className="desk-column" id="main">
        {state.notices.map((n) => (
          <NoticeLine key={n.id} n={n} />
        ))}
        <Failsafe key={place} failed={failed}>
          {page}
        </Failsafe>
      </main>
    </div>
  )
}

function failed(error: Error) {
  return (
    <div className="note error" role="alert">
      <AlertTriangle size={16} aria-hidden />
      <div className="grow wrap">
        <strong>This page failed.</strong> {error.message} <span className="next">The app goes on; everdict-desktop status says how it is.</span>
      </div>
      <Button look="small" onClick={() => location.reload()}>
        Reload
      </Button>
    </div>
  )
}

function NoticeLine({ n }: { n: Notice }) {
  const { busy, error, act } = useAct()
  return (
    <div className={cx('note', n.level === 'error' ? 'error' : n.level === 'warn' ? 'warn' : undefined)} role={n.level === 'info' ? 'status' : 'alert'}>
      <AlertTriangle size={16} aria-hidden />
      <div className="grow wrap">
        {n.text} {n.next && <span className="next">{n.next}</span>}
        <ErrorNote error={error} />
      </div>
      <Button look="bare small icon" aria-label="Dismiss" busy={busy !== ''} onClick={() => void act('dismiss', () => tell('POST', 'api/notices/dismiss', { id: n.id }))}>
        {busy === '' && <X size={14} aria-hidden />}
      </Button>
    </div>
  )
}
