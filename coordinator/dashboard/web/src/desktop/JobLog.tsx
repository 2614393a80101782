/** The end of a job's log. What stands there an agent wrote: it becomes text nodes, as on the dashboard. */
import { useEffect, useLayoutEffect, useRef, useState } from 'react'
import { useStore } from '../data/store'
import { segments } from '../run/ansi'
import { Tail } from './logtail'

export function JobLog({ run, epoch }: { run: string; epoch: number }) {
  const [tail, setTail] = useState(() => new Tail())
  useEffect(() => {
    const t = new Tail()
    setTail(t)
    return t.follow(run, epoch)
  }, [run, epoch])
  return <Lines key={`${run}/${epoch}`} tail={tail} />
}

function Lines({ tail }: { tail: Tail }) {
  useStore(tail)
  const scroller = useRef<HTMLDivElement>(null)
  const atEnd = useRef(true)
  useLayoutEffect(() => {
    const el = scroller.current
    if (el && atEnd.current) el.scrollTop = el.scrollHeight
  }, [tail, tail.version])
  return (
    <div
      ref={scroller}
      className="tail"
      role="log"
      aria-label="Log"
      aria-live="off"
      tabIndex={0}
      onScroll={(e) => {
        const el = e.currentTarget
        atEnd.current = el.scrollHeight - el.scrollTop - el.clientHeight < 24
      }}
    >
      {tail.skipped && <div className="faint">… what came before is in the run’s evidence</div>}
      {tail.lines.length === 0 && <div className="faint">{tail.ended ? 'The job has ended.' : 'Nothing has been printed yet.'}</div>}
      {tail.lines.map((l) => (
        <div key={l.id} className="tail-line">
          {segments(l.text).map((s, i) => (s.className ? <span key={i} className={s.className}>{s.text}</span> : s.text))}
        </div>
      ))}
    </div>
  )
}
