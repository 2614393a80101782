/** The log: a window of lines of a fixed height, so that its length does not matter. */
import { ArrowDown, ArrowDownToLine, ArrowUp, ArrowUpToLine, ScrollText } from 'lucide-react'
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react'
import { usePageKeys } from '../app/keys'
import { get, query, seg } from '../data/client'
import { bytes, count } from '../data/format'
import { over } from '../data/outcome'
import { useStore } from '../data/store'
import type { LogMatches, Run } from '../data/types'
import { Button, Empty, ErrorNote, SearchBox, Segments, Skeleton } from '../ui/parts'
import { plain, segments } from './ansi'
import { shown, type LogWindow } from './logwindow'

const lineHeight = 20
const near = 60

export function LogView({ run, log, choose }: { run: Run; log: LogWindow; choose: (stream: string) => void }) {
  useStore(log)
  const scroller = useRef<HTMLDivElement>(null)
  const [follow, setFollow] = useState(!over(run.status))
  const [view, setView] = useState({ top: 0, height: 600 })
  const total = log.lineCount
  const search = useSearch(run.id, log.stream)
  const [marked, setMarked] = useState<number | undefined>()

  const onScroll = useCallback(() => {
    const el = scroller.current
    if (!el) return
    setView({ top: el.scrollTop, height: el.clientHeight })
    const from = Math.floor(el.scrollTop / lineHeight)
    if (from < near) void log.extend('before')
    if (log.lineCount - from - el.clientHeight / lineHeight < near) void log.extend('after')
  }, [log])

  useLayoutEffect(() => {
    const el = scroller.current
    if (!el) return
    // Lines came or went above: stay with what is being read.
    const shift = log.takeShift()
    if (shift) el.scrollTop += shift * lineHeight
    if (follow) el.scrollTop = el.scrollHeight
    onScroll()
  }, [log, log.version, follow, onScroll])

  useEffect(() => {
    const el = scroller.current
    if (!el) return
    const observer = new ResizeObserver(() => setView({ top: el.scrollTop, height: el.clientHeight }))
    observer.observe(el)
    return () => observer.disconnect()
  }, [log.loaded, total > 0])

  const to = useCallback(
    async (where: number | 'end') => {
      setFollow(false)
      const inside = where === 'end' ? log.atEnd : where >= log.start && where < log.end
      if (!inside) await log.jump(where === 'end' || where === 0 ? where : Math.max(0, where - 16 * 1024))
      const el = scroller.current
      if (!el) return
      if (where === 'end') el.scrollTop = el.scrollHeight
      else {
        const line = log.lineOf(where)
        setMarked(where === 0 ? undefined : where)
        requestAnimationFrame(() => {
          el.scrollTop = Math.max(0, line * lineHeight - el.clientHeight / 2)
          onScroll()
        })
      }
    },
    [log, onScroll],
  )
  useEffect(() => {
    if (search.current !== undefined) void to(search.current.offset)
  }, [search.current, to])
  usePageKeys({
    G: { name: 'End of the log', run: () => void to('end') },
    n: { name: 'Next match', run: () => search.step(1) },
    N: { name: 'Match before', run: () => search.step(-1) },
  })

  if (log.error && !log.loaded) return <ErrorNote error={log.error} retry={() => void log.jump('end')} />
  if (!log.loaded) return <Skeleton rows={7} />
  const empty = !log.found || log.bytes === 0
  const from = Math.max(0, Math.floor(view.top / lineHeight) - 10)
  const until = Math.min(total, Math.ceil((view.top + view.height) / lineHeight) + 10)
  const lines = []
  const markedLine = marked !== undefined && marked >= log.start && marked < log.end ? log.lineOf(marked) : -1
  for (let i = from; i < until; i++) {
    lines.push(<Line key={log.start + ':' + i} text={log.line(i)} top={i * lineHeight} number={log.firstLine === undefined ? undefined : log.firstLine + i} find={search.text} marked={i === markedLine} />)
  }
  return (
    <div className="log">
      <div className="evidence-bar">
        <Segments
          label="Stream"
          value={log.stream}
          options={[
            ['', 'Both'],
            ['stdout', 'stdout'],
            ['stderr', 'stderr'],
          ]}
          onChange={choose}
        />
        <span className="faint tnum grow" role="status">
          {bytes(log.bytes)}
          {!log.atStart || !log.atEnd ? `, showing ${bytes(log.end - log.start)} from ${bytes(log.start)}` : `, ${count(total)} lines`}
          {log.loading !== 'none' ? ' · reading…' : ''}
        </span>
        <form
          className="evidence-search row"
          onSubmit={(e) => {
            e.preventDefault()
            search.step(1)
          }}
        >
          <div className="grow">
            <SearchBox value={search.typed} onChange={search.type} label="Search the log" />
          </div>
          {search.text && (
            <>
              <span className="faint tnum nowrap" role="status">
                {search.state}
              </span>
              <Button look="bare small icon" aria-label="Match before" onClick={() => search.step(-1)}>
                <ArrowUp size={14} aria-hidden />
              </Button>
              <Button look="bare small icon" aria-label="Next match" onClick={() => search.step(1)}>
                <ArrowDown size={14} aria-hidden />
              </Button>
            </>
          )}
        </form>
        <Button look="small icon" aria-label="Beginning of the log" title="Beginning" onClick={() => void to(0)}>
          <ArrowUpToLine size={14} aria-hidden />
        </Button>
        {over(run.status) ? (
          <Button look="small icon" aria-label="End of the log" title="End" onClick={() => void to('end')}>
            <ArrowDownToLine size={14} aria-hidden />
          </Button>
        ) : (
          <Button
            look="small"
            aria-pressed={follow}
            onClick={() => {
              if (follow) setFollow(false)
              else void to('end').then(() => setFollow(true))
            }}
          >
            <ArrowDownToLine size={14} aria-hidden /> {follow ? 'Following' : 'Follow'}
          </Button>
        )}
      </div>
      <ErrorNote error={search.error} />
      <ErrorNote error={log.error} retry={() => void log.jump('end')} />
      {empty ? (
        <Empty icon={ScrollText} title={over(run.status) ? 'The log is empty' : 'Nothing has been printed yet'}>
          {over(run.status) ? 'The agent printed nothing' + (log.stream ? ` to ${log.stream}.` : '.') : 'Lines appear here as they are written.'}
        </Empty>
      ) : (
        <>
          {!(log.atStart && log.atEnd) && <Place log={log} to={(n) => void to(n)} />}
          <div
            ref={scroller}
            className="log-scroll"
            role="log"
            aria-label="Log"
            aria-live="off"
            tabIndex={0}
            onScroll={onScroll}
            onWheel={(e) => {
              if (follow && e.deltaY < 0) setFollow(false)
            }}
            onKeyDown={(e) => {
              if (follow && ['ArrowUp', 'PageUp', 'Home'].includes(e.key)) setFollow(false)
            }}
          >
            <div className="log-space" style={{ height: total * lineHeight }}>
              {lines}
            </div>
          </div>
        </>
      )}
    </div>
  )
}

