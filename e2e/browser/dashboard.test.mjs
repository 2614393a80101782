// The dashboard in a real browser, against a real coordinator with live runners.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { after, before, describe, test } from 'node:test'
import { axeFindings, Coordinator, openBrowser, openPage, root, scripted, settled, until } from './rig.mjs'
import { pages, ready, seed } from './seed.mjs'

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

/** A workspace of its own, so that no test sees what another has done. */
let made = 0
function workspace() {
  const name = `ws-${++made}`
  return { name, api: coordinator.as(name) }
}

/** Opens a page of the dashboard, and checks it at the end. */
async function visit(t, path, options = {}) {
  const page = await openPage(browser, options.url ?? coordinator.url, options)
  t.after(() => page.context().close())
  await page.goto((options.url ?? coordinator.url) + path)
  return page
}

const badge = (page, text) => page.locator('.run-head .badge', { hasText: text }).waitFor()
const tokenIn = (text) => text.match(/\brnr_[\w-]{30,}/)?.[0]

test('first visit: three steps on the page end with a green run', async (t) => {
  const { name, api } = workspace()
  const page = await visit(t, '/', { workspace: name })
  await page.getByRole('heading', { name: 'Three steps to a first green run' }).waitFor()
  await page.getByText('With a token, for automation').click()
  await page.getByLabel('Name of the machine').fill('my-laptop')
  await page.getByRole('button', { name: 'Make a token' }).click()
  const command = await page.getByLabel('Command', { exact: true }).innerText()
  const token = tokenIn(command)
  assert.ok(token, `no token in ${command}`)
  assert.ok(!command.split('\n')[0].includes(token), 'the token is an argument of the command')
  coordinator.runner(token, `${name}-laptop`)
  await page.getByText('1 machine online.').waitFor()
  await page.getByRole('button', { name: 'Submit the first run' }).click()
  await page.getByRole('heading', { name: 'Your first run passed' }).waitFor()
  await page.getByRole('link', { name: 'See what it did' }).click()
  await badge(page, 'Passed')
  const [run] = await api('GET', '/runs')
  assert.equal(run.verdict, true)
  assert.ok(page.url().endsWith(run.id))
  await page.check()
})

