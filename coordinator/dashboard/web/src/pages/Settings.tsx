import { useState, type FormEvent } from 'react'
import { chooseTheme, theme, type Theme } from '../app/theme'
import { signOut, useSession } from '../app/session'
import { client } from '../data/queries'
import { workspace } from '../data/workspace'
import { Ago, Button, Fact, Facts, Field, Segments } from '../ui/parts'
import { toast } from '../ui/toast'
import { useTitle } from './title'

export function SettingsPage() {
  useTitle('Settings')
  const s = useSession()
  const [look, setLook] = useState<Theme>(theme())
  const rename = (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    workspace.choose(String(new FormData(e.currentTarget).get('workspace')))
    client.clear()
    location.assign('/')
  }
  return (
    <div className="page narrow-page">
      <div className="page-head">
        <h1>Settings</h1>
      </div>
      <section className="card" aria-label="Appearance">
        <div className="card-head">
          <h2>Appearance</h2>
        </div>
        <div className="card-body row wide wraps">
          <span className="grow dim">Kept in this browser.</span>
          <Segments
            label="Theme"
            value={look}
            options={[
              ['system', 'As the system'],
              ['light', 'Light'],
              ['dark', 'Dark'],
            ]}
            onChange={(v) => {
              setLook(v)
              chooseTheme(v)
            }}
          />
        </div>
      </section>
      {s.authRequired || s.principal?.via === 'session' ? (
        <section className="card" aria-label="Session">
          <div className="card-head">
            <h2 className="grow">Session</h2>
            <Button look="small" onClick={() => void signOut().catch(toast.failed)}>
              Sign out
            </Button>
          </div>
          <div className="card-body">
            <Facts>
              <Fact name="Signed in as">{s.principal?.subject}</Fact>
              <Fact name="Workspace">{s.principal?.workspace}</Fact>
              <Fact name="Roles">{s.principal?.roles.join(', ')}</Fact>
              {s.principal?.scopes && <Fact name="Key may">{s.principal.scopes.join(', ')}</Fact>}
              {s.expiresAt && (
                <Fact name="Ends">
                  <Ago at={s.expiresAt} />
                  {s.idleExpiresAt && (
                    <span className="faint">
                      , or when unused: <Ago at={s.idleExpiresAt} />
                    </span>
                  )}
                </Fact>
              )}
            </Facts>
          </div>
        </section>
      ) : (
        <section className="card" aria-label="Workspace">
          <div className="card-head">
            <h2>Workspace</h2>
          </div>
          <form className="card-body stack" onSubmit={rename}>
            <p className="dim">This coordinator asks for no login, so the workspace is a name that you choose. Started with --require-auth it asks for an API key, which has its workspace.</p>
            <div className="row align-end">
              <Field label="Workspace">{(id) => <input id={id} name="workspace" className="input" required defaultValue={workspace.name} maxLength={100} autoComplete="off" />}</Field>
              <Button type="submit">Switch</Button>
            </div>
          </form>
        </section>
      )}
      <section className="card" aria-label="About">
        <div className="card-head">
          <h2>About</h2>
        </div>
        <div className="card-body">
          <Facts>
            <Fact name="Coordinator">
              <code>{s.version}</code>
            </Fact>
            <Fact name="API">
              <a href="/docs">/docs</a>, <a href="/openapi.json">/openapi.json</a>
            </Fact>
          </Facts>
        </div>
      </section>
    </div>
  )
}
