/** The trace as a timeline. Rows are drawn as they come into view: a hundred thousand are as light as ten. */
import { useVirtualizer } from '@tanstack/react-virtual'
import { ArrowDownToLine, Bot, Brain, ChevronRight, Cpu, FileBox, MessageSquare, ScrollText, Server, TriangleAlert, Wrench } from 'lucide-react'
import { useCallback, useEffect, useMemo, useRef, useState, type ReactNode } from 'react'
import { useMover } from '../app/keys'
import { count, duration, instant, short, usd } from '../data/format'
import { over } from '../data/outcome'
import { useStore } from '../data/store'
import type { Cost, Run } from '../data/types'
import { Button, CopyButton, cx, Empty, ErrorNote, SearchBox, Skeleton } from '../ui/parts'
import { plain } from './ansi'
import { visible } from './patch'
import { contains, headline, type Item, type Kind, type Trace } from './trace'
import { Strip } from './Strip'

const groups: [Kind, string][] = [
  ['message', 'Messages'],
  ['tool', 'Tools'],
  ['model', 'Model'],
  ['env', 'Environment'],
  ['error', 'Errors'],
  ['infra', 'Placement'],
  ['other', 'Other'],
]

export function TraceView({ run, trace }: { run: Run; trace: Trace }) {
  useStore(trace)
  const [hidden, setHidden] = useState<ReadonlySet<Kind>>(new Set())
  const [text, setText] = useState('')
  const wanted = text.trim().toLowerCase()
  const [follow, setFollow] = useState(!over(run.status))
  const all = trace.line.items
  const length = all.length
  const version = trace.version
  const items = useFiltered(all, version, hidden, wanted)
  const counts = useMemo(() => {
    const n = {} as Record<Kind, number>
    for (const i of all) n[i.kind] = (n[i.kind] ?? 0) + 1
    return n
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [all, length])
  const list = useRef<ListHandle>(null)
  if (trace.error && !length) return <ErrorNote error={trace.error} retry={() => void trace.load()} />
  if (!trace.loaded && !length) return <Skeleton rows={7} />
  if (!length) {
    return (
      <Empty icon={ScrollText} title={over(run.status) ? 'This run left no trace' : 'Nothing has happened yet'}>
        {over(run.status) ? 'It ended before its agent did anything that is recorded; the failure above and the log say more.' : 'Steps appear here as the agent takes them.'}
      </Empty>
    )
  }
  const base = all.find((i) => !Number.isNaN(i.at))?.at ?? 0
  return (
    <div className="trace">
      <div className="evidence-bar">
        <div className="row wraps grow" role="group" aria-label="Kinds of events">
          {groups
            .filter(([k]) => counts[k])
            .map(([k, name]) => (
              <button
                key={k}
                type="button"
                className="chip"
                aria-pressed={!hidden.has(k)}
                onClick={() => {
                  const next = new Set(hidden)
                  if (!next.delete(k)) next.add(k)
                  setHidden(next)
                }}
              >
                {name} <span className="tnum faint">{count(counts[k])}</span>
              </button>
            ))}
        </div>
        <div className="evidence-search">
          <SearchBox value={text} onChange={setText} label="Search the trace" />
        </div>
        {!over(run.status) && (
          <Button look="small" aria-pressed={follow} onClick={() => setFollow(!follow)}>
            <ArrowDownToLine size={14} aria-hidden /> {follow ? 'Following' : 'Follow'}
          </Button>
        )}
      </div>
      <Strip items={all} version={version} jump={(i) => list.current?.show(items.findIndex((x) => x.index >= i))} />
      {wanted && (
        <div className="card-note" role="status">
          {count(items.length)} of {count(length)} events
        </div>
      )}
      <ErrorNote error={trace.error} retry={() => void trace.load()} />
      <List ref={list} items={items} base={base} follow={follow && !over(run.status)} unfollow={() => setFollow(false)} />
      {trace.loading && (
        <div className="card-note" role="status">
          Reading events: {count(trace.line.events)} of {count(trace.total)}
        </div>
      )}
    </div>
  )
}

/** How long a part of a search may hold up the page, in milliseconds. */
const searchSlice = 8

/** The rows that are wanted. A search of many goes on in parts, so that one can type meanwhile. */
function useFiltered(all: Item[], version: number, hidden: ReadonlySet<Kind>, wanted: string): Item[] {
  const kinds = useMemo(
    () => (hidden.size === 0 ? all : all.filter((i) => !hidden.has(i.kind))),
    // The list grows in place: its version is what changes.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [all, version, hidden],
  )
  const [found, setFound] = useState<Item[]>([])
  useEffect(() => {
    if (!wanted) return
    let at = 0
    let timer: ReturnType<typeof setTimeout> | undefined
    let hits: Item[] = []
    const part = () => {
      const end = performance.now() + searchSlice
      do {
        for (const until = Math.min(at + 64, kinds.length); at < until; at++) {
          if (contains(kinds[at]!, wanted)) hits.push(kinds[at]!)
        }
      } while (at < kinds.length && performance.now() < end)
      hits = hits.slice()
      setFound(hits)
      if (at < kinds.length) timer = setTimeout(part)
    }
    timer = setTimeout(part)
    return () => clearTimeout(timer)
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [kinds, version, wanted])
  return wanted ? found : kinds
}

interface ListHandle {
  show: (i: number) => void
}

function List({ ref, items, base, follow, unfollow }: { ref: React.Ref<ListHandle>; items: Item[]; base: number; follow: boolean; unfollow: () => void }) {
  const scroller = useRef<HTMLDivElement>(null)
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set())
  const active = useRef(-1)
  // Functions that stay the same: with new ones all sizes would be added up at each step of a scroll.
  const estimateSize = useCallback((i: number) => 34 + (items[i]?.gap ? 26 : 0), [items])
  const getItemKey = useCallback((i: number) => items[i]?.index ?? i, [items])
  const virtual = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize,
    overscan: 10,
    getItemKey,
  })
  const show = (i: number) => {
    if (i < 0) return
    active.current = i
    virtual.scrollToIndex(i, { align: 'center' })
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-index="${i}"] .event-head`)?.focus())
  }
  useEffect(() => {
    const handle = { show }
    if (typeof ref === 'function') ref(handle)
    else if (ref) (ref as { current: ListHandle | null }).current = handle
  })
  useMover((by) => {
    const to = Math.min(items.length - 1, Math.max(0, active.current + by))
    active.current = to
    virtual.scrollToIndex(to)
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-index="${to}"] .event-head`)?.focus())
  })
  useEffect(() => {
    if (follow && items.length) virtual.scrollToIndex(items.length - 1, { align: 'end' })
  }, [follow, items.length, virtual])
  const toggle = useCallback((index: number) => {
    setOpen((old) => {
      const next = new Set(old)
      if (!next.delete(index)) next.add(index)
      return next
    })
  }, [])
  return (
    <div
      ref={scroller}
      className="trace-scroll"
      role="list"
      aria-label="Events"
      tabIndex={0}
      onWheel={(e) => {
        if (follow && e.deltaY < 0) unfollow()
      }}
    >
      <div className="trace-space" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((v) => {
          const item = items[v.index]!
          return (
            <div
              key={v.key}
              role="listitem"
              aria-setsize={items.length}
              aria-posinset={v.index + 1}
              data-index={v.index}
              ref={virtual.measureElement}
              className="event"
              style={{ transform: `translateY(${v.start}px)` }}
              onFocus={() => {
                active.current = v.index
              }}
            >
              <EventRow item={item} base={base} open={open.has(item.index)} toggle={toggle} />
            </div>
          )
        })}
      </div>
    </div>
  )
}

