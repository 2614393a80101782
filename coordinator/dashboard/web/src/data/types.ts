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

export type PoolUse = Schemas['PoolUse']
export type Session = Schemas['Session']
export type Outcomes = Schemas['Outcomes']
export type Summary = Schemas['Summary']
export type LogPage = Schemas['LogView']
export type LogMatches = Schemas['LogMatches']

// Pairing. TODO-REPLACE from schema
export type PairingStatus = 'pending' | 'approved' | 'denied' | 'done' | 'expired'
export interface Pairing { id: string; status: PairingStatus; label: string; os?: string; arch?: string; hostname?: string; version?: string; capabilities: string[]; from: string; number: string; headless?: boolean; requestedAt: string; expiresInSec: number; runner?: string }
export interface PairingApproval { pairing: Pairing; callback?: string; link?: string }
export interface PairCode { id: string; link?: string; number: string; status: 'waiting' | 'used' | 'spoilt' | 'expired'; expiresInSec: number; runner?: Runner }
