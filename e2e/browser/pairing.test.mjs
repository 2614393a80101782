// How a computer becomes a runner, on the dashboard's side: in a real browser, against a real coordinator.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Machine } from './machine.mjs'
import { axeFindings, Coordinator, openBrowser, openPage, until } from './rig.mjs'

let browser
let coordinator
before(async () => {
  coordinator = await new Coordinator().start()
  browser = await openBrowser()
})
after(async () => {
  await browser?.close()
  await coordinator?.stop()
})

let made = 0
function workspace() {
  const name = `pair-${++made}`
  return { name, api: coordinator.as(name) }
}

async function visit(t, path, options = {}) {
  const page = await openPage(browser, options.url ?? coordinator.url, options)
  t.after(() => page.context().close())
  await page.goto((options.url ?? coordinator.url) + path)
  return page
}

function machine(t, label, where = coordinator) {
  const m = new Machine(where, label)
  t.after(() => m.close())
  return m
}

const pairPath = (started) => new URL(started.url).pathname
const back = /request to http:\/\/127\.0\.0\.1:\d+\/callback/
/** Nothing here handles the scheme; that a page cannot know it is what the tests are about. */
const noHandler = /everdict:/
/** Chromium asks whether to open the link, and a page gets no input meanwhile. Nobody is there to answer. */
const press = (locator) => locator.dispatchEvent('click')

test('a computer is looked at and approved; the browser goes back to it with the grant', async (t) => {
  const { name, api } = workspace()
  const m = machine(t, 'studio')
  const started = await m.askByBrowser()
  const page = await visit(t, pairPath(started), { workspace: name, allow: [back] })
  await page.getByRole('heading', { name: 'Connect this computer?' }).waitFor()
  assert.equal(await page.locator('.digits').innerText(), started.number)
  for (const said of ['studio.local', 'linux · amd64', '127.0.0.1', 'v1.2.3', 'docker', 'If it differs, deny.', 'your own runs', 'names no image acts as the user', 'Nothing else of the workspace']) {
    await page.getByText(said).first().waitFor()
  }
  assert.equal(await page.getByText('Somebody may have sent you here').count(), 0)
  assert.match(await page.getByRole('timer').innerText(), /^[0-5]:\d\d left$/)
  assert.equal((await api('GET', '/runners')).runners.length, 0, 'it is a runner before anybody said yes')

  await page.getByRole('button', { name: 'Approve' }).click()
  await page.getByRole('heading', { name: 'Back in the app' }).waitFor()
  const brought = await m.brought
  assert.deepEqual([brought.pairing, brought.state], [started.id, m.state])
  assert.match(brought.grant, /^pgc_/)
  const runner = await m.finish(brought.grant)
  assert.deepEqual((await api('GET', '/runners')).runners.map((r) => r.id), [runner.id])

  // Whoever comes back sees what has become of it, and cannot decide again.
  await page.goto(coordinator.url + pairPath(started))
  await page.getByText('is a runner of yours').waitFor()
  assert.equal(await page.getByRole('button', { name: 'Approve' }).count(), 0)
  await page.check()
})

test('when the way back fails, the page still has the other one; and a second look changes nothing', async (t) => {
  const { name } = workspace()
  const m = machine(t, 'behind-a-wall')
  const started = await m.askByBrowser()
  await m.close()
  const page = await visit(t, pairPath(started), { workspace: name, allow: [back, /ERR_CONNECTION_REFUSED/, /localStorage/, noHandler] })
  await page.getByRole('button', { name: 'Approve' }).click()
  // Not waitForURL, which throws when it sees the navigation itself fail.
  await until('the way back to fail', () => page.url().startsWith('chrome-error:'))
  await page.goto(coordinator.url + pairPath(started)) // as the browser's Back does
  await page.getByRole('heading', { name: 'Approved' }).waitFor()
  await page.getByRole('button', { name: 'Return to the app' }).click()
  const link = await page.getByRole('link', { name: 'Return to the app' }).getAttribute('href')
  assert.match(link, new RegExp(`^everdict://granted\\?p=${started.id}&code=pgc_[\\w-]+&state=${m.state}$`))
  await m.finish(new URL(link).searchParams.get('code'))
  await page.getByText('is a runner of yours').waitFor()
  await page.check()
})

