/** Submits a run: by form for the common ones, as JSON for all. */
import { useQuery } from '@tanstack/react-query'
import { useState, type FormEvent } from 'react'
import { useLocation } from 'wouter'
import { change } from '../data/client'
import { builtins, isBuiltin } from '../data/builtin'
import { harnessesQuery, runnersQuery, runtimesQuery } from '../data/queries'
import type { RunRequest } from '../data/types'
import { Button, ErrorNote, Field, Segments } from '../ui/parts'
import { parseJson } from '../ui/useAct'
import { useTitle } from './title'

interface Draft {
  harness: string
  runtime: string
  id: string
  task: string
  source: 'empty' | 'git' | 'prompt'
  git: string
  ref: string
  check: string
  timeout: string
  params: string
  approval: boolean
}

const blank: Draft = { harness: 'scripted', runtime: '', id: 'case-1', task: '', source: 'empty', git: '', ref: '', check: '', timeout: '1800', params: '', approval: false }

/** The request that a form stands for. */
export function requestOf(d: Draft): RunRequest {
  const params = Object.fromEntries(
    d.params
      .split('\n')
      .map((l) => l.trim())
      .filter(Boolean)
      .map((l) => {
        const at = l.indexOf('=')
        return at < 0 ? [l, ''] : [l.slice(0, at).trim(), l.slice(at + 1)]
      }),
  ) as Record<string, string>
  const [id = '', version = 'latest'] = d.harness.split('@')
  return {
    harness: { id, version, ...(Object.keys(params).length ? { params } : {}) },
    case: {
      id: d.id,
      env: d.source === 'prompt' ? { kind: 'prompt' } : { kind: 'repo', source: d.source === 'git' ? { git: d.git, ...(d.ref ? { ref: d.ref } : {}) } : { files: {} } },
      task: d.task,
      graders: d.check && d.source !== 'prompt' ? [{ id: 'tests-pass', config: { cmd: d.check } }] : [],
      timeoutSec: Number.parseInt(d.timeout, 10) || 1800,
      tags: [],
      ...(d.approval ? { approval: 'before-start' as const } : {}),
    },
    ...(d.runtime ? { runtime: d.runtime } : {}),
  }
}

