// The whole way of a computer that becomes a runner: the real app in its window, a real coordinator with login, and a real
// browser that is signed in there. Nothing is called in place of what a person clicks.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Desk } from './desk.mjs'
import { Coordinator, scripted, settled, until } from './rig.mjs'

/** A coordinator with login, its first key, and a desk whose browser is signed in there. */
async function office(t) {
  const coordinator = await new Coordinator('--require-auth', '--lease-ttl', '10m').start() // what is told of a lease is there to be read
  const key = await until('the first key', () => coordinator.process.output.match(/\bak_[\w-]+/)?.[0])
  const api = (method, path, body) => coordinator.api(method, path, body, { authorization: `Bearer ${key}` })
  const desk = new Desk()
  t.after(async () => {
    for (const run of await api('GET', '/runs').catch(() => [])) if (run.status !== 'succeeded' && run.status !== 'failed') await api('POST', `/runs/${run.id}/cancel`).catch(() => {})
    await desk.stop()
    await coordinator.stop()
  })
  await desk.start()
  await desk.run('install')
  const browser = await desk.browse(coordinator.url)
  const page = browser.pages()[0] ?? (await browser.newPage())
  await page.goto(coordinator.url)
  await page.getByLabel('API key').fill(key)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Three steps to a first green run' }).waitFor()
  return { coordinator, api, desk, browser, page }
}

const runners = async (api) => (await api('GET', '/runners')).runners

/** Jobs that name no image run as processes: containers are not what these tests are about. */
async function asProcess(window) {
  await window.getByRole('link', { name: 'Settings' }).click()
  const process = window.getByRole('radio', { name: /As a process of yours/ })
  if (!(await process.isChecked())) {
    await process.check()
    await window.getByRole('button', { name: 'Save' }).click()
    await window.getByRole('button', { name: 'Save' }).waitFor({ state: 'detached' })
  }
  await window.getByRole('link', { name: 'Home' }).click()
  await window.locator('.connection .badge', { hasText: /^(Connected|Ready)$/ }).waitFor()
}

/** Runs something on the computer and watches it in the window: while it runs, and when it is over. */
async function work(api, window, runner, name) {
  const target = (await runners(api)).find((r) => r.id === runner).target
  const request = scripted(name, 'run echo "\\033[32mhello from\\033[0m the <b>desk</b>"\nthink model=m input=10 output=5 cost=0.02\nask May I go on?\ncreate ok.txt done', { check: 'test -f ok.txt' })
  const id = (await api('POST', '/runs', { ...request, runtime: target })).runId
  const job = window.getByRole('article', { name })
  await job.waitFor()
  await job.getByText('It acts as you').waitFor()
  await job.locator('.tail-line', { hasText: 'hello from the <b>desk</b>' }).waitFor()
  assert.equal(await job.locator('b').count(), 0, 'what an agent wrote became markup')
  await window.look('running')
  await until('the question', async () => (await api('GET', `/runs/${id}`)).status === 'suspended')
  await api('POST', `/runs/${id}/approve`, {})
  const run = await settled(api, id)
  assert.deepEqual([run.status, run.verdict], ['succeeded', true], JSON.stringify(run.failure))
  assert.equal(run.provenance.runner, runner)
  await window.getByRole('link', { name: 'History' }).click()
  const row = window.locator('.entries li', { hasText: name })
  await row.getByText('Passed').waitFor()
  await row.getByText('$0.02').waitFor()
  await window.look('history')
  await window.getByRole('link', { name: 'Home' }).click()
}