describe('a run', () => {
  let ws
  before(async () => {
    ws = workspace()
    await coordinator.connect(ws.api, 'bench')
  })
  const submit = async (...args) => (await ws.api('POST', '/runs', scripted(...args))).runId
  const open = (t, id, query = '', options = {}) => visit(t, `/ui/runs/${id}${query}`, { workspace: ws.name, ...options })

  test('its trace and log grow while it runs, by one stream', async (t) => {
    const id = await submit('live', 'say first\nask May I go on?\nsay second\nrun seq 1 30 && sleep 1\nsay third', { check: 'true' })
    const streams = []
    const page = await openPage(browser, coordinator.url, { workspace: ws.name })
    t.after(() => page.context().close())
    page.on('request', (r) => {
      if (/\/(events|live\/stream|logs\/stream)(\?|$)/.test(r.url())) streams.push(r.url())
    })
    await page.goto(`${coordinator.url}/ui/runs/${id}`)
    await page.locator('.event-head', { hasText: 'first' }).waitFor()
    assert.equal(await page.locator('.event-head', { hasText: 'second' }).count(), 0)
    await page.getByRole('button', { name: 'Approve' }).click()
    await page.locator('.event-head', { hasText: 'second' }).waitFor()
    await page.locator('.event-head', { hasText: 'third' }).waitFor()
    await badge(page, 'Passed')
    await page.getByRole('tab', { name: /Log/ }).click()
    await page.locator('.log-line', { hasText: /^\d*30$/ }).waitFor()
    assert.ok(streams.length >= 1 && streams.every((s) => s.includes('/live/stream')), `streams of the page: ${streams}`)
    assert.equal(streams.length, 1, `one stream for a tab: ${streams}`)
    await page.check()
  })

  test('is cancelled from the page', async (t) => {
    const id = await submit('cancel-me', 'say begun\nhang')
    const page = await open(t, id)
    await page.locator('.event-head', { hasText: 'begun' }).waitFor()
    await page.getByRole('button', { name: 'Cancel', exact: true }).click()
    await page.getByRole('button', { name: 'Cancel the run' }).click()
    await badge(page, 'Cancelled')
    await page.getByText('Ended by a person').waitFor()
    const run = await settled(ws.api, id)
    assert.equal(run.error.code, 'CANCELLED')
    await page.check()
  })

  test('that is parked is approved, with a comment', async (t) => {
    const id = await submit('parked', 'say hi\ncreate ok.txt done', { approval: 'before-start', check: 'test -f ok.txt' })
    const page = await open(t, id)
    await page.getByText('waits for your approval before it starts').waitFor()
    await page.getByLabel('Comment').fill('go on')
    await page.getByRole('button', { name: 'Approve' }).click()
    await badge(page, 'Passed')
    await page.check()
  })

  test('that is parked is rejected', async (t) => {
    const id = await submit('parked', 'say hi', { approval: 'before-start' })
    const page = await open(t, id)
    await page.getByRole('button', { name: 'Reject' }).click()
    await badge(page, 'Rejected')
    await page.check()
  })

  test('shows what limit it met, and runs again', async (t) => {
    const id = await submit('too-slow', 'hang', { timeoutSec: 1 })
    await settled(ws.api, id)
    const page = await open(t, id)
    await badge(page, 'Failed')
    const card = page.getByRole('region', { name: 'Failure' })
    await card.getByText('timeoutSec', { exact: true }).waitFor()
    await card.getByText('Configured').waitFor()
    assert.match(await card.innerText(), /Measured\s+[1-9]\d*(\.\d+)? s/)
    await page.getByRole('button', { name: 'Run again' }).click()
    await page.waitForURL((u) => !u.pathname.endsWith(id))
    await page.locator('.run-facts').getByText('Again from').waitFor()
    await page.check()
  })

  test('its diff is shown, side by side and unified, whatever the names', async (t) => {
    const id = await submit('changes', 'replace README.md hello goodbye\ncreate new.txt added\nrun printf "\\000\\001\\002" > data.bin; touch "$(printf \'odd\\342\\200\\256name <b>.txt\')"\nrun printf "a\\342\\200\\256b\\n" > bidi.txt')
    await settled(ws.api, id)
    const page = await open(t, id, '?tab=diff')
    const file = page.getByRole('region', { name: 'README.md', exact: true })
    await file.locator('.diff-split').waitFor()
    assert.match(await file.innerText(), /hello[\s\S]*goodbye/)
    await page.getByRole('button', { name: 'Unified' }).click()
    await file.locator('.diff-unified').waitFor()
    await page.getByRole('region', { name: 'data.bin' }).getByText('binary').waitFor()
    await page.getByRole('region', { name: 'odd⟨202E⟩name <b>.txt' }).waitFor()
    assert.match(await page.getByRole('region', { name: 'bidi.txt', exact: true }).innerText(), /a⟨202E⟩b/)
    await page.check()
  })

  test('hostile output is text and nothing else', async (t) => {
    const esc = '\\033'
    const hostile = [
      '<script>document.title="owned"</script>',
      '<img src=x onerror="document.title=1">',
      `${esc}[31mred${esc}[0m plain`,
      `${esc}]8;;javascript:alert(1)${esc}\\\\link${esc}]8;;${esc}\\\\`,
      `${esc}]0;owned\\007title`,
      'a\\342\\200\\256b\\342\\201\\246c',
      'bell\\007 back\\010 nul\\000 c1\\302\\233 end',
      `${esc}[2J${esc}[Hcleared`,
    ]
    const script = hostile.map((l) => `run printf '${l.replaceAll("'", "'\\''")}\\n'`).join('\n')
    const question = 'ask <script>alert(1)</script> \u202e?'
    const id = await submit('hostile', `${script}\nsay <img src=x onerror=alert(1)> [x](javascript:alert(1))\n${question}`)
    t.after(() => ws.api('POST', `/runs/${id}/cancel`)) // it holds the runner's only slot
    const page = await open(t, id)
    await page.locator('.decide blockquote', { hasText: '<script>alert(1)</script>' }).waitFor()
    assert.match(await page.locator('.decide blockquote').innerText(), /⟨202E⟩/)
    await page.getByRole('tab', { name: /Log/ }).click()
    await page.locator('.log-line', { hasText: 'cleared' }).waitFor()
    const text = await page.locator('.log-space').innerText()
    assert.match(text, /<script>document\.title="owned"<\/script>/)
    assert.match(text, /<img src=x onerror="document\.title=1">/)
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(text, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/, 'controls in the log')
    assert.equal(await page.locator('.log-line .ansi-fg-red').innerText(), 'red')
    assert.equal(await page.locator('#evidence img, #evidence script, #evidence a, #evidence iframe').count(), 0)
    await page.getByRole('tab', { name: /Trace/ }).click()
    for (const head of await page.locator('.event-head').all()) await head.click()
    assert.equal(await page.locator('#evidence img, #evidence script, #evidence a, #evidence iframe').count(), 0)
    assert.doesNotMatch(await page.title(), /owned/)
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(await page.locator('.trace-space').innerText(), /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/, 'controls in the trace')
    await page.check()
  })

  test('its evidence is downloaded, and its request copied as curl', async (t) => {
    const id = await submit('evidence', 'run printf "one\\ntwo\\n"\ncreate a.txt x')
    await settled(ws.api, id)
    const page = await open(t, id)
    await page.getByRole('tab', { name: /Log/ }).locator('.count').waitFor()
    const text = async (name) => {
      await page.locator('.menu > summary').click()
      return saved(page, name)
    }
    assert.equal(await text('Log, as it was written'), 'one\ntwo\n')
    assert.match(await text('Diff, for git apply --binary'), /^diff --git a\/a\.txt b\/a\.txt/)
    assert.ok((await text('Trace, a line per event')).trim().split('\n').every((l) => JSON.parse(l).kind))
    await page.getByRole('button', { name: 'Copy as curl' }).click()
    const command = await until('the command', async () => {
      const text = await page.evaluate(() => navigator.clipboard.readText())
      return text.includes('curl') && text
    })
    const child = spawn('bash', ['-c', command], { stdio: ['ignore', 'pipe', 'pipe'] })
    let answer = ''
    child.stdout.on('data', (d) => (answer += d))
    await new Promise((resolve) => child.once('close', resolve))
    assert.equal((await settled(ws.api, JSON.parse(answer).runId)).caseId, 'evidence', command)
    await page.check()
  })

  test('a log is searched and moved through', async (t) => {
    const id = await submit('long-log', 'run seq 1 200000; echo needle in the hay; seq 1 200000')
    await settled(ws.api, id)
    const page = await open(t, id, '?tab=log')
    await page.locator('.log-line').first().waitFor()
    await page.getByLabel('Search the log').fill('needle')
    await page.locator('mark', { hasText: 'needle' }).waitFor()
    await page.getByText('1 of 1').waitFor()
    await page.getByRole('button', { name: 'End of the log' }).click()
    await page.locator('.log-line', { hasText: /^\d*200000$/ }).last().waitFor()
    assert.ok((await page.locator('.log-line').count()) < 200, 'lines that are drawn')
    await page.getByLabel('Search the log').fill('')
    await page.getByRole('button', { name: 'Beginning of the log' }).click()
    await page.locator('.log-line .no', { hasText: /^1$/ }).waitFor()
    await page.check()
  })

  test('has all of its trace and log when they could not be read at first', async (t) => {
    const id = await submit('unread', 'say before\nrun echo printed once\nask Go on?')
    await until('the question', async () => (await ws.api('GET', `/runs/${id}`)).status === 'suspended')
    const page = await openPage(browser, coordinator.url, { workspace: ws.name, allow: [/net::ERR_FAILED/] })
    t.after(() => page.context().close())
    const cut = { trace: 2, logs: 2 } // the page asks twice
    await page.route(/\/runs\/[^/]+\/(trace|logs)/, (route) => {
      const what = /\/(trace|logs)/.exec(new URL(route.request().url()).pathname)[1]
      return cut[what]-- > 0 ? route.abort() : route.continue()
    })
    await page.goto(`${coordinator.url}/ui/runs/${id}`)
    await page.locator('.event-head', { hasText: 'before' }).waitFor()
    await page.getByRole('tab', { name: /Log/ }).click()
    await page.locator('.log-line', { hasText: 'printed once' }).waitFor()
    assert.equal(await page.getByRole('alert').count(), 0, 'errors that are still shown')
    assert.ok(cut.trace <= 0 && cut.logs <= 0, JSON.stringify(cut))
    await ws.api('POST', `/runs/${id}/approve`, {})
    await badge(page, 'Ungraded')
    await page.check()
  })

  test('goes on when the coordinator has been killed and started again', async (t) => {
    const own = await new Coordinator().start()
    t.after(() => own.stop())
    const api = own.as('default')
    await own.connect(api, 'survivor')
    const id = (await api('POST', '/runs', scripted('survives', 'say before\nask Go on?\nsay after\ncreate ok.txt done', { check: 'test -f ok.txt' }))).runId
    const page = await visit(t, `/ui/runs/${id}`, { url: own.url, allow: [/net::ERR_/] }) // however a request meets the crash
    await page.getByRole('heading', { name: 'The agent asks a person' }).waitFor()
    await own.crash()
    await page.getByText('Reconnecting to the coordinator').waitFor()
    await own.start()
    await page.getByText('Reconnecting to the coordinator').waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Approve' }).click()
    await badge(page, 'Passed')
    await page.locator('.event-head', { hasText: 'after' }).first().waitFor()
    assert.equal(await page.locator('.event-head', { hasText: 'before' }).count(), 1, 'what came before is there once')
    assert.equal(await page.locator('.event-head', { hasText: 'after' }).count(), 1)
    // A list page comes back by itself too.
    await page.getByRole('link', { name: 'Runs', exact: true }).first().click()
    await page.locator('[data-run]').waitFor()
    await page.locator('.link-state', { hasText: 'Live' }).waitFor()
    await own.crash()
    await page.getByText('Reconnecting to the coordinator').waitFor()
    await own.start()
    await page.locator('.link-state', { hasText: 'Live' }).waitFor()
    await api('POST', '/runs', scripted('afterwards', 'say hi'))
    await page.getByRole('link', { name: 'afterwards' }).waitFor()
    await page.check()
  })
})

