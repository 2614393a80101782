import { afterEach, describe, expect, it, vi } from 'vitest'
import { clean, plain, segments } from './ansi'
import { curlOf, shellWord } from './curl'
import { LogWindow, partOf } from './logwindow'
import { readPatch, unquote, visible } from './patch'
import { argsLine, headline, longGap, Timeline, Trace } from './trace'
import type { TraceEvent } from '../data/types'

const esc = '\u001b'

describe('a line of a log', () => {
  it.each([
    ['text alone', 'plain', [{ text: 'plain' }]],
    ['a colour', `${esc}[31mred${esc}[0m rest`, [{ text: 'red', className: 'ansi-fg-red' }, { text: ' rest' }]],
    ['bold and bright', `${esc}[1;92mok${esc}[0m`, [{ text: 'ok', className: 'ansi-fg-bright-green ansi-bold' }]],
    ['a background', `${esc}[44mb${esc}[0m`, [{ text: 'b', className: 'ansi-bg-blue' }]],
    ['a palette colour by the nearest', `${esc}[38;5;196mr${esc}[0m`, [{ text: 'r', className: 'ansi-fg-bright-red' }]],
    ['true colour without a class', `${esc}[38;2;1;2;3mr${esc}[0m`, [{ text: 'r' }]],
    ['markup as text', '<img src=x onerror=alert(1)>', [{ text: '<img src=x onerror=alert(1)>' }]],
    ['nothing', '', []],
  ])('%s', (_, line, want) => {
    expect(segments(line)).toEqual(want)
  })
  it.each([
    ['a link', `${esc}]8;;https://evil.example${esc}\\click${esc}]8;;${esc}\\`, 'click'],
    ['a title', `${esc}]0;title\u0007text`, 'text'],
    ['a cursor', `a${esc}[2Jb${esc}[10;10Hc`, 'abc'],
    ['an escape that never ends', `a${esc}]8;;https://evil.example`, 'a'],
    ['bidirectional controls', 'a\u202eb\u2066c\u200fd', 'abcd'],
    ['controls', 'a\u0000b\u0008c\u009bd\u007f', 'abcd'],
    ['our own mark', 'a\ue000b', 'a\ue000b'],
    ['our own mark beside a colour', `\ue000${esc}[31mx`, 'x'],
  ])('loses %s', (_, line, want) => {
    expect(plain(line)).toBe(want)
  })
  it('keeps colours where they were', () => {
    expect(clean(`a${esc}[31mb${esc}]8;;x\u0007c${esc}[0md`)).toBe(`a${esc}[31mbc${esc}[0md`)
  })
})

describe('a patch', () => {
  const one = (text: string) => readPatch(text)[0]!
  it('is read by the numbers in its hunks, whatever the lines say', () => {
    const files = readPatch(['diff --git a/x b/x', '--- a/x', '+++ b/x', '@@ -1,2 +1,3 @@', ' diff --git a/evil b/evil', '-@@ -1 +1 @@', '+--- a/evil', '++++ b/evil', ''].join('\n'))
    expect(files).toHaveLength(1)
    expect(files[0]).toMatchObject({ path: 'x', added: 2, removed: 1, kind: 'modified' })
    expect(files[0]!.cut).toBeUndefined()
    expect(files[0]!.hunks[0]!.changes.map((c) => c.content)).toEqual(['diff --git a/evil b/evil', '@@ -1 +1 @@', '--- a/evil', '+++ b/evil'])
  })
  it('knows new, deleted, renamed, binary and mode', () => {
    const files = readPatch(
      [
        'diff --git a/new b/new', 'new file mode 100644', '--- /dev/null', '+++ b/new', '@@ -0,0 +1 @@', '+one',
        'diff --git a/old b/old', 'deleted file mode 100644', '--- a/old', '+++ /dev/null', '@@ -1 +0,0 @@', '-one',
        'diff --git a/a b b/c d', 'similarity index 100%', 'rename from a b', 'rename to c d',
        'diff --git a/pic b/pic', 'index 1..2', 'GIT binary patch', 'literal 5', 'McmZQzWMT#Y01f~L', '', 'literal 0', 'HcmV?d00001', '',
        'diff --git a/run.sh b/run.sh', 'old mode 100644', 'new mode 100755', '',
      ].join('\n'),
    )
    expect(files.map((f) => [f.kind, f.path, f.oldPath, f.binary, f.mode, f.added, f.removed])).toEqual([
      ['added', 'new', 'new', false, undefined, 1, 0],
      ['deleted', 'old', 'old', false, undefined, 0, 1],
      ['renamed', 'c d', 'a b', false, undefined, 0, 0],
      ['modified', 'pic', 'pic', true, undefined, 0, 0],
      ['modified', 'run.sh', 'run.sh', false, '100644 → 100755', 0, 0],
    ])
  })
  it('reads odd names', () => {
    expect(one('diff --git "a/\\303\\244 \\"q\\"\\n" "b/\\303\\244 \\"q\\"\\n"\nnew file mode 100644\n').path).toBe('ä "q"\n')
    expect(one('diff --git a/with space b/with space\nold mode 1\nnew mode 2\n').path).toBe('with space')
    expect(unquote('"\\t\\\\\\177"')).toBe('\t\\\u007f')
  })
  it('says that it was cut', () => {
    expect(one('diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n a\n').cut).toBe(true)
  })
  it('takes nothing for a file that is none', () => {
    expect(readPatch('')).toEqual([])
    expect(readPatch('hello\n@@ -1 +1 @@\n+x\n')).toEqual([])
  })
  it('shows what reorders or hides', () => {
    expect(visible('a\u202eb\u0007c\td')).toBe('a⟨202E⟩b␇c\td')
  })
})

