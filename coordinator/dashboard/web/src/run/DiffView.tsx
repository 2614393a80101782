/** What a run changed: the files, and each beside what it was. */
import { useQuery } from '@tanstack/react-query'
import { ChevronRight, FileDiff } from 'lucide-react'
import { useMemo, useState } from 'react'
import { Diff, Hunk } from 'react-diff-view'
import 'react-diff-view/style/index.css'
import '../styles/diff.css'
import { useMover } from '../app/keys'
import { ApiError, seg, send } from '../data/client'
import { bytes, count, plural } from '../data/format'
import { over } from '../data/outcome'
import type { Run } from '../data/types'
import { CopyButton, Empty, ErrorNote, SearchBox, Segments, Skeleton, Button } from '../ui/parts'
import { readPatch, visible, type PatchFile } from './patch'

/** More than this is downloaded, not shown. */
const readBytes = 8 * 1024 * 1024
/** A file of more changed lines is opened by hand. */
const openLines = 800

async function readDiff(id: string, signal: AbortSignal): Promise<{ text: string; cut: boolean }> {
  const response = await send(`/runs/${seg(id)}/diff`, { signal, headers: { accept: '*/*' } })
  const reader = response.body!.getReader()
  const decoder = new TextDecoder()
  let text = ''
  for (let read = 0; ; ) {
    const { done, value } = await reader.read()
    if (done) return { text: text + decoder.decode(), cut: false }
    read += value.length
    text += decoder.decode(value, { stream: true })
    if (read > readBytes) {
      await reader.cancel()
      return { text: text.slice(0, text.lastIndexOf('\n') + 1), cut: true }
    }
  }
}

