import type { HarnessEntry, HarnessSpec } from './types'

/** The harnesses that come with the program: any run can name them, and no list of the workspace's has them. */
const adapters: NonNullable<HarnessSpec['adapter']>[] = ['scripted', 'claude-code', 'codex']

export const builtinVersion = 'builtin'

/** The built-in ones that the workspace has not registered under their own name, as entries of a list. */
export function builtins(own: HarnessEntry[]): HarnessEntry[] {
  return adapters
    .filter((id) => !own.some((h) => h.id === id))
    .map((id) => ({ id, owner: '', kind: 'built in', latestVersion: builtinVersion, versions: [builtinVersion], versionCount: 1, createdAt: '', updatedAt: '' }))
}

export const isBuiltin = (h: HarnessEntry): boolean => h.latestVersion === builtinVersion
