// Pictures of every page at two widths and in both themes, into .cache/screenshots.
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Machine } from './machine.mjs'
import { Coordinator, openBrowser, openPage, root, scripted, until } from './rig.mjs'
import { pages, ready, seed } from './seed.mjs'

/** How a computer is connected, each step by a name for its picture. */
function pairing(coordinator) {
  const machine = new Machine(coordinator, 'studio')
  const open = (p, path) => p.goto(coordinator.url + path)
  const asked = async (p, more) => {
    const started = more ? await machine.ask(more) : await machine.ask({ callback: { port: 1, state: 'not-the-one-of-a-machine' } })
    await open(p, new URL(started.url).pathname)
    await p.getByRole('button', { name: 'Approve' }).waitFor()
  }
  const approved = async (p) => {
    await asked(p, {})
    await p.getByRole('button', { name: 'Approve' }).click()
    await p.getByText('to take it up').waitFor()
  }
  const connecting = async (p) => {
    await open(p, '/ui/runners')
    await p.getByRole('button', { name: 'Connect this device' }).first().click()
    const code = p.waitForResponse((r) => r.request().method() === 'POST')
    await p.getByRole('button', { name: 'Open the Everdict app' }).click()
    await p.locator('.digits').waitFor()
    return (await code).json()
  }
  return {
    'pair-enter': async (p) => {
      await open(p, '/ui/pair')
      await p.getByLabel('Code').fill('wdjbm')
    },
    'pair-asks': (p) => asked(p),
    'pair-asks-headless': (p) => asked(p, {}),
    'pair-approved': approved,
    'pair-done': async (p) => {
      await approved(p)
      await machine.finish()
      await p.getByText('is a runner of yours').waitFor()
    },
    'pair-denied': async (p) => {
      await asked(p, {})
      await p.getByRole('button', { name: 'Deny' }).click()
      await p.getByText('This request was denied').waitFor()
    },
    'pair-unknown': async (p) => {
      await open(p, '/ui/pair/prq_0')
      await p.getByText('There is no such request').waitFor()
    },
    'connect-app': async (p) => void (await connecting(p)),
    'connect-app-late': async (p) => {
      await connecting(p)
      await p.getByText('Nothing happened?').waitFor()
    },
    'connect-app-spoilt': async (p) => {
      const code = await connecting(p)
      await machine.ask({ code: new URL(code.link).searchParams.get('code'), number: String((Number(code.number) + 1) % 100).padStart(2, '0') }).catch(() => {})
      await p.getByText('A wrong number').waitFor()
    },
  }
}

/** A run whose runner was revoked a moment ago. */
async function revoked(coordinator, p, label) {
  const api = coordinator.as('revoked')
  const runner = await coordinator.connect(api, label)
  const { runId } = await api('POST', '/runs', { ...scripted('long-refactoring', 'say I look at every package in turn.\nhang'), runtime: runner.target })
  await until('it to run', async () => (await api('GET', `/runs/${runId}`)).status === 'running')
  await api('DELETE', `/workspace/runners/${runner.id}`)
  await p.goto(`${coordinator.url}/ui/runs/${runId}?tab=overview`)
  await p.getByRole('region', { name: 'The attempt' }).waitFor()
}

const only = process.argv[2]
const out = join(root, '.cache/screenshots')
if (!only) rmSync(out, { recursive: true, force: true })
mkdirSync(out, { recursive: true })
const coordinator = new Coordinator()
const closed = new Coordinator('--require-auth')
let browser
try {
  await Promise.all([coordinator.start(), closed.start()])
  browser = await openBrowser()
  const seeded = await seed(coordinator, coordinator.as('default'))
  for (const theme of ['light', 'dark']) {
    for (const [width, height] of [[1440, 900], [390, 844]]) {
      const page = await openPage(browser, coordinator.url, { theme, width, height })
      const shoot = async (name) => page.screenshot({ path: join(out, `${name}-${width}-${theme}.png`) })
      for (const [name, path] of pages(seeded)) {
        if (only && !name.includes(only)) continue
        await page.goto(coordinator.url + path)
        await ready(page)
        await page.waitForTimeout(250)
        if (name === 'run-trace') await page.locator('.event-head', { hasText: 'bash' }).last().click()
        await shoot(name)
      }
      const actions = [
        ['first-visit', '/', { 'everdict.workspace': 'empty' }],
        ['connect', '/ui/runners', {}, (p) => p.getByRole('button', { name: 'Connect this device' }).first().click()],
        ['register-runtime', '/ui/runtimes', {}, (p) => p.getByRole('button', { name: 'Register a runtime' }).first().click()],
        ['keyboard', '/ui/runs', {}, (p) => p.keyboard.press('?')],
        ['harness-diff', '/ui/harnesses/note-agent', {}, (p) => p.getByLabel('Compare with').selectOption('1.0.0')],
      ]
      for (const [name, path, storage, act] of actions) {
        if (only && !name.includes(only)) continue
        const p = await openPage(browser, coordinator.url, { theme, width, height, storage })
        await p.goto(coordinator.url + path)
        await ready(p)
        await act?.(p)
        await p.waitForTimeout(250)
        await p.screenshot({ path: join(out, `${name}-${width}-${theme}.png`) })
        await p.context().close()
      }
      for (const [name, act] of Object.entries(pairing(coordinator))) {
        if (only && !name.includes(only)) continue
        const p = await openPage(browser, coordinator.url, { theme, width, height, storage: { 'everdict.workspace': 'pairing' } })
        await act(p)
        await p.waitForTimeout(250)
        await p.screenshot({ path: join(out, `${name}-${width}-${theme}.png`) })
        await p.context().close()
      }
      if (!only || 'run-revoked'.includes(only)) {
        const p = await openPage(browser, coordinator.url, { theme, width, height, storage: { 'everdict.workspace': 'revoked' } })
        await revoked(coordinator, p, `laptop-${width}-${theme}`)
        await p.waitForTimeout(250)
        await p.screenshot({ path: join(out, `run-revoked-${width}-${theme}.png`) })
        await p.context().close()
      }
      if (!only || 'sign-in'.includes(only)) {
        const p = await openPage(browser, closed.url, { theme, width, height })
        await p.goto(closed.url)
        await p.getByLabel('API key').waitFor()
        await p.screenshot({ path: join(out, `sign-in-${width}-${theme}.png`) })
        await p.context().close()
      }
      await page.done()
    }
  }
  console.log(`pictures are in ${out}`)
} finally {
  await browser?.close()
  await Promise.all([coordinator.stop(), closed.stop()])
}
