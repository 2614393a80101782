/**
 * Reads the patch of a run. The content is an agent's: a hunk is read by the
 * numbers of lines in its header, so that no line in it can pass for the header
 * of another file, and names come from lines that have one each.
 */
import type { ChangeData, HunkData } from 'react-diff-view'

export interface PatchFile {
  /** The name after the change, or before it when it was deleted. */
  path: string
  oldPath: string
  kind: 'added' | 'deleted' | 'renamed' | 'modified' | 'copied'
  added: number
  removed: number
  binary: boolean
  /** Old and new mode, when only that or that too has changed. */
  mode?: string
  hunks: HunkData[]
  /** The patch ends inside this file. */
  cut?: boolean
}

const header = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/

export function readPatch(text: string): PatchFile[] {
  const lines = text.split('\n')
  const files: PatchFile[] = []
  let i = 0
  while (i < lines.length) {
    const line = lines[i]!
    if (!line.startsWith('diff --git ')) {
      i++
      continue
    }
    const file: PatchFile = { path: '', oldPath: '', kind: 'modified', added: 0, removed: 0, binary: false, hunks: [] }
    const [a, b] = namesOf(line.slice('diff --git '.length))
    let oldMode = ''
    let newMode = ''
    for (i++; i < lines.length && !lines[i]!.startsWith('diff --git '); ) {
      const l = lines[i]!
      if (l.startsWith('@@ ')) {
        i = hunk(lines, i, file)
        continue
      }
      i++
      if (l.startsWith('new file mode')) file.kind = 'added'
      else if (l.startsWith('deleted file mode')) file.kind = 'deleted'
      else if (l.startsWith('old mode ')) oldMode = l.slice(9)
      else if (l.startsWith('new mode ')) newMode = l.slice(9)
      else if (l.startsWith('rename from ')) [file.kind, file.oldPath] = ['renamed', unquote(l.slice(12))]
      else if (l.startsWith('rename to ')) file.path = unquote(l.slice(10))
      else if (l.startsWith('copy from ')) [file.kind, file.oldPath] = ['copied', unquote(l.slice(10))]
      else if (l.startsWith('copy to ')) file.path = unquote(l.slice(8))
      else if (l.startsWith('--- ')) file.oldPath ||= name(l.slice(4))
      else if (l.startsWith('+++ ')) file.path ||= name(l.slice(4))
      else if (l.startsWith('GIT binary patch') || (l.startsWith('Binary files ') && l.endsWith(' differ'))) file.binary = true
    }
    file.oldPath ||= a
    file.path ||= file.kind === 'deleted' ? file.oldPath : b
    if (oldMode && newMode) file.mode = `${oldMode} → ${newMode}`
    files.push(file)
  }
  return files
}

/** Reads a hunk and returns the line after it. */
function hunk(lines: string[], i: number, file: PatchFile): number {
  const content = lines[i]!
  const m = header.exec(content)
  if (!m) return i + 1
  const [oldStart, oldLines, newStart, newLines] = [Number(m[1]), Number(m[2] ?? 1), Number(m[3]), Number(m[4] ?? 1)]
  const changes: ChangeData[] = []
  let [oldLine, newLine] = [oldStart, newStart]
  const [oldEnd, newEnd] = [oldStart + oldLines, newStart + newLines]
  for (i++; i < lines.length; i++) {
    const l = lines[i]!
    if (l.startsWith('\\')) continue // no newline at the end of the file
    if (oldLine >= oldEnd && newLine >= newEnd) break
    if (l === '' && i === lines.length - 1) break
    const text = visible(l.slice(1)) // nothing in it may reorder or hide what stands beside it
    if (l.startsWith('+')) {
      changes.push({ type: 'insert', content: text, lineNumber: newLine++, isInsert: true })
      file.added++
    } else if (l.startsWith('-')) {
      changes.push({ type: 'delete', content: text, lineNumber: oldLine++, isDelete: true })
      file.removed++
    } else {
      changes.push({ type: 'normal', content: text, oldLineNumber: oldLine++, newLineNumber: newLine++, isNormal: true })
    }
  }
  if (oldLine < oldEnd || newLine < newEnd) file.cut = true
  file.hunks.push({ content, oldStart, newStart, oldLines, newLines, changes: zip(changes) })
  return i
}

/** Puts the n-th of some removed lines beside the n-th of the lines that replace them. */
function zip(changes: ChangeData[]): ChangeData[] {
  const out: ChangeData[] = []
  for (let i = 0; i < changes.length; ) {
    if (changes[i]!.type !== 'delete') {
      out.push(changes[i++]!)
      continue
    }
    const from = i
    while (changes[i]?.type === 'delete') i++
    const removed = changes.slice(from, i)
    const start = i
    while (changes[i]?.type === 'insert') i++
    const added = changes.slice(start, i)
    for (let k = 0; k < Math.max(removed.length, added.length); k++) {
      if (removed[k]) out.push(removed[k]!)
      if (added[k]) out.push(added[k]!)
    }
  }
  return out
}

/** The two names of the first line. Where spaces leave that open they are the same, or other lines say. */
function namesOf(text: string): [string, string] {
  if (text.startsWith('"')) {
    const end = quoteEnd(text)
    return [strip(unquote(text.slice(0, end))), strip(unquote(text.slice(end + 1)))]
  }
  if (text.endsWith('"')) {
    const at = text.indexOf(' "')
    return [strip(text.slice(0, at)), strip(unquote(text.slice(at + 1)))]
  }
  const half = (text.length - 1) / 2
  if (text[half] === ' ' && text.slice(2, half) === text.slice(half + 3)) return [text.slice(2, half), text.slice(half + 3)]
  const at = text.indexOf(' b/')
  return at < 0 ? [strip(text), strip(text)] : [strip(text.slice(0, at)), strip(text.slice(at + 1))]
}

function quoteEnd(text: string): number {
  for (let i = 1; i < text.length; i++) {
    if (text[i] === '\\') i++
    else if (text[i] === '"') return i + 1
  }
  return text.length
}

/** A name of a --- or +++ line; /dev/null is none. A tab ends a name with spaces. */
function name(text: string): string {
  const n = unquote(text.replace(/\t$/, ''))
  return n === '/dev/null' ? '' : strip(n)
}

const strip = (n: string) => n.replace(/^[ab]\//, '')

const escapes: Record<string, number> = { n: 10, t: 9, r: 13, a: 7, b: 8, f: 12, v: 11, '"': 34, '\\': 92 }

/** Git writes odd names in quotes, with bytes as octal escapes. */
export function unquote(quoted: string): string {
  if (quoted.length < 2 || !quoted.startsWith('"') || !quoted.endsWith('"')) return quoted
  const bytes: number[] = []
  const encoder = new TextEncoder()
  const inner = quoted.slice(1, -1)
  for (let i = 0; i < inner.length; i++) {
    if (inner[i] !== '\\') {
      const c = String.fromCodePoint(inner.codePointAt(i)!)
      bytes.push(...encoder.encode(c))
      i += c.length - 1
      continue
    }
    const octal = /^[0-7]{3}/.exec(inner.slice(i + 1))
    if (octal) {
      bytes.push(Number.parseInt(octal[0], 8))
      i += 3
    } else {
      i++
      bytes.push(escapes[inner[i] ?? ''] ?? (inner.charCodeAt(i) || 92))
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes))
}

const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g // eslint-disable-line no-control-regex

/** A text with what one would not see, or would see in another order, made visible. */
export function visible(text: string): string {
  return text.replace(hidden, (c) => (c < ' ' ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : `⟨${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`))
}