/** What the browser saves behind a link. */
async function saved(page, name) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name }).click()])
  let all = ''
  for await (const chunk of await download.createReadStream()) all += chunk
  return all
}

test('when its runner is lost, the page goes on with the next attempt and keeps the one before', async (t) => {
  const own = await new Coordinator('--lease-ttl', '10s', '--freeze-margin', '2s', '--heartbeat', '500ms', '--online-window', '2s').start()
  t.after(() => own.stop())
  const api = own.as('default')
  const first = await own.connect(api, 'first')
  const id = (await api('POST', '/runs', scripted('moves', 'say hello from an attempt\nrun echo printed once\nask Go on?\nsay goodbye'))).runId
  const page = await visit(t, `/ui/runs/${id}`, { url: own.url })
  await page.getByRole('heading', { name: 'The agent asks a person' }).waitFor()
  await first.child.end('SIGKILL')
  await own.connect(api, 'second')
  await until('the second attempt to ask', async () => {
    const run = await api('GET', `/runs/${id}`)
    return run.attempt === 2 && run.status === 'suspended'
  })
  await page.locator('.run-facts > div', { hasText: 'Attempt' }).getByText('2', { exact: true }).waitFor()
  await page.getByRole('button', { name: 'Approve' }).click()
  await page.locator('.event-head', { hasText: 'goodbye' }).waitFor()
  await badge(page, 'Ungraded')
  assert.equal(await page.locator('.event-head', { hasText: 'hello from an attempt' }).count(), 1, 'the trace is that of the newest attempt alone')
  await page.getByRole('tab', { name: /Log/ }).click()
  await page.locator('.log-line', { hasText: 'printed once' }).waitFor()
  assert.equal(await page.locator('.log-line', { hasText: 'printed once' }).count(), 1)
  await page.getByRole('tab', { name: /Overview/ }).click()
  await page.locator('.attempt', { hasText: 'superseded' }).getByText('first').waitFor()
  await page.locator('.attempt', { hasText: 'gave the result' }).getByText('second').waitFor()
  assert.match(await saved(page, 'Log of attempt 1'), /printed once/)
  const trace = await saved(page, 'Trace of attempt 1')
  assert.match(trace, /hello from an attempt/)
  assert.doesNotMatch(trace, /goodbye/)
  await page.check()
})

