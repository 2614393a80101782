import { useState, type FormEvent } from 'react'
import { ApiError, send } from '../data/client'
import type { Session } from '../data/types'
import { Button, ErrorNote, Field } from '../ui/parts'

export function SignIn({ ended, revoked, onDone }: { ended: boolean; revoked: boolean; onDone: (s: Session) => void }) {
  const [error, setError] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const submit = async (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const field = e.currentTarget.elements.namedItem('key') as HTMLInputElement
    setBusy(true)
    setError(undefined)
    try {
      const response = await send('/session', { method: 'POST', body: { apiKey: field.value.trim() }, quiet: true })
      field.value = ''
      onDone((await response.json()) as Session)
    } catch (cause) {
      if (cause instanceof ApiError && cause.status === 429) {
        const wait = cause.data?.['retryAfterSec']
        setError(new ApiError(429, cause.code, cause.message, cause.hint ?? `Wait ${typeof wait === 'number' ? `${wait} s` : 'a while'}, then try again.`, cause.data))
      } else setError(cause)
      setBusy(false)
    }
  }
  return (
    <main className="signin">
      <form className="card" onSubmit={(e) => void submit(e)}>
        <div className="row">
          <img src="/assets/favicon.svg" alt="" width={28} height={28} />
          <h1>Sign in to Everdict</h1>
        </div>
        {ended && (
          <div className="note warn" role="status">
            {revoked ? 'Your session was ended, because its key or the session itself was revoked.' : 'Your session is over.'} Sign in and you are back on this page.
          </div>
        )}
        <Field label="API key" hint="The key is exchanged for a session cookie and kept nowhere in the browser.">
          {(id) => <input id={id} name="key" className="input mono" type="password" placeholder="ak_…" autoComplete="off" spellCheck={false} required autoFocus />}
        </Field>
        <ErrorNote error={error} />
        <Button look="primary" type="submit" busy={busy}>
          Sign in
        </Button>
        <details className="dim">
          <summary>Where do I get a key?</summary>
          <p>
            The coordinator printed the first one when it started with <code>--require-auth</code>. Whoever is signed in makes more under API keys, or with{' '}
            <code>everdict keys create</code>.
          </p>
        </details>
      </form>
    </main>
  )
}
