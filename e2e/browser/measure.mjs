// How long the page takes with a great deal to show: 100,000 runs, a trace of 100,000
// events, a log of as many bytes as a run keeps. Prints what it measured; asserts
// no time. An interaction is measured from the input event to the second frame after it.
import { Coordinator, openBrowser, openPage, settled, until } from './rig.mjs'
import { ready } from './seed.mjs'

const runs = Number(process.env.RUNS ?? 100_000)
const events = Number(process.env.EVENTS ?? 100_000)
const coordinator = await new Coordinator().start()
const api = coordinator.as('default')
let browser
const rows = []
const say = (what, ms, note = '') => {
  rows.push([what, `${Math.round(ms)} ms`, note])
  console.log(`${what.padEnd(58)} ${String(Math.round(ms)).padStart(7)} ms  ${note}`)
}

/** Milliseconds from an input to the picture that it makes. */
async function interact(page, what, act) {
  await page.evaluate(() => {
    globalThis.frames2 = new Promise((resolve) => {
      const done = (e) => {
        for (const k of ['pointerdown', 'keydown', 'wheel', 'input']) removeEventListener(k, done, true)
        const from = e.timeStamp
        requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - from)))
      }
      for (const k of ['pointerdown', 'keydown', 'wheel', 'input']) addEventListener(k, done, true)
    })
  })
  await act()
  say(what, await page.evaluate(() => globalThis.frames2))
}
async function load(page, what, path, selector) {
  const from = Date.now()
  await page.goto(coordinator.url + path)
  await page.locator(selector).first().waitFor()
  say(what, Date.now() - from)
}

try {
  const runner = await coordinator.connect(api, 'bench')
  void runner
  // A trace of many events comes from a command that leaves them in a file.
  const program = `import json
with open("everdict-trace.json", "w") as f:
    t = 1795971533982
    for i in range(${Math.floor(events / 4)}):
        t += 40
        for e in ({"kind": "message", "role": "assistant", "text": "step %d: I look at the next file and say at some length why" % i},
                  {"kind": "llm_call", "model": "model-1", "cost": {"inputTokens": 1200 + i, "outputTokens": 80}, "latencyMs": 30},
                  {"kind": "tool_call", "id": "c%d" % i, "name": "bash", "args": {"command": "cat src/file_%d.ts" % i}},
                  {"kind": "tool_result", "id": "c%d" % i, "ok": i % 50 != 0, "output": "export const value = %d\\n" % i * 4}):
            e["t"] = t
            f.write(json.dumps(e) + "\\n")
`
  await api('POST', '/harnesses', { kind: 'command', id: 'many-events', version: '1', command: `cat > make.py <<'PY'\n${program}PY\npython3 make.py`, trace: { kind: 'file' } })
  await api('POST', '/harnesses', { kind: 'command', id: 'much-output', version: '1', command: `python3 -c 'import sys
for i in range(1500000): sys.stdout.write("%08d \\033[32mok\\033[0m a line of the log with some words in it, such as programs print\\n" % i)'`, trace: { kind: 'none' } })
  const body = (id, harness) => ({ harness: { id: harness }, case: { id, env: { kind: 'repo', source: { files: {} } }, task: 'x', graders: [], timeoutSec: 600, tags: [] } })
  const traced = (await api('POST', '/runs', body('many-events', 'many-events'))).runId
  const logged = (await api('POST', '/runs', body('much-output', 'much-output'))).runId
  await Promise.all([settled(api, traced), settled(api, logged)])

  console.log(`submitting ${runs} runs`)
  await api('POST', '/runtimes', { kind: 'local', id: 'nobody', version: '1', maxConcurrent: 1 })
  let left = runs
  await Promise.all(
    Array.from({ length: 64 }, async () => {
      while (left-- > 0) await api('POST', '/runs', { ...body(`case-${left}`, 'scripted'), runtime: 'nobody', priority: 'batch' })
    }),
  )

  browser = await openBrowser()
  const page = await openPage(browser, coordinator.url)
  await load(page, 'home, to its numbers', '/', '.stat')
  await load(page, `runs (${runs}), to the first rows`, '/ui/runs', '[data-run]')
  await ready(page)
  await interact(page, 'runs: next row (j)', () => page.keyboard.press('j'))
  await page.mouse.move(700, 500)
  await interact(page, 'runs: wheel', () => page.mouse.wheel(0, 900))
  const from = Date.now()
  let loaded = 0
  while (loaded < Math.min(runs, 20_000)) {
    await page.evaluate(() => {
      const s = document.querySelector('.runs-scroll')
      s.scrollTop = s.scrollHeight
    })
    loaded = await page.evaluate(() => Math.round(document.querySelector('.runs-space').clientHeight / 48))
    await new Promise((r) => setTimeout(r, 5))
  }
  say(`runs: scrolled through ${loaded}`, Date.now() - from)
  await interact(page, `runs: wheel with ${loaded} rows`, () => page.mouse.wheel(0, -900))
  await interact(page, `runs: next row with ${loaded} rows`, () => page.keyboard.press('j'))
  await interact(page, 'runs: filter chip', () => page.getByRole('button', { name: 'Running', exact: true }).click())

  await load(page, `trace of ${events} events, to the first rows`, `/ui/runs/${traced}`, '.event-head')
  const read = Date.now()
  await until('the whole trace', () => page.evaluate(() => !document.querySelector('.trace > .card-note')), 120_000)
  say('trace: all events read', Date.now() - read, await page.locator('#tab-trace .count').innerText())
  await page.mouse.move(700, 600)
  await interact(page, 'trace: wheel', () => page.mouse.wheel(0, 900))
  await interact(page, 'trace: next row (j)', () => page.keyboard.press('j'))
  await interact(page, 'trace: open a row (Enter)', () => page.keyboard.press('Enter'))
  await interact(page, 'trace: hide a kind', () => page.getByRole('button', { name: /^Model/ }).click())
  await page.getByLabel('Search the trace').focus()
  await interact(page, 'trace: a letter in the search', () => page.keyboard.type('2'))
  await interact(page, 'trace: another letter', () => page.keyboard.type('4'))

  await load(page, 'log, to the first lines', `/ui/runs/${logged}?tab=log`, '.log-line')
  console.log(`log: ${await page.locator('#tab-log .count').innerText()}`)
  await page.mouse.move(700, 600)
  await interact(page, 'log: wheel', () => page.mouse.wheel(0, 900))
  await page.locator('.log-place input').focus()
  await interact(page, 'log: slider', () => page.keyboard.press('PageUp'))
  const jump = Date.now()
  await page.getByRole('button', { name: 'End of the log' }).click()
  await page.locator('.log-line', { hasText: '01499999' }).waitFor()
  say('log: to its end', Date.now() - jump)
  await page.getByLabel('Search the log').focus()
  await interact(page, 'log: a letter in the search', () => page.keyboard.type('0'))
  const search = Date.now()
  await page.getByLabel('Search the log').fill('01499998')
  await page.locator('mark').waitFor()
  say('log: found a line at its end', Date.now() - search)
  say('log: lines that are drawn', await page.locator('.log-line').count(), '(a number, not a time)')
  const memory = await page.evaluate(() => performance.memory?.usedJSHeapSize)
  if (memory) console.log(`script memory with the log open: ${Math.round(memory / 1e6)} MB`)
  await page.check()
} finally {
  await browser?.close()
  await coordinator.stop()
}