/** Where the window lies in a log that is longer than it: a slider over all of its bytes. */
function Place({ log, to }: { log: LogWindow; to: (offset: number) => void }) {
  const [drag, setDrag] = useState<number | undefined>()
  const steps = 1000
  const value = drag ?? Math.round((log.start / Math.max(1, log.bytes)) * steps)
  const go = () => {
    if (drag === undefined) return
    to(Math.floor((drag / steps) * log.bytes))
    setDrag(undefined)
  }
  return (
    <div className="log-place">
      <input type="range" min={0} max={steps} value={value} aria-label="Place in the log" aria-valuetext={bytes(Math.floor((value / steps) * log.bytes))} onChange={(e) => setDrag(Number(e.target.value))} onPointerUp={go} onKeyUp={go} />
      <span className="faint tnum nowrap">
        {drag === undefined ? '' : `${bytes(Math.floor((drag / steps) * log.bytes))} of `}
        {bytes(log.bytes)}
      </span>
    </div>
  )
}

const Line = memo(function Line({ text, top, number, find, marked }: { text: string; top: number; number: number | undefined; find: string; marked: boolean }) {
  const { text: part, cut } = shown(text)
  const gap = /^\[\d+ bytes lost: .*\]$/.test(part)
  return (
    <div className={`log-line${marked ? ' marked' : ''}${gap ? ' lost' : ''}`} style={{ transform: `translateY(${top}px)` }}>
      <span className="no">{number}</span>
      <span className="tx">
        {find ? <Found text={plain(part)} find={find} /> : segments(part).map((s, i) => (s.className ? <span key={i} className={s.className}>{s.text}</span> : s.text))}
        {cut > 0 && <span className="faint"> … {count(cut)} more characters; the download has them</span>}
      </span>
    </div>
  )
})

function Found({ text, find }: { text: string; find: string }) {
  const out = []
  const low = text.toLowerCase()
  const want = find.toLowerCase()
  let at = 0
  for (let i = low.indexOf(want); i >= 0 && out.length < 200; i = low.indexOf(want, at)) {
    out.push(text.slice(at, i), <mark key={i}>{text.slice(i, i + want.length)}</mark>)
    at = i + want.length
  }
  out.push(text.slice(at))
  return <>{out}</>
}

/** Searches the whole log on the coordinator, a part at a time. */
function useSearch(run: string, stream: string) {
  const [typed, type] = useState('')
  const [text, setText] = useState('')
  const [matches, setMatches] = useState<LogMatches['matches']>([])
  const [done, setDone] = useState(false)
  const [progress, setProgress] = useState(0)
  const [index, setIndex] = useState(-1)
  const [error, setError] = useState<unknown>()
  useEffect(() => {
    const t = setTimeout(() => setText(typed), 250)
    return () => clearTimeout(t)
  }, [typed])
  useEffect(() => {
    setMatches([])
    setIndex(-1)
    setDone(false)
    setError(undefined)
    if (!text) return
    const stop = new AbortController()
    const walk = async () => {
      let offset = 0
      for (let found = 0; found < 5000; ) {
        const p = await get<LogMatches>(query(`/runs/${seg(run)}/logs/search`, { q: text, offset, limit: 500, stream }), stop.signal)
        found += p.matches.length
        setMatches((old) => old.concat(p.matches))
        setProgress(p.bytes ? p.next / p.bytes : 1)
        if (offset === 0 && p.matches.length) setIndex(0)
        if (p.done || p.next <= offset) break
        offset = p.next
      }
      setDone(true)
    }
    walk().catch((e: unknown) => {
      if (!stop.signal.aborted) setError(e)
    })
    return () => stop.abort()
  }, [text, run, stream])
  const current = useMemo(() => matches[index], [matches[index], index])
  return {
    typed,
    type,
    text,
    error,
    current,
    state: matches.length ? `${Math.max(0, index) + 1} of ${count(matches.length)}${done ? '' : '+'}` : done ? 'nothing found' : `searching ${Math.round(progress * 100)} %`,
    step: (by: 1 | -1) => {
      if (matches.length) setIndex((i) => (i + by + matches.length) % matches.length)
    },
  }
}
