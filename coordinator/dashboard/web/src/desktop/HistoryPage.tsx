/** The jobs of this computer that have ended. */
import { ExternalLink, History as HistoryIcon } from 'lucide-react'
import { duration, usd } from '../data/format'
import { failureWords } from '../data/outcome'
import { Ago, Badge, Button, Empty, ErrorNote, Skeleton } from '../ui/parts'
import { toast } from '../ui/toast'
import { tell, useRead } from './app'
import type { Entry, History, State } from './documents'
import { entryKey, outcomeWords } from './words'

export function HistoryPage({ state }: { state: State }) {
  const { data, error, again } = useRead<History>('api/history?limit=100', state.historyRev)
  const known = new Set(state.connections.map((c) => c.id))
  return (
    <div className="stack wide">
      <div className="desk-title">
        <h1>History</h1>
        {data && data.entries.length > 0 && <span className="faint">the last {data.entries.length} jobs of this computer</span>}
      </div>
      <ErrorNote error={error} retry={again} />
      <div className="card">
        {!data ? (
          !error && <Skeleton rows={4} />
        ) : data.entries.length === 0 ? (
          <Empty icon={HistoryIcon} title="No job has run here yet">
            What this computer takes is listed here when it has ended, with verdict and cost.
          </Empty>
        ) : (
          <ul className="entries">
            {data.entries.map((e) => (
              <EntryRow key={`${e.connection} ${entryKey(e)}`} e={e} several={known.size > 1} known={known.has(e.connection)} />
            ))}
          </ul>
        )}
      </div>
    </div>
  )
}

function EntryRow({ e, several, known }: { e: Entry; several: boolean; known: boolean }) {
  const [tone, word] = outcomeWords(e.outcome)
  return (
    <li>
      <Badge tone={tone}>{word}</Badge>
      <div className="entry-what">
        <strong className="wrap">{e.case}</strong>
        <span className="faint small-line wrap">
          {[e.harness, several || !known ? e.host : '', e.submitter ? `for ${e.submitter}` : ''].filter(Boolean).join(' · ')}
        </span>
        {e.failure && (
          <span className="small-line wrap ink-warn">
            {failureWords(e.failure)}: <span className="dim">{e.failure.message}</span>
          </span>
        )}
      </div>
      <div className="entry-numbers tnum">
        <span title="Cost, as the agent’s trace says">{usd(e.costUsd)}</span>
        <span className="faint small-line">
          {duration(e.durationMs)} · <Ago at={e.endedAt} />
        </span>
      </div>
      <Button look="bare small icon" aria-label={`Open ${e.case} in the browser`} title={known ? 'Open in the browser' : 'This computer is not connected to that coordinator any more'} disabled={!known} onClick={() => void tell('POST', 'api/visit', { connection: e.connection, run: e.run }).catch(toast.failed)}>
        <ExternalLink size={14} aria-hidden />
      </Button>
    </li>
  )
}
