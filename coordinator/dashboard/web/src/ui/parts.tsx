/** The small parts that pages are put together from. */
import {
  AlertTriangle, Ban, Check, CheckCircle2, Circle, CircleDashed, Clock, Copy, Hand, LoaderCircle, Search as SearchIcon, TriangleAlert, X, XCircle,
} from 'lucide-react'
import { useEffect, useId, useRef, useState, useSyncExternalStore, type ComponentProps, type ReactNode } from 'react'
import { ApiError } from '../data/client'
import { ago, instant } from '../data/format'
import { outcome, type Tone } from '../data/outcome'
import type { Run } from '../data/types'

export const cx = (...names: (string | false | undefined | null)[]): string => names.filter(Boolean).join(' ')

const toneIcons: Record<Tone, typeof Circle> = { good: CheckCircle2, bad: XCircle, warn: TriangleAlert, active: LoaderCircle, wait: Clock, hold: Hand, mute: Ban }

export function Badge({ tone, children, large, icon = true }: { tone: Tone; children: ReactNode; large?: boolean; icon?: boolean }) {
  const Icon = children === 'Ungraded' ? CircleDashed : toneIcons[tone]
  return (
    <span className={cx('badge', `tone-${tone}`, large && 'large')}>
      {icon && <Icon size={large ? 16 : 13} strokeWidth={2.2} aria-hidden className={tone === 'active' ? 'spin' : undefined} />}
      {children}
    </span>
  )
}

export function RunBadge({ run, large = false }: { run: Pick<Run, 'status' | 'verdict' | 'failure' | 'error'>; large?: boolean }) {
  const o = outcome(run)
  return (
    <Badge tone={o.tone} large={large}>
      {o.label}
    </Badge>
  )
}

type ButtonProps = ComponentProps<'button'> & { look?: string; busy?: boolean }

export function Button({ look, busy, className, children, disabled, ...rest }: ButtonProps) {
  return (
    <button type="button" className={cx('button', look, className)} disabled={disabled || busy} {...rest}>
      {busy && <LoaderCircle size={14} className="spin" aria-hidden />}
      {children}
    </button>
  )
}

/** One clock for all relative times: a page of a thousand has one timer. */
let clockNow = Date.now()
const clockListeners = new Set<() => void>()
let clockTimer: ReturnType<typeof setInterval> | undefined
function watchClock(fn: () => void): () => void {
  clockListeners.add(fn)
  if (clockTimer === undefined) clockNow = Date.now() // it stood while nobody looked
  clockTimer ??= setInterval(() => {
    clockNow = Date.now()
    for (const l of clockListeners) l()
  }, 1000)
  return () => {
    clockListeners.delete(fn)
    if (clockListeners.size === 0) {
      clearInterval(clockTimer)
      clockTimer = undefined
    }
  }
}

/** Now, to the second. */
export function useNow(): number {
  return useSyncExternalStore(watchClock, () => clockNow, () => clockNow)
}

/** A time that is told from now; the whole of it, with the zone, on hover. */
export function Ago({ at, className }: { at: string | undefined; className?: string }) {
  // A string from the clock changes only when what is shown does.
  const text = useSyncExternalStore(watchClock, () => (at ? ago(Date.parse(at), Math.max(clockNow, Date.now())) : '–'))
  if (!at) return <span className="faint">–</span>
  return (
    <time dateTime={at} title={instant(new Date(at))} className={cx('tnum nowrap', className)}>
      {text}
    </time>
  )
}

/** What is wrong, and what to do about it. */
export function ErrorNote({ error, title, retry }: { error: unknown; title?: string; retry?: () => void }) {
  if (!error) return null
  const e = error instanceof Error ? error : new Error(String(error))
  const api = e instanceof ApiError ? e : undefined
  const faults = api?.data?.['faults']
  return (
    <div className="note error" role="alert">
      <AlertTriangle size={16} aria-hidden />
      <div className="grow stack tight">
        <div className="wrap">
          {title && <strong>{title} </strong>}
          {e.message}
        </div>
        {Array.isArray(faults) && faults.length > 1 && (
          <ul className="stack tight">
            {faults.map((f, i) => (
              <li key={i} className="wrap">
                – {typeof f === 'string' ? f : JSON.stringify(f)}
              </li>
            ))}
          </ul>
        )}
        <div className="next wrap">{api?.hint ?? 'Try again; if it stays, the coordinator’s log says more.'}</div>
        {api?.requestId && (
          <div className="faint">
            Request <code>{api.requestId}</code>
          </div>
        )}
      </div>
      {retry && (
        <Button look="small" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  )
}

export function Empty({ icon: Icon = Circle, title, children, actions }: { icon?: typeof Circle; title: string; children?: ReactNode; actions?: ReactNode }) {
  return (
    <div className="empty">
      <Icon size={28} strokeWidth={1.5} aria-hidden />
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {actions && <div className="row">{actions}</div>}
    </div>
  )
}

const widths = ['w40', 'w60', 'w30', 'w50', 'w45']

export function Skeleton({ rows = 5 }: { rows?: number }) {
  return (
    <div className="skeleton-rows" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, i) => (
        <div key={i}>
          <span className="skeleton w8" />
          <span className={cx('skeleton', widths[i % widths.length])} />
          <span className="skeleton w8 push" />
        </div>
      ))}
    </div>
  )
}