describe('the timeline', () => {
  const at = (t: number, e: Partial<TraceEvent>): TraceEvent => ({ kind: 'message', t, ...e }) as TraceEvent
  const of = (...events: TraceEvent[]) => {
    const line = new Timeline()
    for (const e of events) line.push(e)
    return line.items
  }
  it('folds a result into its call, whatever came between', () => {
    const items = of(at(0, { kind: 'tool_call', id: 'a', name: 'bash', args: { command: 'ls' } }), at(5, { text: 'x' }), at(12, { kind: 'tool_result', id: 'a', ok: false, output: 'no' }))
    expect(items).toHaveLength(2)
    expect(items[0]).toMatchObject({ kind: 'tool', took: 12, result: { ok: false } })
  })
  it('keeps a result without a call, and a second result of one', () => {
    const items = of(at(0, { kind: 'tool_result', id: 'x', output: 'a' }), at(1, { kind: 'tool_call', id: 'y' }), at(2, { kind: 'tool_result', id: 'y' }), at(3, { kind: 'tool_result', id: 'y' }))
    expect(items.map((i) => i.event.kind)).toEqual(['tool_result', 'tool_call', 'tool_result'])
  })
  it('says when nothing happened, not counting the time of a model call', () => {
    const items = of(at(0, {}), at(longGap + 1, {}), at(longGap * 3, { kind: 'llm_call', latencyMs: longGap * 2 - 10 }))
    expect(items.map((i) => i.gap)).toEqual([undefined, longGap + 1, undefined])
  })
  it('counts events, not rows', () => {
    const line = new Timeline()
    line.push(at(0, { kind: 'tool_call', id: 'a' }))
    line.push(at(1, { kind: 'tool_result', id: 'a' }))
    expect([line.events, line.items.length]).toEqual([2, 1])
  })
  it('writes one line of anything', () => {
    expect(argsLine({ command: 'ls\nrm' })).toBe('ls')
    expect(argsLine({ a: 1, b: ["x"] })).toBe(`a=1  b=["x"]`)
    expect(argsLine(null)).toBe('')
    expect(headline({ index: 0, kind: 'other', at: 0, event: at(0, { kind: 'infra', message: 'started' }) })).toBe('started')
  })
})

