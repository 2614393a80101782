import { QueryClientProvider } from '@tanstack/react-query'
import { Compass } from 'lucide-react'
import { lazy, Suspense, useEffect } from 'react'
import { Link, Route, Switch, useLocation } from 'wouter'
import { feed } from '../data/feed'
import { client } from '../data/queries'
import { Failsafe } from '../ui/Failsafe'
import { Button, Empty, Skeleton } from '../ui/parts'
import { ToastArea } from '../ui/toast'
import { Home } from '../pages/Home'
import { Runs } from '../pages/Runs'
import { Keys } from './keys'
import { SessionGate } from './session'
import { Shell } from './Shell'

const RunPage = lazy(() => import('../run/RunPage').then((m) => ({ default: m.RunPage })))
const NewRun = lazy(() => import('../pages/NewRun').then((m) => ({ default: m.NewRun })))
const Runtimes = lazy(() => import('../pages/Runtimes').then((m) => ({ default: m.Runtimes })))
const Runtime = lazy(() => import('../pages/Runtimes').then((m) => ({ default: m.Runtime })))
const Runners = lazy(() => import('../pages/Runners').then((m) => ({ default: m.Runners })))
const Harnesses = lazy(() => import('../pages/Harnesses').then((m) => ({ default: m.Harnesses })))
const Harness = lazy(() => import('../pages/Harnesses').then((m) => ({ default: m.Harness })))
const Secrets = lazy(() => import('../pages/Secrets').then((m) => ({ default: m.Secrets })))
const ApiKeys = lazy(() => import('../pages/Keys').then((m) => ({ default: m.ApiKeys })))
const Pair = lazy(() => import('../pages/Pair').then((m) => ({ default: m.Pair })))
const EnterCode = lazy(() => import('../pages/Pair').then((m) => ({ default: m.EnterCode })))
const SettingsPage = lazy(() => import('../pages/Settings').then((m) => ({ default: m.SettingsPage })))

export function App() {
  return (
    <QueryClientProvider client={client}>
      <SessionGate>
        <Stream />
        <Framed />
        <Keys />
        <ToastArea />
      </SessionGate>
    </QueryClientProvider>
  )
}

/** The pages with the navigation beside them, but for those that ask one question. */
function Framed() {
  const [location] = useLocation()
  if (/^\/ui\/pair(\/|$)/.test(location)) return <Pages />
  return (
    <Shell>
      <Pages />
    </Shell>
  )
}

/** One stream for a tab: the run page has that of its run, all others the workspace's. */
function Stream() {
  const [location] = useLocation()
  const own = /^\/ui\/runs\/run_/.test(location)
  useEffect(() => {
    if (own) feed.stop()
    else feed.start()
  }, [own])
  useEffect(() => () => feed.stop(), [])
  return null
}

function Pages() {
  const [location] = useLocation()
  useEffect(() => {
    scrollTo(0, 0)
  }, [location])
  return (
    <Failsafe key={location} failed={failed}>
      <Suspense
        fallback={
          <div className="page">
            <Skeleton rows={8} />
          </div>
        }
      >
        <Switch>
          <Route path="/" component={Home} />
          <Route path="/ui" component={Home} />
          <Route path="/ui/runs" component={Runs} />
          <Route path="/ui/new" component={NewRun} />
          <Route path="/ui/runs/:id">{({ id }) => <RunPage key={id} id={id} />}</Route>
          <Route path="/ui/runtimes" component={Runtimes} />
          <Route path="/ui/runtimes/:id">{({ id }) => <Runtime key={id} id={id} />}</Route>
          <Route path="/ui/runners" component={Runners} />
          <Route path="/ui/harnesses" component={Harnesses} />
          <Route path="/ui/harnesses/:id">{({ id }) => <Harness key={id} id={id} />}</Route>
          <Route path="/ui/secrets" component={Secrets} />
          <Route path="/ui/keys" component={ApiKeys} />
          <Route path="/ui/pair" component={EnterCode} />
          <Route path="/ui/pair/:id">{({ id }) => <Pair key={id} id={id} />}</Route>
          <Route path="/ui/settings" component={SettingsPage} />
          <Route>
            <div className="page">
              <Empty icon={Compass} title="There is no such page" actions={<Link className="button" href="/">Go home</Link>}>
                The address {location} leads nowhere here.
              </Empty>
            </div>
          </Route>
        </Switch>
      </Suspense>
    </Failsafe>
  )
}

function failed(error: Error) {
  const stale = /dynamically imported module|Importing a module/.test(error.message)
  return (
    <div className="page">
      <Empty
        title={stale ? 'This page is from before an update' : 'This page failed'}
        actions={
          <Button look="primary" onClick={() => location.reload()}>
            Reload
          </Button>
        }
      >
        {stale ? 'The coordinator serves a newer one: reload it.' : error.message}
      </Empty>
    </div>
  )
}