/** Presses g and a key until they lead somewhere: the key counts only shortly after g. */
function go(page, key, path) {
  return until(`g ${key} to lead to ${path}`, async () => {
    await page.keyboard.press('g')
    await page.keyboard.press(key)
    await page.waitForURL((u) => u.pathname === path, { timeout: 5000 })
    return true
  })
}

test('the list of runs is live, filtered, and moved through with the keyboard', async (t) => {
  const { name, api } = workspace()
  await coordinator.connect(api, `${name}-bench`)
  const submit = async (...args) => (await api('POST', '/runs', scripted(...args))).runId
  await settled(api, await submit('good', 'create a.txt x', { check: 'test -f a.txt' }))
  await settled(api, await submit('bad', 'say no', { check: 'false' }))
  const page = await visit(t, '/ui/runs', { workspace: name })
  await page.locator('[data-run]').nth(1).waitFor()
  await page.locator('.link-state', { hasText: 'Live' }).waitFor()
  const id = await submit('fresh', 'say hi\nask Well?')
  await page.locator(`[data-run="${id}"]`, { hasText: 'Needs you' }).waitFor()
  assert.equal(await page.locator('[data-run]').first().getAttribute('data-run'), id, 'the newest is first')
  await api('POST', `/runs/${id}/approve`, {})
  await page.locator(`[data-run="${id}"]`, { hasText: 'Ungraded' }).waitFor()
  await page.getByRole('button', { name: 'Passed', exact: true }).click()
  await page.waitForFunction(() => document.querySelectorAll('[data-run]').length === 1)
  assert.match(page.url(), /verdict=true/)
  await page.getByRole('button', { name: 'All', exact: true }).click()
  await page.waitForFunction(() => document.querySelectorAll('[data-run]').length === 3)

  await page.keyboard.press('j')
  await page.keyboard.press('j')
  await page.waitForFunction(() => document.activeElement?.getAttribute('data-index') === '1')
  await page.keyboard.press('k')
  await page.waitForFunction(() => document.activeElement?.getAttribute('data-index') === '0')
  await page.keyboard.press('Enter')
  await page.waitForURL(`**/ui/runs/${id}`)
  await go(page, 'r', '/ui/runs')
  await page.keyboard.press('/')
  await page.waitForFunction(() => document.activeElement?.matches('input[type=search]'))
  await page.keyboard.press('Escape')
  await page.waitForFunction(() => document.activeElement === document.body)
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keyboard' }).waitFor()
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Keyboard' }).click()
  await page.getByRole('dialog', { name: 'Keyboard' }).waitFor()
  await page.getByRole('button', { name: 'Close' }).click()
  for (const [key, path] of [['t', '/ui/runtimes'], ['u', '/ui/runners'], ['a', '/ui/harnesses'], ['s', '/ui/secrets'], ['k', '/ui/keys'], [',', '/ui/settings'], ['h', '/']]) {
    await go(page, key, path)
  }
  await page.check()
})

