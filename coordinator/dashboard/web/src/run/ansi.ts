/**
 * A line of a log as pieces of text with a look. Nothing here makes markup: the
 * pieces become text nodes, and colours become class names from a closed list.
 */
import Anser from 'anser'

export interface Segment {
  text: string
  className?: string
}

// The coordinator sends colours and removes all other controls. This takes out
// what would still be one, should a text come from elsewhere: C0 but tab, C1,
// and the characters that reorder text.
// eslint-disable-next-line no-control-regex
const controls = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g
// eslint-disable-next-line no-control-regex
const sgr = /\u001b\[[0-9;:]*m/g
// eslint-disable-next-line no-control-regex
const strings = /\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?/g
// eslint-disable-next-line no-control-regex
const otherEscapes = /\u001b(?:\[[0-?]*[ -/]*[@-ln-~]|[^[\]])|\u001b/g
const mark = '\ue000'

/** Removes everything that is neither text nor a colour. */
export function clean(line: string): string {
  if (!line.includes('\u001b')) return line.replace(controls, '')
  const colours: string[] = []
  const kept = line
    .replaceAll(mark, '')
    .replace(strings, '')
    .replace(sgr, (s) => {
      colours.push(s)
      return mark
    })
    .replace(otherEscapes, '')
    .replace(controls, '')
  let i = 0
  return kept.replaceAll(mark, () => colours[i++]!)
}

/** The text alone. */
export function plain(line: string): string {
  return clean(line).replace(sgr, '')
}

const decorations = new Set(['bold', 'dim', 'italic', 'underline', 'strikethrough'])

/** Splits a line by its colours. */
export function segments(line: string): Segment[] {
  const text = clean(line)
  if (!text.includes('\u001b')) return text ? [{ text }] : []
  const out: Segment[] = []
  for (const piece of Anser.ansiToJson(text, { json: true, use_classes: true, remove_empty: true })) {
    if (!piece.content) continue
    const names = [colour('fg', piece.fg), colour('bg', piece.bg), ...piece.decorations.filter((d) => decorations.has(d)).map((d) => `ansi-${d}`)]
    const className = names.filter(Boolean).join(' ')
    out.push(className ? { text: piece.content, className } : { text: piece.content })
  }
  return out
}

const basic = new Set(['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'])

/** A class for one of the sixteen colours. Palette and true colours go to the nearest of them. */
function colour(ground: 'fg' | 'bg', name: string | null): string {
  if (!name) return ''
  const known = /^ansi-(bright-)?([a-z]+)$/.exec(name)
  if (known && basic.has(known[2]!)) return `ansi-${ground}-${known[1] ?? ''}${known[2]}`
  const palette = /^ansi-palette-(\d+)$/.exec(name)
  return palette ? `ansi-${ground}-${nearest(Number(palette[1]))}` : ''
}

function nearest(index: number): string {
  if (index >= 232) return index < 244 ? 'bright-black' : 'white'
  const n = index - 16
  const [r, g, b] = [Math.floor(n / 36), Math.floor(n / 6) % 6, n % 6]
  const top = Math.max(r, g, b)
  if (top < 2) return 'bright-black'
  const on = (v: number) => v > top / 2
  const name = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'][(on(r) ? 1 : 0) + (on(g) ? 2 : 0) + (on(b) ? 4 : 0)]!
  return top === 5 ? `bright-${name}` : name
}
