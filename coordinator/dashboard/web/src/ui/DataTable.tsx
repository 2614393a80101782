/** A table that sorts by its columns and is moved through with j and k. */
import {
  columnSizingFeature, createColumnHelper, createSortedRowModel, rowSortingFeature, sortFn_alphanumeric, sortFn_basic, sortFn_datetime, sortFn_text, tableFeatures, useTable, type ColumnDef, type RowData,
} from '@tanstack/react-table'
import { ArrowDown, ArrowUp } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { cx } from './parts'

const features = tableFeatures({
  columnSizingFeature,
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { alphanumeric: sortFn_alphanumeric, basic: sortFn_basic, datetime: sortFn_datetime, text: sortFn_text },
})

export interface Column<T> {
  id: string
  header: string
  /** What it sorts by; without it the column does not sort. */
  by?: (row: T) => string | number | undefined
  cell: (row: T) => ReactNode
  numeric?: boolean
}

interface Props<T> {
  label: string
  rows: T[]
  columns: Column<T>[]
  id: (row: T) => string
  onOpen?: (row: T) => void
  sort?: { id: string; desc: boolean }
}

export function DataTable<T extends RowData>({ label, rows, columns, id, onOpen, sort }: Props<T>) {
  const [sorting, setSorting] = useState(sort ? [sort] : [])
  const helper = createColumnHelper<typeof features, T>()
  const defs = columns.map((c) =>
    c.by
      ? helper.accessor((row) => c.by!(row), { id: c.id, header: c.header, sortUndefined: 'last', cell: (x) => c.cell(x.row.original) })
      : helper.display({ id: c.id, header: c.header, cell: (x) => c.cell(x.row.original) }),
  ) as ColumnDef<typeof features, T>[]
  const table = useTable({ features, columns: defs, data: rows, getRowId: id, state: { sorting }, onSortingChange: setSorting, enableMultiSort: false })
  return (
    <div className="table-scroll">
      <table className="table" aria-label={label}>
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {group.headers.map((header, i) => {
                const sorted = header.column.getIsSorted()
                const text = columns[i]!.header
                return (
                  <th key={header.id} scope="col" className={cx(columns[i]!.numeric && 'num')} aria-sort={sorted ? (sorted === 'asc' ? 'ascending' : 'descending') : undefined}>
                    {columns[i]!.by ? (
                      <button type="button" className="th-sort" onClick={() => header.column.toggleSorting()}>
                        {text}
                        {sorted && (sorted === 'asc' ? <ArrowUp size={12} aria-hidden /> : <ArrowDown size={12} aria-hidden />)}
                      </button>
                    ) : (
                      text || <span className="visually-hidden">Actions</span>
                    )}
                  </th>
                )
              })}
            </tr>
          ))}
        </thead>
        <tbody>
          {table.getRowModel().rows.map((row) => (
            <tr
              key={row.id}
              data-row=""
              tabIndex={onOpen ? 0 : -1}
              className={onOpen && 'link'}
              onClick={(e) => {
                if (onOpen && !(e.target as HTMLElement).closest('a, button, input')) onOpen(row.original)
              }}
              onKeyDown={(e) => {
                if (onOpen && e.key === 'Enter' && e.target === e.currentTarget) onOpen(row.original)
              }}
            >
              {row.getAllCells().map((cell, i) => (
                <td key={cell.id} className={cx(columns[i]!.numeric && 'num')}>
                  <table.FlexRender cell={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