test('without a stream the lists are read again and again', async (t) => {
  const { name, api } = workspace()
  await coordinator.connect(api, `${name}-bench`)
  const page = await openPage(browser, coordinator.url, { workspace: name, allow: [/status of 404/] })
  t.after(() => page.context().close())
  await page.route('**/events', (route) => route.fulfill({ status: 404, body: 'a proxy that does not know it' }))
  await page.goto(`${coordinator.url}/ui/runs`)
  await page.locator('.link-state', { hasText: 'Refreshing every 5 s' }).waitFor()
  const { runId } = await api('POST', '/runs', scripted('seen-anyway', 'say hi'))
  await page.locator(`[data-run="${runId}"]`, { hasText: 'Ungraded' }).waitFor()
  await page.check()
})

test('a runtime whose cluster does not answer says so, with what to do', async (t) => {
  const { name, api } = workspace()
  await api('PUT', '/secrets/k8s-token', { value: 'no token of anything', scope: 'workspace' })
  const page = await visit(t, '/ui/runtimes', { workspace: name })
  await page.getByRole('button', { name: 'Register a runtime' }).first().click()
  await page.getByLabel('Kind').selectOption('k8s')
  await page.getByLabel('Id', { exact: true }).fill('far-cluster')
  await page.getByLabel('Address').fill('https://127.0.0.1:1')
  await page.getByLabel('Image').fill('example.org/job-runner:1')
  await page.getByLabel('Token').fill('k8s-token')
  await page.getByRole('button', { name: 'Probe' }).click()
  const answer = page.getByTestId('probe')
  await answer.waitFor()
  assert.match(await answer.innerText(), /cannot be reached[\s\S]*check the address/)
  await page.getByRole('button', { name: 'Register', exact: true }).click()
  await page.getByRole('heading', { name: 'far-cluster' }).waitFor()
  await page.getByRole('button', { name: 'Probe' }).click()
  await page.getByTestId('probe').first().waitFor()
  await page.check()
})

