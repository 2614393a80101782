/** The frame of a page that is a list: its head, what went wrong, and the list, its absence, or its loading. */
import type { ReactNode } from 'react'
import { useTitle } from '../pages/title'
import { ErrorNote, SearchBox, Skeleton } from './parts'

/** From so many rows on a list has a search. */
const worthSearching = 6

interface Props {
  title: string
  sub?: ReactNode
  /** What was read: undefined while it is on its way. */
  rows: unknown[] | undefined
  error: Error | null
  retry: () => void
  search?: { label: string; value: string; onChange: (v: string) => void }
  actions?: ReactNode
  children: ReactNode
  /** Dialogs, which are no part of the list. */
  beside?: ReactNode
}

export function ListPage({ title, sub, rows, error, retry, search, actions, children, beside }: Props) {
  useTitle(title)
  return (
    <div className="page">
      <div className="page-head">
        <h1>{title}</h1>
        {rows && sub && <span className="sub">{sub}</span>}
        <div className="actions">
          {search && rows && rows.length > worthSearching && <SearchBox {...search} />}
          {actions}
        </div>
      </div>
      <ErrorNote error={error} retry={retry} />
      <div className="card">{rows ? children : !error && <Skeleton />}</div>
      {beside}
    </div>
  )
}