test('a denied computer has nothing, and both sides say so', async (t) => {
  const { name, api } = workspace()
  const m = machine(t, 'stranger')
  const started = await m.ask()
  const page = await visit(t, pairPath(started), { workspace: name })
  await page.getByText('Somebody may have sent you here').waitFor()
  await page.getByRole('button', { name: 'Deny' }).click()
  await page.getByRole('heading', { name: 'This request was denied' }).waitFor()
  const answer = await m.redeem()
  assert.deepEqual([answer.status, answer.body.data?.reason], [403, 'denied'])
  assert.deepEqual((await api('GET', '/runners')).runners, [])
  await page.check()
})

test('what was approved by mistake is taken back before the computer comes', async (t) => {
  const { name } = workspace()
  const m = machine(t, 'too-quick')
  const page = await visit(t, pairPath(await m.ask()), { workspace: name })
  await page.getByRole('button', { name: 'Approve' }).click()
  await page.getByText('to take it up').waitFor()
  await page.getByRole('button', { name: 'Deny after all' }).click()
  await page.getByRole('heading', { name: 'This request was denied' }).waitFor()
  assert.equal((await m.redeem()).status, 403)
  await page.check()
})

test('the code of a machine without a browser is typed in, with any case and spaces', async (t) => {
  const { name } = workspace()
  const m = machine(t, 'server')
  const started = await m.ask()
  assert.equal((await m.redeem()).status, 202)
  const page = await visit(t, new URL(started.enterUrl).pathname, { workspace: name, allow: [/status of 404/] })
  const field = page.getByLabel('Code')
  await field.fill('BBBB-BBBB')
  await page.getByRole('button', { name: 'Continue' }).click()
  await page.getByRole('alert').getByText('no machine waits with this code').waitFor()
  await field.fill(` ${started.userCode.toLowerCase().replace('-', ' ')} `)
  assert.equal(await field.inputValue(), started.userCode)
  await page.getByRole('button', { name: 'Continue' }).click()
  await page.waitForURL((u) => u.pathname === pairPath(started))
  assert.equal(await page.locator('.digits').innerText(), started.number)
  await page.getByText('Somebody may have sent you here').waitFor()
  await page.getByRole('button', { name: 'Approve' }).click()
  await page.getByText('to take it up').waitFor()
  await m.finish()
  await page.getByText('is a runner of yours').waitFor()
  await page.check()
})

test('an address that names no request says what to do', async (t) => {
  const page = await visit(t, '/ui/pair/prq_0000000000000000000000000000', { workspace: workspace().name, allow: [/status of 404/] })
  await page.getByRole('heading', { name: 'There is no such request' }).waitFor()
  await page.getByText('Start again on the computer').waitFor()
  await page.check()
})

test('with login: the sign-in comes first and leads back to the request, and a key that may only read cannot decide', async (t) => {
  const own = await new Coordinator('--require-auth').start()
  t.after(() => own.stop())
  const key = await until('the first key', () => own.process.output.match(/\bak_[\w-]+/)?.[0])
  const reader = (await own.api('POST', '/keys', { label: 'reader', scopes: ['read'] }, { authorization: `Bearer ${key}` })).apiKey
  const m = machine(t, 'laptop', own)
  const started = await m.askByBrowser()
  for (const [secret, may] of [[reader, false], [key, true]]) {
    const page = await visit(t, pairPath(started), { url: own.url, allow: [/status of 401/, back] })
    await page.getByLabel('API key').fill(secret)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { name: 'Connect this computer?' }).waitFor()
    await page.getByText('Signed in as').waitFor()
    const approve = page.getByRole('button', { name: 'Approve' })
    assert.equal(await approve.isEnabled(), may)
    if (may) {
      await approve.click()
      await page.getByRole('heading', { name: 'Back in the app' }).waitFor()
    }
    await page.check()
  }
  await m.finish((await m.brought).grant)
})