test('a device is connected, seen, and revoked', async (t) => {
  const { name, api } = workspace()
  const page = await visit(t, '/ui/runners', { workspace: name })
  await page.getByRole('button', { name: 'Connect this device' }).first().click()
  await page.getByText('With a token, for automation').click()
  await page.getByLabel('Name of the machine').fill('desk')
  await page.getByRole('button', { name: 'Make a token' }).click()
  const token = tokenIn(await page.getByLabel('Command', { exact: true }).innerText())
  const child = coordinator.runner(token, `${name}-desk`)
  await page.getByText('desk is online.').waitFor()
  await page.getByRole('button', { name: 'Done' }).click()
  const row = page.locator('tr', { hasText: 'desk' })
  await row.getByText('Online').waitFor()
  await row.click()
  await page.locator('.evidence li', { hasText: /^git git version/ }).waitFor() // what it offers, and what was seen of it
  await page.getByRole('button', { name: 'Revoke' }).click()
  await page.getByRole('button', { name: 'Revoke' }).click()
  await page.getByRole('heading', { name: 'No machine is connected' }).waitFor()
  assert.deepEqual((await api('GET', '/workspace/runners')).runners, [])
  await child.end()
  await page.check()
})

test('harnesses, secrets and keys are made and ended from the page, and no value is kept in it', async (t) => {
  const { name, api } = workspace()
  const page = await visit(t, '/ui/harnesses', { workspace: name })
  const register = async (spec) => {
    await page.getByLabel('Specification').fill(JSON.stringify(spec))
    await page.getByRole('button', { name: 'Register', exact: true }).click()
    await page.getByRole('heading', { name: `my-agent@${spec.version}` }).waitFor()
  }
  await page.getByRole('button', { name: 'Register a harness' }).click()
  await register({ kind: 'command', id: 'my-agent', version: '1.0.0', command: 'echo one' })
  await page.getByRole('button', { name: 'New version' }).click()
  assert.match(await page.getByLabel('Specification').last().inputValue(), /"version": "1\.0\.1"/)
  await page.getByLabel('Specification').last().fill(JSON.stringify({ kind: 'command', id: 'my-agent', version: '1.0.1', command: 'echo two' }))
  await page.getByRole('button', { name: 'Register', exact: true }).click()
  await page.getByRole('heading', { name: 'my-agent@1.0.1' }).waitFor()
  await page.getByLabel('Compare with').selectOption('1.0.0')
  await page.locator('.spec-diff tr', { hasText: 'echo one' }).filter({ hasText: 'echo two' }).waitFor()

  await page.goto(`${coordinator.url}/ui/secrets`)
  await page.getByRole('button', { name: 'Set a secret' }).first().click()
  await page.getByLabel('Name').fill('DEPLOY_TOKEN')
  await page.getByLabel('Value').fill('hunter2-not-shown')
  await page.getByRole('button', { name: 'Set', exact: true }).click()
  await page.getByText('DEPLOY_TOKEN', { exact: true }).waitFor()
  assert.ok(!(await page.content()).includes('hunter2'), 'the value is in the page')
  await page.getByRole('button', { name: 'Delete' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
  await page.getByRole('heading', { name: 'No secret is set' }).waitFor()

  await page.goto(`${coordinator.url}/ui/keys`)
  await page.getByRole('button', { name: 'Make a key' }).first().click()
  await page.getByLabel('Name').fill('ci')
  await page.getByRole('button', { name: 'Make', exact: true }).click()
  const key = (await page.getByLabel('Key', { exact: true }).innerText()).trim()
  assert.match(key, /^ak_/)
  await page.getByRole('button', { name: 'Done' }).click()
  await page.locator('tr', { hasText: 'ci' }).waitFor()
  assert.ok(!(await page.content()).includes(key), 'the key is still in the page')
  await page.locator('tr', { hasText: 'ci' }).getByRole('button', { name: 'End' }).click()
  await page.getByRole('button', { name: 'End the key' }).click()
  await page.getByRole('heading', { name: 'You have no key' }).waitFor()
  assert.deepEqual(await api('GET', '/keys'), [])
  await page.check()
})

test('with login: a key becomes a session, its end leads to the sign-in and back to the page', async (t) => {
  const own = await new Coordinator('--require-auth').start()
  t.after(() => own.stop())
  const key = await until('the first key', () => own.process.output.match(/\bak_[\w-]+/)?.[0])
  const signed = (method, path, body) => own.api(method, path, body, { authorization: `Bearer ${key}` })
  await signed('POST', '/runtimes', { kind: 'local', id: 'nobody', version: '1', maxConcurrent: 1 })
  const id = (await signed('POST', '/runs', { ...scripted('mine', 'say hi', { approval: 'before-start' }), runtime: 'nobody' })).runId
  const page = await visit(t, `/ui/runs/${id}`, { url: own.url, allow: [/status of 401/] })
  await page.getByLabel('API key').fill('ak_wrong')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('alert').waitFor()
  await page.getByLabel('API key').fill(key)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'mine' }).waitFor()
  const [cookie] = await page.context().cookies()
  assert.ok(cookie.httpOnly && cookie.sameSite !== 'None', JSON.stringify(cookie))
  const kept = () => page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, location.href, document.cookie]))
  assert.ok(!(await kept()).includes(key), 'the key is kept in the browser')

  // The session ends on the server: the next thing that the page asks for says so.
  await own.api('DELETE', '/session', undefined, { cookie: `${cookie.name}=${cookie.value}`, origin: own.url, 'sec-fetch-site': 'same-origin' })
  await page.getByRole('button', { name: 'Approve' }).or(page.getByText('Your session')).first().click() // it may have asked by itself
  await page.getByText('Your session').waitFor()
  assert.ok(page.url().endsWith(id), 'the address stays')
  await page.getByLabel('API key').fill(key)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'mine' }).waitFor()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByLabel('API key').waitFor()
  assert.deepEqual(await page.context().cookies(), [])
  await page.check()
})

