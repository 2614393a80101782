/** The documents of the desktop app, as package desktop/control has them. A Go test of desktop/page holds these against those. */

export type Status = 'none' | 'paused' | 'connecting' | 'connected' | 'idle' | 'running' | 'attention'
export type Phase = 'prepare' | 'install' | 'run' | 'collect' | 'grade'
export type Outcome = 'passed' | 'failed' | 'unjudged' | 'error' | 'cancelled' | 'returned' | 'lost'
export type KeyPlace = 'keyring' | 'file'

export interface State {
  rev: number
  version: string
  device: Device
  status: Status
  text: string
  connections: Connection[]
  pairing: Pairing | null
  question: Question | null
  settings: Settings
  keys: Keys
  power: Power
  notices: Notice[]
  historyRev: number
  machineRev: number
}

export interface Device {
  name: string
  os: string
  arch: string
}

export interface Account {
  subject: string
  workspace: string
}

export interface Connection {
  id: string
  coordinator: string
  host: string
  account: Account
  runner: string
  label: string
  target: string
  pairedAt: string
  status: Status
  reason?: string
  text: string
  next?: string
  online: boolean
  paused: boolean
  pauses?: string[]
  canResume: boolean
  canRetry: boolean
  retryAt?: string
  resumesAt?: string
  jobs: Job[]
  undelivered: number
  settings: ConnectionSettings
  key: KeyPlace
}

export interface Job {
  run: string
  epoch: number
  case: string
  harness: string
  submitter?: string
  workspace: string
  phase: Phase
  held: boolean
  actsAsYou: boolean
  startedAt: string
  url: string
}

export interface Entry {
  connection: string
  host: string
  run: string
  epoch: number
  case: string
  harness: string
  submitter?: string
  workspace: string
  startedAt: string
  endedAt: string
  durationMs: number
  outcome: Outcome
  verdict: boolean | null
  costUsd: number | null
  failure?: EntryFailure
  url: string
}

export interface EntryFailure {
  stage: string
  class: string
  reason: string
  message: string
}

export interface History {
  rev: number
  entries: Entry[]
}

export interface Machine {
  rev: number
  at: string
  version: string
  os: string
  arch: string
  canWork: boolean
  capabilities: string[]
  checks: Check[]
}

/** One finding of agent/doctor. */
export interface Check {
  id: string
  capability: boolean
  status: 'ok' | 'warn' | 'missing'
  required: boolean
  evidence: string
  mend?: string
  tookMs: number
}

export interface Pairing {
  coordinator: string
  host: string
  status: 'contacting' | 'waiting' | 'redeeming' | 'done' | 'failed'
  byLink: boolean
  number?: string
  url?: string
  expiresAt?: string
  text: string
  next?: string
  connection?: string
}

export interface Question {
  id: string
  coordinator: string
  host: string
  account: Account
  known?: string
  expiresAt: string
}

export interface PairRequest {
  coordinator: string
  label?: string
  replace?: boolean
}

export interface Answer {
  question: string
  connect: boolean
  number?: string
  label?: string
  replace?: boolean
  instead?: boolean
}

export interface PauseRequest {
  connection?: string
  stop?: boolean
}

export interface ResumeRequest {
  connection?: string
}

export interface Unpaired {
  told: boolean
  text: string
}

export interface Settings {
  hours: Hours[]
  pauseOnBattery: boolean
  startAtLogin: boolean
  notifications: boolean
  appearance: string
}

export interface Hours {
  days: string[]
  from: string
  to: string
}

export interface ConnectionSettings {
  slots: number
  sandbox: string
  image?: string
  onlyMine: boolean
  understood?: boolean
}

export interface Keys {
  place: KeyPlace
  keyring: boolean
  warning?: string
}

export interface KeyMove {
  place: KeyPlace
}

export interface Power {
  known: boolean
  onBattery: boolean
}

export interface Notice {
  id: string
  text: string
  next?: string
  level: string
  at: string
}

export interface NoticeDismissal {
  id: string
}

export interface QuitRequest {
  force?: boolean
}

export interface VisitRequest {
  connection: string
  run?: string
}

export interface LogChunk {
  text: string
  skipped?: boolean
}
