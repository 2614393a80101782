/** The documents of the API, by the names that its description gives them. */
import type { components } from './schema'

type Schemas = components['schemas']

export type Status = 'queued' | 'running' | 'suspended' | 'succeeded' | 'failed'
export type Run = Omit<Schemas['Run'], 'status'> & { status: Status }
export type RunEvent = Schemas['RunEvent']
export type RunRequest = Schemas['RunRequest']
export type Attempt = Schemas['Attempt']
export type PlacementView = Schemas['PlacementView']
export type TraceEvent = Schemas['TraceEvent']
export type Failure = Schemas['Failure']
export type Score = Schemas['Score']
export type Usage = Schemas['Usage']
export type Cost = Schemas['Cost']
export type OmittedFile = Schemas['OmittedFile']
export type Runner = Schemas['Runner']
export type Paired = Schemas['Paired']
export type Pool = Schemas['Pool']
export type PoolToken = Schemas['PoolToken']
export type IssuedPoolToken = Schemas['IssuedPoolToken']
export type RuntimeEntry = Schemas['RuntimeEntry']
export type RuntimeSpec = Schemas['RuntimeSpec']
export type RuntimeValidation = Schemas['RuntimeValidation']
export type Probe = Schemas['Probe']
export type Inspection = Schemas['Inspection']
export type HarnessEntry = Schemas['HarnessEntry']
export type HarnessSpec = Schemas['HarnessSpec']
export type SpecDiff = Schemas['SpecDiff']
export type Validation = Schemas['Validation']
export type Registered = Schemas['Registered']
export type SecretUsage = Schemas['SecretUsage']
export type Key = Schemas['Key']
export type IssuedKey = Schemas['IssuedKey']

/** Capacity of a pool: what GET /pools says without its runners. */
export type PoolUse = Omit<Pool, 'runners'>

/** Who is signed in: GET /session. */
export interface Session {
  authRequired: boolean
  signedIn: boolean
  version: string
  reason?: 'expired' | 'revoked'
  principal?: { subject: string; workspace: string; roles: string[]; via: string; scopes?: string[] }
  workspaces: { id: string; role?: string }[]
  expiresAt?: string
  idleExpiresAt?: string
}

export interface Outcomes {
  passed: number
  failed: number
  ungraded: number
  cancelled: number
  failures: Partial<Record<'infra' | 'config' | 'harness' | 'agent', number>>
  usd?: number
  usdRuns: number
  tokens?: number
  tokensRuns: number
  runs: number
}

/** The state of a workspace: GET /summary. */
export interface Summary {
  at: string
  runs: { queued: number; running: number; suspended: number }
  waiting: { why: string; reason: string; count: number; pool?: string; runId: string; since: string }[]
  runners: { total: number; online: number; busy: number; slots: number; degraded: number; updateRequired: number }
  pools: PoolUse[]
  hours: ({ at: string } & Outcomes)[]
  day: Outcomes
}

/** A part of a log: GET /runs/{id}/logs. */
export interface LogPage {
  status: Status
  found: boolean
  attempt?: number
  text: string
  offset: number
  next: number
  bytes: number
  truncated?: boolean
}

/** What a search of a log found, as far as it has come. */
export interface LogMatches {
  matches: { offset: number; column: number; text: string }[]
  next: number
  bytes: number
  done: boolean
}
