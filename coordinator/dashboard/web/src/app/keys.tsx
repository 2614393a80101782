/** The keyboard: sequences for places, j and k in lists, / for the search, ? for this list. */
import { useEffect, useRef, useState } from 'react'
import { useLocation } from 'wouter'
import { Dialog } from '../ui/parts'

export const places: [key: string, path: string, name: string][] = [
  ['h', '/', 'Home'],
  ['r', '/ui/runs', 'Runs'],
  ['t', '/ui/runtimes', 'Runtimes'],
  ['u', '/ui/runners', 'Runners'],
  ['a', '/ui/harnesses', 'Harnesses'],
  ['s', '/ui/secrets', 'Secrets'],
  ['k', '/ui/keys', 'API keys'],
  [',', '/ui/settings', 'Settings'],
]

/** Keys that one page adds; the name is what the help says. */
type PageKeys = Record<string, { name: string; run: () => void }>
let pageKeys: PageKeys = {}

export function usePageKeys(keys: PageKeys): void {
  useEffect(() => {
    pageKeys = keys
    return () => {
      if (pageKeys === keys) pageKeys = {}
    }
  })
}

/** A list that is drawn in part moves by itself: it knows rows that are not there. */
type Mover = (by: 1 | -1) => void
let mover: Mover | undefined
export function useMover(fn: Mover): void {
  useEffect(() => {
    mover = fn
    return () => {
      if (mover === fn) mover = undefined
    }
  })
}

function moveRows(by: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>('main [data-row]')].filter((r) => r.offsetParent !== null)
  if (rows.length === 0) return
  const at = rows.findIndex((r) => r === document.activeElement || r.contains(document.activeElement))
  const to = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))]!
  to.focus()
  to.scrollIntoView({ block: 'nearest' })
}

export function Keys() {
  const [, navigate] = useLocation()
  const [help, setHelp] = useState(false)
  const g = useRef(0)
  useEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) return
      const target = e.target as HTMLElement
      if (document.querySelector('dialog[open]')) return
      if (target.matches('input, textarea, select') || target.isContentEditable) {
        if (e.key === 'Escape') target.blur()
        return
      }
      const after = Date.now() - g.current < 1200
      g.current = 0
      if (after) {
        const place = places.find(([key]) => key === e.key)
        if (place) {
          e.preventDefault()
          navigate(place[1])
          return
        }
      }
      switch (e.key) {
        case 'g':
          g.current = Date.now()
          return
        case '/': {
          const search = document.querySelector<HTMLInputElement>('main [data-search]')
          if (search) {
            e.preventDefault()
            search.focus()
            search.select()
          }
          return
        }
        case '?':
          e.preventDefault()
          setHelp(true)
          return
        case 'j':
        case 'k':
          e.preventDefault()
          ;(mover ?? moveRows)(e.key === 'j' ? 1 : -1)
          return
        case 'Escape':
          if (document.activeElement instanceof HTMLElement) document.activeElement.blur()
          return
      }
      const own = pageKeys[e.key]
      if (own) {
        e.preventDefault()
        own.run()
      }
    }
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  }, [navigate])

  if (!help) return null
  const rows: [string[], string][] = [
    [['j'], 'Next row'],
    [['k'], 'Row before'],
    [['Enter'], 'Open it'],
    [['/'], 'Search on this page'],
    [['Esc'], 'Close, or leave a field'],
    [['?'], 'This list'],
  ]
  return (
    <Dialog title="Keyboard" onClose={() => setHelp(false)}>
      <div className="keys-help">
        <section>
          <h3>Everywhere</h3>
          <Rows rows={rows} />
        </section>
        <section>
          <h3>Go to</h3>
          <Rows rows={places.map(([key, , name]) => [['g', key], name])} />
        </section>
        {Object.keys(pageKeys).length > 0 && (
          <section>
            <h3>On this page</h3>
            <Rows rows={Object.entries(pageKeys).map(([key, { name }]) => [[key], name])} />
          </section>
        )}
      </div>
    </Dialog>
  )
}

function Rows({ rows }: { rows: [string[], string][] }) {
  return (
    <dl>
      {rows.map(([keys, name]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            {keys.map((k) => (
              <kbd key={k}>{k}</kbd>
            ))}
          </dd>
        </div>
      ))}
    </dl>
  )
}
