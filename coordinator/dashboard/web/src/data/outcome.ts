import type { Failure, Run } from './types'

/** What a run has come to, in the words and colours that the pages use. */
export type Tone = 'good' | 'bad' | 'warn' | 'active' | 'wait' | 'hold' | 'mute'

export interface Outcome {
  tone: Tone
  label: string
}

/** Whether a status never changes again. */
export function over(status: string): boolean {
  return status === 'succeeded' || status === 'failed'
}

export function outcome(run: Pick<Run, 'status' | 'verdict' | 'failure' | 'error'>): Outcome {
  switch (run.status) {
    case 'queued':
      return { tone: 'wait', label: 'Queued' }
    case 'running':
      return { tone: 'active', label: 'Running' }
    case 'suspended':
      return { tone: 'hold', label: 'Needs you' }
    case 'succeeded':
      if (run.verdict === true) return { tone: 'good', label: 'Passed' }
      if (run.verdict === false) return { tone: 'bad', label: 'Not passed' }
      return { tone: 'mute', label: 'Ungraded' }
    default:
      if (run.error?.code === 'CANCELLED') return { tone: 'mute', label: run.failure?.reason === 'rejected' ? 'Rejected' : 'Cancelled' }
      return { tone: 'warn', label: 'Failed' }
  }
}

/** A failure in a few words: timeout, out of memory, ... */
export function failureWords(f: Pick<Failure, 'class' | 'reason'>): string {
  const known: Record<string, string> = {
    oom: 'out of memory',
    pids_exhausted: 'too many processes',
    disk_full: 'disk full',
    api_error: "the model's API failed",
    unschedulable: 'nobody took it',
    unsupported_by_runner: 'unsupported by the runner',
    coordinator_restart: 'coordinator restarted',
    malformed_job: 'malformed job',
  }
  return known[f.reason] ?? f.reason.replaceAll('_', ' ')
}
