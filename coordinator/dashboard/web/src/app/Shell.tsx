import { useQuery } from '@tanstack/react-query'
import { Boxes, Cpu, Home, KeyRound, Keyboard, LockKeyhole, LogOut, Menu, Play, Server, Settings, X } from 'lucide-react'
import { useEffect, useState, type ReactNode } from 'react'
import { Link, useLocation } from 'wouter'
import { feed } from '../data/feed'
import { summaryQuery } from '../data/queries'
import { useStore } from '../data/store'
import { workspace } from '../data/workspace'
import { Button, cx } from '../ui/parts'
import { signOut, useSession } from './session'

/** The navigation. Later kinds of pages, such as data sets and scorecards, are lines of this list. */
const sections: { title?: string; items: { path: string; name: string; icon: typeof Home; count?: 'runs' | 'runners' }[] }[] = [
  {
    items: [
      { path: '/', name: 'Home', icon: Home },
      { path: '/ui/runs', name: 'Runs', icon: Play, count: 'runs' },
    ],
  },
  {
    title: 'Fleet',
    items: [
      { path: '/ui/runtimes', name: 'Runtimes', icon: Server },
      { path: '/ui/runners', name: 'Runners', icon: Cpu, count: 'runners' },
    ],
  },
  { title: 'Library', items: [{ path: '/ui/harnesses', name: 'Harnesses', icon: Boxes }] },
  {
    title: 'Workspace',
    items: [
      { path: '/ui/secrets', name: 'Secrets', icon: LockKeyhole },
      { path: '/ui/keys', name: 'API keys', icon: KeyRound },
      { path: '/ui/settings', name: 'Settings', icon: Settings },
    ],
  },
]

export function isAt(location: string, path: string): boolean {
  return path === '/' ? location === '/' || location === '/ui' || location === '/ui/' : location === path || location.startsWith(`${path}/`)
}

export function Shell({ children }: { children: ReactNode }) {
  const [location] = useLocation()
  const [open, setOpen] = useState(false)
  const session = useSession()
  const { updated, state } = useStore(feed)
  // A run's page has no stream of the workspace: its numbers are read now and then.
  const { data: summary } = useQuery({ ...summaryQuery, refetchInterval: state === 'off' ? 15_000 : false })
  useEffect(() => setOpen(false), [location])
  const running = summary?.runs.running ?? 0
  const held = summary?.runs.suspended ?? 0
  return (
    <div className="shell">
      <a className="skip button" href="#main">
        Skip to the page
      </a>
      <div className="topbar">
        <Button look="bare icon" aria-label={open ? 'Close the menu' : 'Open the menu'} aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? <X size={18} aria-hidden /> : <Menu size={18} aria-hidden />}
        </Button>
        <Link className="brand" href="/">
          <img src="/assets/favicon.svg" alt="" />
          Everdict
        </Link>
      </div>
      {open && <button type="button" className="scrim" aria-label="Close the menu" onClick={() => setOpen(false)} />}
      <nav className={cx('side', open && 'open')} aria-label="Main">
        <Link className="brand" href="/">
          <img src="/assets/favicon.svg" alt="" />
          Everdict
        </Link>
        <div className="nav">
          {sections.map((s, i) => (
            <div key={i} className="nav">
              {s.title && <div className="nav-title">{s.title}</div>}
              {s.items.map(({ path, name, icon: Icon, count }) => (
                <Link key={path} href={path} aria-current={isAt(location, path) ? 'page' : undefined}>
                  <Icon size={16} strokeWidth={1.8} aria-hidden />
                  {name}
                  {count === 'runs' && held > 0 ? (
                    <span className="count hold" title={`${held} wait for a person`}>
                      {held} to decide
                    </span>
                  ) : count === 'runs' && running > 0 ? (
                    <span className="count" title={`${running} running`}>
                      {running}
                    </span>
                  ) : null}
                  {count === 'runners' && summary && summary.runners.total > 0 && (
                    <span className="count" title={`${summary.runners.online} of ${summary.runners.total} online`}>
                      {summary.runners.online}/{summary.runners.total}
                    </span>
                  )}
                </Link>
              ))}
            </div>
          ))}
        </div>
        <div className="side-foot">
          <LinkState />
          <button type="button" className="button bare small keys-button" onClick={() => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '?', bubbles: true }))}>
            <Keyboard size={14} aria-hidden /> Keyboard <kbd aria-hidden>?</kbd>
          </button>
          <div className="who">
            <span className="grow clip" title={`${session.principal?.subject} in the workspace ${session.authRequired ? session.principal?.workspace : workspace.name}`}>
              {session.authRequired ? `${session.principal?.subject} · ${session.principal?.workspace}` : `Workspace ${workspace.name}`}
            </span>
            {session.authRequired && (
              <Button look="bare small icon" aria-label="Sign out" title="Sign out" onClick={() => void signOut()}>
                <LogOut size={14} aria-hidden />
              </Button>
            )}
          </div>
        </div>
      </nav>
      <div className="main">
        <Reconnecting />
        {updated && (
          <div className="banner" role="status">
            The coordinator was updated to {updated}.
            <Button look="small" onClick={() => window.location.reload()}>
              Reload
            </Button>
          </div>
        )}
        <main id="main" tabIndex={-1}>
          {children}
        </main>
      </div>
    </div>
  )
}


function LinkState() {
  const { state } = useStore(feed)
  if (state === 'off') return null
  const [tone, text] =
    state === 'live' ? ['good', 'Live'] : state === 'polling' ? ['warn', 'Refreshing every 5 s'] : state === 'ended' ? ['bad', 'Not connected'] : ['warn', 'Connecting…']
  return (
    <div className="link-state" role="status">
      <span className={cx('dot', tone)} aria-hidden />
      {text}
    </div>
  )
}

function Reconnecting() {
  const { state } = useStore(feed)
  const [late, setLate] = useState(false)
  useEffect(() => {
    if (state !== 'reconnecting') {
      setLate(false)
      return
    }
    const t = setTimeout(() => setLate(true), 700)
    return () => clearTimeout(t)
  }, [state])
  if (!late) return null
  return <ReconnectBanner />
}

export function ReconnectBanner() {
  return (
    <div className="banner" role="status">
      <span className="dot warn" aria-hidden />
      Reconnecting to the coordinator… What you see is from before.
    </div>
  )
}
