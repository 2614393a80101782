// Pictures of every page at two widths and in both themes, into .cache/screenshots.
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Coordinator, openBrowser, openPage, root } from './rig.mjs'
import { pages, ready, seed } from './seed.mjs'

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