export function NewRun() {
  useTitle('New run')
  const [, navigate] = useLocation()
  const { data: harnesses } = useQuery(harnessesQuery)
  const { data: runtimes } = useQuery(runtimesQuery)
  const { data: runners } = useQuery(runnersQuery)
  const [draft, setDraft] = useState(blank)
  const [form, setForm] = useState<'form' | 'json'>('form')
  const [json, setJson] = useState('')
  const [error, setError] = useState<unknown>()
  const [busy, setBusy] = useState(false)
  const set = (part: Partial<Draft>) => setDraft({ ...draft, ...part })
  const submit = async (e: FormEvent) => {
    e.preventDefault()
    setBusy(true)
    setError(undefined)
    try {
      const body = form === 'json' ? parseJson(json) : requestOf(draft)
      const run = await change<{ runId: string }>('POST', '/runs', body)
      navigate(`/ui/runs/${run.runId}`)
    } catch (cause) {
      setError(cause)
      setBusy(false)
    }
  }
  return (
    <div className="page narrow-page">
      <div className="page-head">
        <h1>New run</h1>
        <div className="actions">
          <Segments
            label="How to write it"
            value={form}
            options={[
              ['form', 'Form'],
              ['json', 'JSON'],
            ]}
            onChange={(v) => {
              if (v === 'json') setJson(JSON.stringify(requestOf(draft), null, 2))
              setForm(v)
            }}
          />
        </div>
      </div>
      <form className="card" onSubmit={(e) => void submit(e)}>
        <div className="card-body stack wide">
          {form === 'json' ? (
            <Field label="Request" hint="The body of POST /runs. Going back to the form loses what only JSON can say.">
              {(id) => <textarea id={id} className="textarea" rows={24} spellCheck={false} value={json} onChange={(e) => setJson(e.target.value)} />}
            </Field>
          ) : (
            <div className="fields">
              <Field label="Harness" hint="The agent under evaluation.">
                {(id) => (
                  <select id={id} className="select" value={draft.harness} onChange={(e) => set({ harness: e.target.value })}>
                    {[...(harnesses ?? []), ...builtins(harnesses ?? [])].flatMap((h) => [
                      <option key={h.id} value={h.id}>
                        {h.id} ({isBuiltin(h) ? 'built in' : `latest: ${h.latestVersion}`})
                      </option>,
                      ...h.versions.filter((v) => v !== h.latestVersion).map((v) => (
                        <option key={`${h.id}@${v}`} value={`${h.id}@${v}`}>
                          {h.id}@{v}
                        </option>
                      )),
                    ])}
                  </select>
                )}
              </Field>
              <Field label="Where" hint="Auto: whatever of yours can run it.">
                {(id) => (
                  <select id={id} className="select" value={draft.runtime} onChange={(e) => set({ runtime: e.target.value })}>
                    <option value="">auto</option>
                    <option value="self">any machine of mine</option>
                    <option value="self:ws">any machine of the workspace</option>
                    {(runtimes ?? []).map((r) => (
                      <option key={r.id} value={r.id}>
                        {r.id} ({r.kind})
                      </option>
                    ))}
                    {(runners ?? [])
                      .filter((r) => !r.runtime)
                      .map((r) => (
                        <option key={r.id} value={`self:${r.id}`}>
                          {r.label}
                          {r.online ? '' : ' (offline)'}
                        </option>
                      ))}
                  </select>
                )}
              </Field>
              <Field label="Case" hint="A name for what is evaluated.">
                {(id) => <input id={id} className="input" required value={draft.id} onChange={(e) => set({ id: e.target.value })} />}
              </Field>
              <Field label="Task" span>
                {(id) => <textarea id={id} className="textarea" rows={4} required placeholder="Create ok.txt containing the text done" value={draft.task} onChange={(e) => set({ task: e.target.value })} />}
              </Field>
              <Field label="Works in">
                {(id) => (
                  <select id={id} className="select" value={draft.source} onChange={(e) => set({ source: e.target.value as Draft['source'] })}>
                    <option value="empty">an empty repository</option>
                    <option value="git">a Git repository</option>
                    <option value="prompt">nothing: a prompt only</option>
                  </select>
                )}
              </Field>
              {draft.source === 'git' && (
                <>
                  <Field label="Git URL">{(id) => <input id={id} className="input" required value={draft.git} onChange={(e) => set({ git: e.target.value })} />}</Field>
                  <Field label="Commit, branch or tag">{(id) => <input id={id} className="input" placeholder="default branch" value={draft.ref} onChange={(e) => set({ ref: e.target.value })} />}</Field>
                </>
              )}
              {draft.source !== 'prompt' && (
                <Field label="Passes when this command does" hint="A grader runs it in the workspace afterwards. Without one there is no verdict." span>
                  {(id) => <input id={id} className="input mono" placeholder="grep -q done ok.txt" value={draft.check} onChange={(e) => set({ check: e.target.value })} />}
                </Field>
              )}
              <Field label="Time limit, seconds">{(id) => <input id={id} className="input" type="number" min={1} max={604800} value={draft.timeout} onChange={(e) => set({ timeout: e.target.value })} />}</Field>
              <Field label="Parameters of the harness" hint="A line each: name=value" span>
                {(id) => <textarea id={id} className="textarea" rows={2} spellCheck={false} value={draft.params} onChange={(e) => set({ params: e.target.value })} />}
              </Field>
              <label className="check span">
                <input type="checkbox" checked={draft.approval} onChange={(e) => set({ approval: e.target.checked })} /> Ask for approval before it starts
              </label>
            </div>
          )}
        </div>
        <div className="dialog-foot">
          <ErrorNote error={error} />
          <Button onClick={() => history.back()}>Back</Button>
          <Button look="primary" type="submit" busy={busy}>
            Submit
          </Button>
        </div>
      </form>
    </div>
  )
}