test('install, start, Connect this computer: approved in the browser, it runs a job; disconnected here, it is gone there', async (t) => {
  const { coordinator, api, desk, browser, page } = await office(t)
  const window = await desk.launch()
  await window.getByRole('heading', { name: 'Let this computer take your runs' }).waitFor()
  await window.look('first start')
  await window.getByLabel('Coordinator’s address').fill(coordinator.url.replace('http://', ''))
  const approval = browser.waitForEvent('page')
  await window.getByRole('button', { name: 'Connect this computer' }).click()
  await window.getByRole('heading', { name: 'Approve it in the browser' }).waitFor()
  const number = await window.locator('.digits').innerText()
  await window.look('waiting')

  const there = await approval // the browser was opened by the app, and nobody had to sign in
  await there.getByRole('heading', { name: 'Connect this computer?' }).waitFor()
  assert.equal(await there.locator('.digits').innerText(), number)
  assert.deepEqual(await runners(api), [])
  await there.getByRole('button', { name: 'Approve' }).click()
  await there.getByText('This computer is being connected').waitFor()
  await window.getByRole('heading', { name: 'This computer is connected' }).waitFor()
  await window.look('connected')
  await window.getByRole('button', { name: 'Done' }).click()
  const [runner] = await until('it to be online', async () => {
    const all = await runners(api)
    return all[0]?.online && all
  })
  assert.equal(runner.scope, 'owner')
  await asProcess(window)
  await work(api, window, runner.id, 'first-job')

  // Paused here is seen there.
  await page.getByRole('link', { name: 'Runners' }).click()
  const row = page.locator('tr', { hasText: runner.label })
  const state = (word) => row.locator('.badge', { hasText: word }).waitFor()
  await state('Online')
  await window.getByRole('button', { name: 'Pause', exact: true }).click()
  await window.locator('.badge', { hasText: 'Paused' }).waitFor()
  await state('Paused')
  await window.look('paused')
  await window.getByRole('button', { name: 'Resume' }).click()
  await state('Online')

  await window.getByRole('link', { name: 'This computer' }).click()
  await window.getByRole('region', { name: 'What it can do' }).waitFor()
  await window.look('machine')
  await window.getByRole('link', { name: 'Settings' }).click()
  await window.look('settings')
  await window.getByRole('button', { name: 'Disconnect' }).click()
  await window.getByRole('dialog').getByRole('button', { name: 'Disconnect' }).click()
  await window.getByRole('link', { name: 'Home' }).click()
  await window.getByRole('heading', { name: 'Let this computer take your runs' }).waitFor()
  await page.getByRole('heading', { name: 'No machine is connected' }).waitFor()
  assert.deepEqual(await runners(api), [])

  assert.ok(!/\b(rnr|ak|prc|pgc)_[\w-]{32}/.test(desk.kept()), 'a token is kept or logged on the desk')
  window.check()
})

test('Connect this device in the dashboard opens the app by a link; revoked there, the app says so and runs nothing', async (t) => {
  const { api, desk, page } = await office(t)
  const before = await desk.launch()
  await before.getByRole('heading', { name: 'Let this computer take your runs' }).waitFor()
  await page.getByRole('link', { name: 'Runners' }).click()
  await page.getByRole('button', { name: 'Connect this device' }).first().click()
  await page.getByRole('button', { name: 'Open the Everdict app' }).click()
  const number = await page.locator('.digits').innerText()
  const window = await desk.nextWindow()
  await window.getByRole('heading', { name: /^Connect this computer to 127\.0\.0\.1:\d+ as / }).waitFor()
  await window.look('question')
  await window.getByLabel('The number that the dashboard shows').fill(number)
  await window.getByRole('button', { name: 'Connect', exact: true }).click()
  await window.getByRole('heading', { name: 'This computer is connected' }).waitFor()
  await page.getByTestId('pair-code').getByText('is online and takes your runs').waitFor()
  await page.getByRole('button', { name: 'Done' }).click()
  await window.getByRole('button', { name: 'Done' }).click()
  const [runner] = await runners(api)
  await asProcess(window)
  await work(api, window, runner.id, 'linked-job')

  // Revoked while a job runs: it ends here, and goes on nowhere.
  const { runId } = await api('POST', '/runs', { ...scripted('endless', 'say begun\nrun sleep 600'), runtime: runner.target })
  await window.getByRole('article', { name: 'endless' }).waitFor()
  await until('it to work', () => desk.working().length > 0)
  await page.locator('tr', { hasText: runner.label }).click()
  await page.getByRole('button', { name: 'Revoke' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
  await window.locator('.badge', { hasText: 'Needs you' }).waitFor()
  await window.getByRole('button', { name: 'Connect anew' }).waitFor()
  await window.getByRole('article', { name: 'endless' }).waitFor({ state: 'detached' })
  await window.look('revoked')
  await until('its processes to end', () => desk.working().length === 0)
  await page.getByRole('heading', { name: 'No machine is connected' }).waitFor()
  await page.goto(new URL(`/ui/runs/${runId}`, page.url()).href)
  await page.getByRole('region', { name: 'The attempt' }).getByText(`runner ${runner.id}, which has attempt 1, was revoked; the attempt is given up at`).waitFor()
  await window.getByRole('button', { name: 'Remove' }).click()
  await window.getByRole('dialog').getByRole('button', { name: 'Disconnect' }).click()
  await window.getByRole('heading', { name: 'Let this computer take your runs' }).waitFor()
  window.check()
})