describe('the trace of a run', () => {
  const events = (...texts: string[]) => texts.map((text) => ({ kind: 'message', t: 1, role: 'assistant', text }))
  const texts = (t: Trace) => t.line.items.map((i) => i.event.text)
  /** Answers requests of pages from a table by cursor. */
  const serve = (pages: Record<string, [TraceEvent[], string?]>) => {
    vi.stubGlobal('fetch', (path: string) => {
      const [items, next] = pages[new URLSearchParams(path.slice(path.indexOf('?'))).get('cursor') ?? ''] ?? [[]]
      return Promise.resolve(new Response(JSON.stringify(items), { headers: { 'x-everdict-total': '9', ...(next ? { link: `</runs/run_x/trace?cursor=${next}&limit=1000>; rel="next"` } : {}) } }))
    })
  }
  afterEach(() => vi.unstubAllGlobals())

  it('is read page by page, and goes on where it was', async () => {
    const full = events(...Array.from({ length: 1000 }, (_, i) => `e${i}`)) as TraceEvent[]
    const pages: Record<string, [TraceEvent[], string?]> = { '': [full, '1-10'], '1-10': [events('last') as TraceEvent[], '1-11'] }
    serve(pages)
    const t = new Trace('run_x')
    await t.load()
    expect([t.line.events, t.cursor, t.attempt, t.loaded]).toEqual([1001, '1-11', 1, true])
    pages['1-11'] = [events('more') as TraceEvent[], '1-12']
    await t.load()
    expect(texts(t).slice(-2)).toEqual(['last', 'more'])
  })
  it('begins anew with another attempt, live or while it is read', async () => {
    serve({ '': [events('old') as TraceEvent[], '1-4'], '1-4': [events('x') as TraceEvent[], '2-4'] })
    const t = new Trace('run_x')
    await t.load()
    t.live(events('still') as TraceEvent[], 2, 1)
    expect(texts(t)).toEqual(['old', 'still'])
    t.live(events('new') as TraceEvent[], 1, 2)
    expect([texts(t), t.total]).toEqual([['new'], 1])
    serve({ '': [events('new', 'newer') as TraceEvent[], '2-9'], '1-4': [events('x') as TraceEvent[], '2-4'] })
    const u = new Trace('run_x')
    u.attempt = 1
    u.cursor = '1-4'
    await u.load()
    expect([texts(u), u.attempt]).toEqual([['new', 'newer'], 2])
  })
  it('takes the first attempt that it hears of for its own', () => {
    const t = new Trace('run_x')
    t.live(events('a') as TraceEvent[], 1, undefined)
    t.live(events('b') as TraceEvent[], 2, 1)
    expect(texts(t)).toEqual(['a', 'b'])
  })
})

describe('the window onto a log', () => {
  const loaded = (text: string) => {
    const w = new LogWindow('run_x', '')
    w.parts = [partOf(text, 0, text.length)]
    w.bytes = text.length
    w.loaded = true
    w.firstLine = 1
    return w
  }
  const lines = (w: LogWindow) => Array.from({ length: w.lineCount }, (_, i) => w.line(i))
  it('joins what comes to a line that has not ended', () => {
    const w = loaded('one\ntw')
    w.live('o\nthree\nfo', 6, 17)
    expect(lines(w)).toEqual(['one', 'two', 'three', 'fo'])
    w.live('ur', 17, 19)
    w.live('\n', 19, 20)
    expect(lines(w)).toEqual(['one', 'two', 'three', 'four'])
    w.live('five\n', 20, 25)
    expect(lines(w)).toEqual(['one', 'two', 'three', 'four', 'five'])
    expect(w.atEnd).toBe(true)
  })
  it('takes nothing twice', () => {
    const w = loaded('one\n')
    w.live('one\n', 0, 4)
    expect(lines(w)).toEqual(['one'])
  })
  it('does not join what does not follow', () => {
    const w = loaded('one\n')
    w.live('far\n', 400, 404)
    expect(lines(w)).toEqual(['one'])
    expect([w.bytes, w.atEnd]).toEqual([404, false])
    w.live('farther\n', 404, 412)
    expect(lines(w)).toEqual(['one'])
  })
  it('finds the line of a byte, counted in bytes', () => {
    const w = loaded('äö\nb\nc\n')
    w.parts[0]!.next = 9
    expect([0, 4, 5, 7].map((o) => w.lineOf(o))).toEqual([0, 0, 1, 2])
  })
  it('holds no more than a window', () => {
    const w = loaded('')
    const line = `${'x'.repeat(1023)}\n`
    const piece = line.repeat(256)
    for (let i = 0; i < 100; i++) w.live(piece, i * piece.length, (i + 1) * piece.length)
    expect(w.end - w.start).toBeLessThanOrEqual(6 * 1024 * 1024)
    expect(w.end).toBe(100 * piece.length)
    expect(w.firstLine).toBe(100 * 256 - w.lineCount + 1)
    expect(w.takeShift()).toBe(-(100 * 256 - w.lineCount))
  })
})

describe('a request as curl', () => {
  it('quotes for a shell and names no key', () => {
    expect(shellWord("it's")).toBe(`'it'\\''s'`)
    const text = curlOf({ harness: { id: 'scripted' }, caseSpec: { id: 'c', env: { kind: 'prompt' }, task: "it's $HOME" }, class: 'batch' }, 'http://h:1')
    expect(text).toContain('"Authorization: Bearer $EVERDICT_API_KEY"')
    expect(text).toContain(`it'\\''s $HOME`)
    expect(text).toContain('"priority": "batch"')
  })
})
