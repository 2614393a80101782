/** Who is signed in, for every page. */
import { useQuery } from '@tanstack/react-query'
import { createContext, useContext, useEffect, useState, type ReactNode } from 'react'
import { change, whenSignedOut } from '../data/client'
import { client, sessionQuery } from '../data/queries'
import type { Session } from '../data/types'
import { workspace } from '../data/workspace'
import { ErrorNote } from '../ui/parts'
import { SignIn } from './SignIn'

const Context = createContext<Session | undefined>(undefined)

export function useSession(): Session {
  const s = useContext(Context)
  if (!s) throw new Error('there is no session here')
  return s
}

const roles = ['viewer', 'member', 'admin']
const scopes = ['read', 'write', 'admin']

/** Whether one may do what takes a role and a scope; the coordinator decides, this only spares a refusal. */
export function useMay(role: 'viewer' | 'member' | 'admin', scope: 'read' | 'write' | 'admin'): boolean {
  const p = useSession().principal
  if (!p) return false
  const high = (all: string[], mine: string[]) => Math.max(-1, ...mine.map((m) => all.indexOf(m)))
  return high(roles, p.roles) >= roles.indexOf(role) && (p.scopes === undefined || high(scopes, p.scopes) >= scopes.indexOf(scope))
}

export async function signOut(): Promise<void> {
  await change('DELETE', '/session')
  client.clear()
  location.assign('/')
}

/** Shows the pages to who may see them, else where to sign in. The address stays, so that one comes back to the same page. */
export function SessionGate({ children }: { children: ReactNode }) {
  const { data, error, refetch } = useQuery({ ...sessionQuery, retry: true, retryDelay: 1500 })
  const [ended, setEnded] = useState(false)
  useEffect(() => {
    whenSignedOut(() => {
      setEnded(true)
      void client.invalidateQueries({ queryKey: sessionQuery.queryKey })
    })
  }, [])
  if (!data) {
    return (
      <div className="signin">
        {error ? <ErrorNote error={error} retry={() => void refetch()} /> : <SlowStart />}
      </div>
    )
  }
  workspace.use(!data.authRequired && data.principal?.via !== 'session')
  if (!data.signedIn) {
    return (
      <SignIn
        ended={ended || data.reason !== undefined}
        revoked={data.reason === 'revoked'}
        onDone={(s) => {
          setEnded(false)
          // What another may have read is not for who signs in now.
          client.removeQueries({ predicate: (q) => q.queryKey[0] !== 'session' })
          client.setQueryData(sessionQuery.queryKey, s)
        }}
      />
    )
  }
  return <Context.Provider value={data}>{children}</Context.Provider>
}

/** Nothing for a moment: a flash of a word is worse than none. */
function SlowStart() {
  const [slow, setSlow] = useState(false)
  useEffect(() => {
    const t = setTimeout(() => setSlow(true), 600)
    return () => clearTimeout(t)
  }, [])
  return slow ? <p className="dim">Asking the coordinator…</p> : null
}
