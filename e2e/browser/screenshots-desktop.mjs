// Pictures of the desktop app's window in each state and in both themes, into .cache/screenshots. The app is the real one.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { Desk } from './desk.mjs'
import { Coordinator, root, scripted, settled, until } from './rig.mjs'

const out = join(root, '.cache/screenshots')
mkdirSync(out, { recursive: true })
const coordinator = new Coordinator()
const desk = new Desk()
const api = coordinator.as('default')
let window

async function shoot(name, page = window) {
  for (const theme of ['light', 'dark']) {
    for (const width of [560, 360]) {
      await page.setViewportSize({ width, height: 640 })
      await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' })
      await page.evaluate(() => document.fonts.ready)
      await page.waitForTimeout(150)
      // A window as tall as its page, without a scroll bar.
      const height = await page.evaluate(() => document.documentElement.scrollHeight)
      if (height > 640) await page.setViewportSize({ width, height })
      await page.screenshot({ path: join(out, `desktop-${name}-${width}-${theme}.png`) })
    }
  }
}
const go = (name) => window.getByRole('link', { name, exact: true }).click()
const press = (name) => window.getByRole('button', { name, exact: true }).click()
const submit = async (...args) => (await api('POST', '/runs', { ...scripted(...args), runtime: (await api('GET', '/runners')).runners[0].target })).runId

try {
  await coordinator.start()
  await desk.start()
  await desk.run('install')
  const browser = await desk.browse(coordinator.url)
  window = await desk.launch()
  await window.getByRole('heading', { name: 'Let this computer take your runs' }).waitFor()
  await shoot('first-start')
  await window.getByLabel('Coordinator’s address').fill('127.0.0.1:1')
  await press('Connect this computer')
  await window.getByRole('heading', { name: 'It was not connected' }).waitFor()
  await shoot('failed')
  await press('Back')
  const approval = browser.waitForEvent('page')
  await window.getByLabel('Coordinator’s address').fill(coordinator.url)
  await press('Connect this computer')
  await window.getByRole('heading', { name: 'Approve it in the browser' }).waitFor()
  await shoot('waiting')
  const there = await approval
  await there.getByRole('button', { name: 'Approve' }).click()
  await window.getByRole('heading', { name: 'This computer is connected' }).waitFor()
  await shoot('connected')
  await press('Done')
  await window.locator('.badge', { hasText: 'Ready' }).waitFor()
  await shoot('idle')
  await go('History')
  await window.getByText('No job has run here yet').waitFor()
  await shoot('history-empty')
  await go('Home')
  for (const [name, script, check] of [['fix-login-redirect', 'think model=m input=900 output=40 cost=0.031\ncreate ok.txt done', 'test -f ok.txt'], ['rename-module', 'say done', 'test -f b.txt'], ['migrate-database', 'hang']]) {
    await settled(api, await submit(name, script, { check, ...(name === 'migrate-database' ? { timeoutSec: 1 } : {}) }))
  }
  const running = await submit('long-refactoring', 'say I look at every package in turn.\nrun printf "\\033[1mTests\\033[0m\\n\\033[32m  ✓ keeps the query\\033[0m\\n\\033[31m  ✗ handles an empty path\\033[0m\\n"; seq 1 30 | sed "s/^/package /"\nhang')
  await window.locator('.tail-line', { hasText: 'package 30' }).waitFor()
  await shoot('running')
  await press('Stop now')
  await window.getByRole('dialog').waitFor()
  await shoot('stop')
  await press('Keep')
  await press('Pause after this job')
  await window.getByRole('button', { name: 'Resume' }).waitFor()
  await shoot('pausing')
  await api('POST', `/runs/${running}/cancel`)
  await window.locator('.badge', { hasText: 'Paused' }).waitFor()
  await shoot('paused')
  await go('History')
  await window.locator('.entries li', { hasText: 'long-refactoring' }).waitFor()
  await shoot('history')
  await go('This computer')
  await window.getByRole('region', { name: 'What it can do' }).waitFor()
  await shoot('machine')
  await go('Settings')
  await window.getByRole('switch', { name: 'Only my runs' }).click()
  await press('Add hours')
  await window.getByText('I understand').waitFor()
  await shoot('settings')
  await go('Home')
  await press('Resume')
  const code = await api('POST', '/pair-codes')
  await desk.follow(code.link)
  window = await desk.nextWindow()
  await window.getByLabel('The number that the dashboard shows').waitFor()
  await shoot('question')
  await press('No')
  const [runner] = (await api('GET', '/runners')).runners
  await api('DELETE', `/runners/${runner.id}`)
  await window.locator('.badge', { hasText: 'Needs you' }).waitFor()
  await shoot('revoked')
  await coordinator.crash()
  await press('Remove')
  await window.getByRole('dialog').getByRole('button', { name: 'Disconnect' }).click()
  await window.getByRole('heading', { name: 'Let this computer take your runs' }).waitFor()
  await go('Settings')
  await press('Quit Everdict').catch(() => {}) // the window goes with it
  await until('the app to end', () => desk.app.process.exitCode !== null)
  console.log(`pictures of the app are in ${out}`)
} finally {
  await desk.stop()
  await coordinator.stop()
}
