import type { Run } from '../data/types'
import { workspace } from '../data/workspace'

/** A word for a POSIX shell. */
export function shellWord(s: string): string {
  return /^[\w@%+=:,./-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`
}

/** The request that would submit the run again, for a terminal. It names a key by a variable, never holds one. */
export function curlOf(run: Pick<Run, 'harness' | 'caseSpec' | 'runtime' | 'trigger' | 'class'>, origin = location.origin): string {
  const body: Record<string, unknown> = { harness: run.harness, case: run.caseSpec }
  if (run.runtime) body['runtime'] = run.runtime
  if (run.trigger) body['trigger'] = run.trigger
  if (run.class && run.class !== 'interactive') body['priority'] = run.class
  const tenant = workspace.header()['x-everdict-tenant']
  const credential = tenant ? `-H ${shellWord(`x-everdict-tenant: ${tenant}`)}` : '-H "Authorization: Bearer $EVERDICT_API_KEY"'
  return `curl -sS -XPOST ${shellWord(`${origin}/runs`)} \\\n  ${credential} \\\n  -H 'content-type: application/json' \\\n  -d ${shellWord(JSON.stringify(body, null, 2))}`
}