export function CopyButton({ text, label = 'Copy', look = 'bare small icon', children }: { text: string | (() => string); label?: string; look?: string; children?: ReactNode }) {
  const [done, setDone] = useState<'no' | 'yes' | 'failed'>('no')
  useEffect(() => {
    if (done === 'no') return
    const t = setTimeout(() => setDone('no'), 1600)
    return () => clearTimeout(t)
  }, [done])
  const copy = () => {
    navigator.clipboard
      .writeText(typeof text === 'function' ? text() : text)
      .then(() => setDone('yes'))
      .catch(() => setDone('failed'))
  }
  const said = done === 'yes' ? 'Copied' : done === 'failed' ? 'The browser did not allow it: select the text' : label
  return (
    <Button look={look} onClick={copy} aria-label={children ? undefined : said} title={said}>
      {done === 'yes' ? <Check size={14} aria-hidden /> : <Copy size={14} aria-hidden />}
      {children && (done === 'yes' ? 'Copied' : children)}
      <span className="visually-hidden" aria-live="polite">
        {done === 'no' ? '' : said}
      </span>
    </Button>
  )
}

/** A piece of text to copy: commands, JSON. */
export function Snippet({ text, wrapped = false, label = 'Text' }: { text: string; wrapped?: boolean; label?: string }) {
  return (
    <div className={cx('snippet', wrapped && 'wrapped')}>
      <pre tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <CopyButton text={text} />
    </div>
  )
}

export function Field({ label, hint, children, span }: { label: string; hint?: ReactNode; children: (id: string) => ReactNode; span?: boolean }) {
  const id = useId()
  return (
    <div className={cx('field', span && 'span')}>
      <label htmlFor={id}>{label}</label>
      {children(id)}
      {hint && <div className="hint">{hint}</div>}
    </div>
  )
}

export function SearchBox({ value, onChange, label, placeholder, hotkey = true }: { value: string; onChange: (v: string) => void; label: string; placeholder?: string; hotkey?: boolean }) {
  return (
    <div className="search">
      <SearchIcon size={14} aria-hidden />
      <input
        className="input"
        type="search"
        value={value}
        aria-label={label}
        placeholder={placeholder ?? label}
        spellCheck={false}
        autoComplete="off"
        data-search={hotkey || undefined}
        onChange={(e) => onChange(e.target.value)}
        onKeyDown={(e) => {
          if (e.key !== 'Escape') return
          e.stopPropagation()
          if (value) onChange('')
          else e.currentTarget.blur()
        }}
      />
      {hotkey && !value && <kbd aria-hidden>/</kbd>}
    </div>
  )
}

/** A dialog: the browser's own, which keeps the focus inside and closes on Esc. */
export function Dialog({ title, onClose, children, foot, narrow }: { title: string; onClose: () => void; children: ReactNode; foot?: ReactNode; narrow?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const d = ref.current!
    if (!d.open) d.showModal()
    return () => d.close()
  }, [])
  return (
    <dialog
      ref={ref}
      className={cx('dialog', narrow && 'narrow')}
      aria-labelledby={id}
      onCancel={(e) => {
        e.preventDefault()
        onClose()
      }}
      onMouseDown={(e) => e.target === ref.current && onClose()}
    >
      <div className="dialog-head">
        <h2 id={id} className="grow">
          {title}
        </h2>
        <Button look="bare icon" aria-label="Close" onClick={onClose}>
          <X size={16} aria-hidden />
        </Button>
      </div>
      <div className="dialog-body">{children}</div>
      {foot && <div className="dialog-foot">{foot}</div>}
    </dialog>
  )
}

/** Asks before something that cannot be undone. */
export function Confirm({ title, action, children, onClose, onConfirm, busy, error }: { title: string; action: string; children: ReactNode; onClose: () => void; onConfirm: () => void; busy?: boolean; error?: unknown }) {
  return (
    <Dialog
      title={title}
      narrow
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Keep</Button>
          <Button look="danger primary" busy={busy ?? false} onClick={onConfirm}>
            {action}
          </Button>
        </>
      }
    >
      <div className="dim">{children}</div>
      <ErrorNote error={error} />
    </Dialog>
  )
}

export function Segments<V extends string>({ label, value, options, onChange }: { label: string; value: V; options: readonly (readonly [V, string])[]; onChange: (v: V) => void }) {
  return (
    <div className="segments" role="group" aria-label={label}>
      {options.map(([v, text]) => (
        <button key={v} type="button" aria-pressed={v === value} onClick={() => onChange(v)}>
          {text}
        </button>
      ))}
    </div>
  )
}

export function Meter({ value, max, label }: { value: number; max: number; label: string }) {
  const part = max > 0 ? Math.min(1, value / max) : 0
  return (
    <span className={cx('meter', part >= 1 && 'full')} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={max} aria-valuenow={Math.min(value, max)}>
      <span style={{ width: `${part * 100}%` }} />
    </span>
  )
}

/** One line of text that stands for a whole run's cost and such. */
export function Facts({ children }: { children: ReactNode }) {
  return <dl className="facts">{children}</dl>
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  )
}