test('Connect this device opens the app, names the other ways when nothing comes, and shows the computer that did', async (t) => {
  const { name, api } = workspace()
  const page = await visit(t, '/ui/runners', { workspace: name, allow: [noHandler] })
  const codes = []
  page.on('response', async (r) => {
    if (r.request().method() === 'POST' && r.url().endsWith('/pair-codes')) codes.push(await r.json())
  })
  await page.getByRole('button', { name: 'Connect this device' }).first().click()
  await page.getByRole('button', { name: 'Open the Everdict app' }).click()
  const first = await until('the pair code', () => codes[0])
  assert.equal(await page.locator('.digits').innerText(), first.number)
  assert.match(first.link, /^everdict:\/\/pair\?c=http%3A%2F%2F127\.0\.0\.1%3A\d+&as=[^&]+&ws=[^&]+&code=prc_[\w-]+$/)
  await page.getByText('Nothing happened?').waitFor()
  await page.getByText(`everdict runner --pair --api-url ${coordinator.url}`).waitFor()
  assert.equal(await page.getByRole('link', { name: 'open the app once more' }).getAttribute('href'), first.link)

  // Somebody who has the link and not the number.
  const codeOf = (c) => new URL(c.link).searchParams.get('code')
  const thief = machine(t, 'thief')
  const wrong = String((Number(first.number) + 1) % 100).padStart(2, '0')
  await assert.rejects(() => thief.ask({ code: codeOf(first), number: wrong }), /number/)
  await page.getByText('A wrong number was typed in.').waitFor()

  await press(page.getByRole('button', { name: 'Try again' }))
  const second = await until('another pair code', () => codes[1])
  await until('its number', async () => (await page.locator('.digits').innerText()) === second.number)
  const m = machine(t, 'desk')
  await m.ask({ code: codeOf(second), number: second.number })
  await page.getByText('The app has come with it').waitFor()
  const runner = await m.finish()
  await page.getByTestId('pair-code').getByText('is a runner of yours').waitFor()
  await press(page.getByRole('button', { name: 'Done' }))
  const row = page.locator('tr', { hasText: 'desk' })
  await row.getByText('runs of').waitFor()
  await row.getByLabel('paired with a key of its own').waitFor()
  assert.deepEqual((await api('GET', '/runners')).runners.map((r) => r.id), [runner.id])
  await page.check()
})

test('the pages of pairing have no serious finding of axe and fit a narrow screen', async (t) => {
  const { name } = workspace()
  const findings = []
  for (const theme of ['light', 'dark']) {
    const page = await openPage(browser, coordinator.url, { workspace: name, theme, width: 360, height: 740, allow: [/status of 404/, noHandler] })
    t.after(() => page.context().close())
    const look = async (state) => {
      findings.push(...(await axeFindings(page)).map((f) => `${state}, ${theme}: ${f}`))
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (over > 0) findings.push(`${state} is ${over} px too wide`)
    }
    await page.goto(`${coordinator.url}/ui/pair`)
    await page.getByLabel('Code').waitFor()
    await look('enter')
    await page.goto(coordinator.url + pairPath(await machine(t, 'a-machine-with-a-name-of-eighty-characters-that-does-not-want-to-break-at-all-ok').ask()))
    await page.getByRole('button', { name: 'Approve' }).waitFor()
    await look('question')
    await page.getByRole('button', { name: 'Approve' }).click()
    await page.getByText('to take it up').waitFor()
    await look('approved')
    await page.getByRole('button', { name: 'Deny after all' }).click()
    await page.getByText('This request was denied').waitFor()
    await look('denied')
    await page.goto(`${coordinator.url}/ui/runners`)
    await page.getByRole('button', { name: 'Connect this device' }).first().click()
    await page.getByRole('button', { name: 'Open the Everdict app' }).waitFor()
    await look('connect')
    await page.getByRole('button', { name: 'Open the Everdict app' }).click()
    await page.getByText('Nothing happened?').waitFor()
    await look('connecting')
    await page.check()
  }
  assert.deepEqual(findings, [])
})
