import { useState } from 'react'

/** Something that a page does on request: which of them is under way, and how the last one failed. */
export function useAct() {
  const [busy, setBusy] = useState('')
  const [error, setError] = useState<unknown>()
  const act = async (what: string, fn: () => Promise<void>): Promise<void> => {
    setBusy(what)
    setError(undefined)
    try {
      await fn()
    } catch (e) {
      setError(e)
    }
    setBusy('')
  }
  return { busy, error, act }
}

/** What somebody wrote as JSON, or an error that says what is wrong with it. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new Error(`This is not JSON: ${(cause as Error).message}`)
  }
}