function iconOf(item: Item): ReactNode {
  const props = { size: 15, strokeWidth: 1.9, 'aria-hidden': true } as const
  const e = item.event
  switch (e.kind) {
    case 'message':
      return e.role === 'user' ? <MessageSquare {...props} /> : <Bot {...props} />
    case 'llm_call':
      return <Brain {...props} />
    case 'tool_call':
    case 'tool_result':
      return <Wrench {...props} />
    case 'error':
      return <TriangleAlert {...props} />
    case 'infra':
      return <Server {...props} />
    case 'artifact':
      return <FileBox {...props} />
    case 'log':
      return <ScrollText {...props} />
    default:
      return <Cpu {...props} />
  }
}

function nameOf(item: Item): string {
  const e = item.event
  switch (e.kind) {
    case 'message':
      return e.role === 'user' ? 'Task' : 'Agent'
    case 'llm_call':
      return 'Model call'
    case 'tool_call':
      return e.name ?? 'tool'
    case 'tool_result':
      return 'Result'
    case 'env_action':
      return 'Environment'
    case 'error':
      return 'Error'
    case 'log':
      return e.stream ?? 'log'
    case 'infra':
      return e.scope === 'service' ? 'Service' : 'Placement'
    default:
      return e.kind
  }
}

/** Since the first event: 14 ms, 0:03.2, 1:02:03.4. */
export function offset(ms: number): string {
  if (Number.isNaN(ms)) return ''
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`
  const s = Math.max(0, ms) / 1000
  const m = Math.floor(s / 60)
  const h = Math.floor(m / 60)
  const rest = (s % 60).toFixed(1).padStart(4, '0')
  return h ? `${h}:${String(m % 60).padStart(2, '0')}:${rest}` : `${m}:${rest}`
}

function tokensOf(c: Cost | undefined): string {
  if (!c || (c.inputTokens === undefined && c.outputTokens === undefined)) return ''
  const cached = (c.cacheReadTokens ?? 0) + (c.cacheWriteTokens ?? 0)
  return `${short(c.inputTokens)} in${cached ? ` + ${short(cached)} cached` : ''}, ${short(c.outputTokens)} out`
}

function EventRow({ item, base, open, toggle }: { item: Item; base: number; open: boolean; toggle: (index: number) => void }) {
  const e = item.event
  const failed = item.result?.ok === false || (e.kind === 'tool_result' && e.ok === false) || e.kind === 'error'
  return (
    <>
      {item.gap !== undefined && (
        <div className="gap">
          <span>nothing for {duration(item.gap)}</span>
        </div>
      )}
      <button type="button" className={cx('event-head', `kind-${item.kind}`, failed && 'failed')} aria-expanded={open} data-row="" onClick={() => toggle(item.index)}>
        <span className="at tnum" title={Number.isNaN(item.at) ? undefined : instant(new Date(item.at))}>
          {offset(item.at - base)}
        </span>
        <span className="icon">{iconOf(item)}</span>
        <span className="name">{visible(nameOf(item))}</span>
        <span className="line clip">{visible(plain(headline(item)))}</span>
        <span className="meta tnum">
          {failed && <span className="ink-bad">{e.kind === 'error' ? '' : 'failed'}</span>}
          {e.kind === 'llm_call' && <span>{tokensOf(e.cost)}</span>}
          {e.kind === 'llm_call' && e.cost?.usd !== undefined && <span>{usd(e.cost.usd)}</span>}
          {e.kind === 'tool_call' && !item.result && <span className="faint">no result</span>}
          {item.took !== undefined && <span className="took">{duration(item.took)}</span>}
          <ChevronRight size={14} className={open ? 'turned' : ''} aria-hidden />
        </span>
      </button>
      {open && <Detail item={item} />}
    </>
  )
}

function Detail({ item }: { item: Item }) {
  const e = item.event
  return (
    <div className="event-detail">
      {e.text !== undefined && e.text !== null && <Block name={e.kind === 'message' ? 'Text' : 'Output'} text={e.text} prose={e.kind === 'message'} />}
      {e.message && <Block name="Message" text={e.message} prose />}
      {e.kind === 'llm_call' && <ModelCall item={item} />}
      {e.args !== undefined && e.args !== null && <Args args={e.args} />}
      {e.output !== undefined && e.output !== null && <Block name="Output" text={e.output} />}
      {item.result && <Block name={item.result.ok === false ? 'Result: failed' : 'Result'} text={item.result.output ?? ''} bad={item.result.ok === false} />}
      {e.detail !== undefined && e.detail !== null && <Block name="Detail" text={textOf(e.detail)} />}
      {e.attributes !== undefined && e.attributes !== null && <Block name="Attributes" text={textOf(e.attributes)} />}
      {(e.ref || e.mediaType) && <Block name="Artifact" text={[e.ref, e.mediaType].filter(Boolean).join('\n')} />}
      {(e.unit || e.node) && <Block name="Where" text={[e.unit, e.node].filter(Boolean).join('\n')} />}
      {(e.truncated || item.result?.truncated) && <p className="faint">It was longer than an event may be, and was cut.</p>}
    </div>
  )
}

const textOf = (v: unknown): string => (typeof v === 'string' ? v : JSON.stringify(v, null, 2))

function Args({ args }: { args: unknown }) {
  if (typeof args !== 'object' || args === null) return <Block name="Arguments" text={textOf(args)} />
  return (
    <>
      {Object.entries(args as Record<string, unknown>).map(([k, v]) => (
        <Block key={k} name={k} text={textOf(v)} />
      ))}
    </>
  )
}

function ModelCall({ item }: { item: Item }) {
  const c = item.event.cost
  const rows: [string, string][] = [
    ['Model', item.event.model ?? '–'],
    ['Input', count(c?.inputTokens)],
    ['Cache read', count(c?.cacheReadTokens)],
    ['Cache write', count(c?.cacheWriteTokens)],
    ['Output', count(c?.outputTokens)],
    ['of it reasoning', count(c?.reasoningTokens)],
    ['Cost', usd(c?.usd)],
    ['Latency', duration(item.event.latencyMs ?? item.took)],
  ]
  return (
    <dl className="inline-facts">
      {rows.map(([k, v]) => (
        <div key={k}>
          <dt>{k}</dt>
          <dd className="tnum">{visible(v)}</dd>
        </div>
      ))}
    </dl>
  )
}

const blockChars = 20_000

function Block({ name, text, prose, bad }: { name: string; text: string; prose?: boolean; bad?: boolean }) {
  const [whole, setWhole] = useState(false)
  const clean = useMemo(() => visible(text.split('\n').map(plain).join('\n')), [text])
  const cut = !whole && clean.length > blockChars
  return (
    <div className={cx('block-wrap', bad && 'bad')}>
      <div className="block-name">
        <span className="clip">{visible(name)}</span>
        <CopyButton text={text} />
      </div>
      <pre className={cx('block', prose && 'prose')} tabIndex={0} aria-label={name}>
        {clean === '' ? <span className="faint">(empty)</span> : cut ? clean.slice(0, blockChars) : clean}
      </pre>
      {cut && (
        <Button look="small" onClick={() => setWhole(true)}>
          Show all {count(clean.length)} characters
        </Button>
      )}
    </div>
  )
}
