/** What the pages read, each under the key by which events refresh it. */
import { QueryClient, queryOptions } from '@tanstack/react-query'
import { ApiError, get, query, seg } from './client'
import type * as T from './types'

export const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 15_000,
      retry: (tries, error) => tries < 3 && (!(error instanceof ApiError) || error.status === 0 || error.status >= 500),
      retryDelay: (tries) => Math.min(500 * 2 ** tries, 5000),
    },
  },
})

/** Changes what a query has. An answer that is on its way may be older than the change, and is asked for again. */
export function revise<D>(queryKey: readonly unknown[], change: (old: D) => D): void {
  client.setQueryData<D>(queryKey, (old) => old && change(old))
  if (client.isFetching({ queryKey, exact: true })) void client.invalidateQueries({ queryKey, exact: true })
}

export const sessionQuery = queryOptions({ queryKey: ['session'], queryFn: ({ signal }) => get<T.Session>('/session', signal), staleTime: Infinity })
export const summaryQuery = queryOptions({ queryKey: ['summary'], queryFn: ({ signal }) => get<T.Summary>('/summary', signal) })
export const runnersQuery = queryOptions({
  queryKey: ['runners'],
  queryFn: async ({ signal }) => (await get<{ runners: T.Runner[] }>('/workspace/runners', signal)).runners,
})
export const ownRunnersQuery = queryOptions({
  queryKey: ['runners', 'own'],
  queryFn: async ({ signal }) => (await get<{ runners: T.Runner[] }>('/runners', signal)).runners,
})
export const poolsQuery = queryOptions({ queryKey: ['pools'], queryFn: ({ signal }) => get<T.Pool[]>('/pools', signal) })
export const poolTokensQuery = queryOptions({ queryKey: ['pooltokens'], queryFn: ({ signal }) => get<T.PoolToken[]>('/pools/tokens', signal), retry: false })
export const runtimesQuery = queryOptions({ queryKey: ['runtimes'], queryFn: ({ signal }) => get<T.RuntimeEntry[]>('/runtimes', signal) })
export const runtimeQuery = (id: string, version: string) =>
  queryOptions({ queryKey: ['runtimes', id, version], queryFn: ({ signal }) => get<T.RuntimeSpec>(`/runtimes/${seg(id)}/versions/${seg(version)}`, signal) })
export const harnessesQuery = queryOptions({ queryKey: ['harnesses'], queryFn: ({ signal }) => get<T.HarnessEntry[]>('/harnesses', signal) })
export const harnessQuery = (id: string, version: string) =>
  queryOptions({ queryKey: ['harnesses', id, version], queryFn: ({ signal }) => get<T.HarnessSpec>(`/harnesses/${seg(id)}/${seg(version)}`, signal), staleTime: 60_000 })
export const harnessDiffQuery = (id: string, base: string, candidate: string) =>
  queryOptions({
    queryKey: ['harnesses', id, 'diff', base, candidate],
    queryFn: ({ signal }) => get<T.SpecDiff>(query(`/harnesses/${seg(id)}/diff`, { base, candidate }), signal),
  })
export const secretsQuery = queryOptions({ queryKey: ['secrets'], queryFn: ({ signal }) => get<T.SecretUsage[]>('/secrets/usage', signal) })
export const ownSecretsQuery = queryOptions({ queryKey: ['secrets', 'own'], queryFn: ({ signal }) => get<Omit<T.SecretUsage, 'refs'>[]>('/secrets', signal) })
export const keysQuery = queryOptions({ queryKey: ['keys'], queryFn: ({ signal }) => get<T.Key[]>('/keys', signal) })

export const runKey = (id: string) => ['run', id] as const
export const runQuery = (id: string) => queryOptions({ queryKey: runKey(id), queryFn: ({ signal }) => get<T.Run>(`/runs/${seg(id)}`, signal) })
export const runEventsQuery = (id: string) =>
  queryOptions({ queryKey: ['run', id, 'events'], queryFn: ({ signal }) => get<T.RunEvent[]>(`/runs/${seg(id)}/events`, signal) })
export const attemptsQuery = (id: string) =>
  queryOptions({ queryKey: ['run', id, 'attempts'], queryFn: ({ signal }) => get<T.Attempt[]>(`/runs/${seg(id)}/attempts`, signal) })
export const placementQuery = (id: string) =>
  queryOptions({ queryKey: ['run', id, 'placement'], queryFn: ({ signal }) => get<T.PlacementView>(`/runs/${seg(id)}/placement`, signal) })