export function DiffView({ run }: { run: Run }) {
  const ended = over(run.status)
  const { data, error, isLoading, refetch } = useQuery({ queryKey: ['run', run.id, 'diff', ended], queryFn: ({ signal }) => readDiff(run.id, signal), retry: false, staleTime: ended ? Infinity : 5000 })
  const files = useMemo(() => (data ? readPatch(data.text) : []), [data])
  const [split, setSplit] = useState<'split' | 'unified'>(() => (innerWidth > 1100 ? 'split' : 'unified'))
  const [find, setFind] = useState('')
  const omitted = run.result?.snapshot?.omitted ?? []
  const none = error instanceof ApiError && error.status === 404
  useMover((by) => {
    const heads = [...document.querySelectorAll<HTMLElement>('.diff-file > button')]
    const at = heads.indexOf(document.activeElement as HTMLElement)
    heads[Math.min(heads.length - 1, Math.max(0, at + by))]?.focus()
  })
  if (isLoading) return <Skeleton rows={6} />
  if (none || (data && files.length === 0 && omitted.length === 0)) {
    return (
      <Empty icon={FileDiff} title={!ended ? 'There is no diff yet' : none ? 'This run has no diff' : 'Nothing was changed'}>
        {!ended ? 'It is made when the agent has ended.' : none ? 'A run without a workspace, or one that failed before its work was collected, has none.' : 'The agent left the workspace as it was.'}
      </Empty>
    )
  }
  if (error) return <ErrorNote error={error} retry={() => void refetch()} />
  const shownFiles = find ? files.filter((f) => f.path.toLowerCase().includes(find.toLowerCase())) : files
  const added = files.reduce((n, f) => n + f.added, 0)
  const removed = files.reduce((n, f) => n + f.removed, 0)
  return (
    <div className="diffs">
      <div className="evidence-bar">
        <span className="grow tnum">
          {plural(files.length, 'file')} <span className="ink-good">+{count(added)}</span> <span className="ink-bad">−{count(removed)}</span>
        </span>
        <div className="evidence-search">
          <SearchBox value={find} onChange={setFind} label="Find a file" />
        </div>
        <Segments
          label="Layout"
          value={split}
          options={[
            ['split', 'Side by side'],
            ['unified', 'Unified'],
          ]}
          onChange={setSplit}
        />
      </div>
      {data?.cut && <div className="card-note">The diff is longer than {bytes(readBytes)}; the rest is in the download.</div>}
      <div className="diff-body">
        {files.length > 1 && (
          <nav className="diff-files" aria-label="Changed files">
            <ul>
              {shownFiles.map((f) => (
                <li key={f.path}>
                  <button
                    type="button"
                    title={visible(f.path)}
                    onClick={() => {
                      const el = document.getElementById(idOf(f))
                      el?.scrollIntoView({ block: 'start' })
                      el?.querySelector('button')?.focus()
                    }}
                  >
                    <Kind kind={f.kind} />
                    <span className="clip grow path">{visible(f.path)}</span>
                    <Counts f={f} />
                  </button>
                </li>
              ))}
            </ul>
          </nav>
        )}
        <div className="diff-list">
          {shownFiles.map((f) => (
            <File key={f.path} f={f} split={split} />
          ))}
          {omitted.length > 0 && (
            <section className="card">
              <div className="card-head">
                <h3>Left out of the diff</h3>
                <span className="faint">{plural(omitted.length, 'file')}</span>
              </div>
              <div className="table-scroll">
                <table className="table">
                  <thead>
                    <tr>
                      <th>File</th>
                      <th>Why</th>
                      <th className="num">Size</th>
                      <th>SHA-256</th>
                    </tr>
                  </thead>
                  <tbody>
                    {omitted.map((o) => (
                      <tr key={o.path}>
                        <td className="wrap">
                          <code>{visible(o.path)}</code>
                        </td>
                        <td>{visible(o.reason)}</td>
                        <td className="num">{bytes(o.bytes)}</td>
                        <td>{o.sha256 ? <code title={o.sha256}>{o.sha256.slice(0, 12)}…</code> : '–'}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </section>
          )}
        </div>
      </div>
    </div>
  )
}

const idOf = (f: PatchFile): string => `file-${encodeURIComponent(f.path)}`

function Kind({ kind }: { kind: PatchFile['kind'] }) {
  const [letter, tone] = { added: ['A', 'good'], deleted: ['D', 'bad'], renamed: ['R', 'hold'], copied: ['C', 'hold'], modified: ['M', 'active'] }[kind] as [string, string]
  return (
    <span className={`diff-kind tone-${tone}`} title={kind}>
      <span aria-hidden>{letter}</span>
      <span className="visually-hidden">{kind}</span>
    </span>
  )
}

function Counts({ f }: { f: PatchFile }) {
  return f.binary ? (
    <span className="faint">binary</span>
  ) : (
    <span className="tnum nowrap">
      <span className="ink-good">+{f.added}</span> <span className="ink-bad">−{f.removed}</span>
    </span>
  )
}

function File({ f, split }: { f: PatchFile; split: 'split' | 'unified' }) {
  const lines = f.hunks.reduce((n, h) => n + h.changes.length, 0)
  const [open, setOpen] = useState(lines <= openLines && !f.binary)
  const [all, setAll] = useState(false)
  // A hunk of a hundred thousand lines would stop the page.
  const hunks = useMemo(() => {
    if (all || lines <= 5000) return f.hunks
    let left = 5000
    return f.hunks.flatMap((h) => {
      if (left <= 0) return []
      const changes = h.changes.slice(0, left)
      left -= changes.length
      return [{ ...h, changes }]
    })
  }, [f.hunks, all, lines])
  const empty = lines === 0
  return (
    <section className="card diff-file" id={idOf(f)} aria-label={visible(f.path)}>
      <button type="button" className="diff-head" data-row="" aria-expanded={open && !empty} disabled={empty} onClick={() => setOpen(!open)}>
        <ChevronRight size={14} className={open && !empty ? 'turned' : ''} aria-hidden />
        <Kind kind={f.kind} />
        <span className="clip grow path">
          {f.oldPath && f.oldPath !== f.path && (f.kind === 'renamed' || f.kind === 'copied') && <span className="faint">{visible(f.oldPath)} → </span>}
          {visible(f.path)}
        </span>
        {f.mode && <span className="tag">mode {f.mode}</span>}
        {empty && !f.binary && !f.mode && <span className="faint">no lines</span>}
        <Counts f={f} />
      </button>
      <div className="diff-copy">
        <CopyButton text={f.path} label="Copy the name" />
      </div>
      {open && !empty && (
        <div className="diff-scroll" tabIndex={0} role="region" aria-label={`Changes of ${visible(f.path)}`}>
          <Diff viewType={split} diffType={f.kind === 'added' ? 'add' : f.kind === 'deleted' ? 'delete' : 'modify'} hunks={hunks} optimizeSelection={lines < 2000} renderToken={undefined}>
            {(hs) => hs.flatMap((h) => [<Hunk key={h.content + h.oldStart} hunk={h} />])}
          </Diff>
          {hunks !== f.hunks && (
            <div className="card-note row">
              The first 5,000 of {count(lines)} lines.
              <Button look="small" onClick={() => setAll(true)}>
                Show all
              </Button>
            </div>
          )}
        </div>
      )}
    </section>
  )
}