describe('every page', () => {
  let seeded
  let ws
  before(async () => {
    ws = workspace()
    seeded = await seed(coordinator, ws.api)
  })
  for (const theme of ['light', 'dark']) {
    test(`has no serious finding of axe, ${theme}`, async (t) => {
      const page = await openPage(browser, coordinator.url, { workspace: ws.name, theme })
      t.after(() => page.context().close())
      const findings = []
      for (const [name, path] of pages(seeded)) {
        await page.goto(coordinator.url + path)
        await ready(page)
        findings.push(...(await axeFindings(page)).map((f) => `${name}: ${f}`))
      }
      assert.deepEqual(findings, [])
      await page.check()
    })
  }
  test('fits a narrow screen', async (t) => {
    const page = await openPage(browser, coordinator.url, { workspace: ws.name, width: 360, height: 740 })
    t.after(() => page.context().close())
    const wide = []
    for (const [name, path] of pages(seeded)) {
      await page.goto(coordinator.url + path)
      await ready(page)
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (over > 0) wide.push(`${name} is ${over} px too wide`)
    }
    assert.deepEqual(wide, [])
    await page.check()
  })
})

test('the types of the page are those that the coordinator serves', async () => {
  const child = spawn(process.execPath, ['scripts/api.mjs', '--check', `${coordinator.url}/openapi.json`], { cwd: `${root}coordinator/dashboard/web`, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const s of [child.stdout, child.stderr]) s.on('data', (d) => (said += d))
  const code = await new Promise((resolve) => child.once('exit', resolve))
  assert.equal(code, 0, said)
})
