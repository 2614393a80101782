// What the tests of the dashboard have in common: a real coordinator and real
// runners on loopback, and Debian's Chromium. Nothing of it outlives its test.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../../', import.meta.url))
const require = createRequire(join(root, 'coordinator/dashboard/web/package.json'))
export const { chromium } = require('playwright-core')
const axeSource = require('axe-core').source
const bin = join(root, 'bin/everdict')

/** Waits until fn gives something true, and says what it waited for when it never does. */
export async function until(what, fn, ms = 60_000) {
  const end = Date.now() + ms
  let last
  for (;;) {
    try {
      const got = await fn()
      if (got) return got
      last = got
    } catch (error) {
      last = error
    }
    if (Date.now() > end) assert.fail(`waited ${ms / 1000} s for ${what}; last: ${last instanceof Error ? last.message : JSON.stringify(last)}`)
    await new Promise((r) => setTimeout(r, 50))
  }
}

/** A child process that is ended by its id. */
export class Child {
  output = ''
  constructor(args, { input, env, program = bin } = {}) {
    this.process = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, ...env } })
    this.exited = new Promise((resolve) => {
      this.process.once('exit', resolve)
      this.process.once('error', (error) => {
        this.output += error.message
        resolve()
      })
    })
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream.setEncoding('utf8')
      stream.on('data', (text) => {
        this.output = (this.output + text).slice(-200_000)
      })
    }
    this.process.stdin.on('error', () => {})
    this.process.stdin.end(input ?? '')
  }
  async end(signal = 'SIGTERM') {
    if (this.process.exitCode === null && this.process.signalCode === null) this.process.kill(signal)
    const late = setTimeout(() => this.process.kill('SIGKILL'), 20_000)
    await this.exited
    clearTimeout(late)
  }
}

/** A coordinator with a data directory of its own. */
export class Coordinator {
  children = []
  workspaces = new Set()
  constructor(...args) {
    this.args = args
    this.dir = mkdtempSync(join(tmpdir(), 'everdict-browser-'))
    this.listen = '127.0.0.1:0'
  }
  async start() {
    this.process = new Child(['coordinator', '--data-dir', join(this.dir, 'data'), '--listen', this.listen, ...this.args])
    this.url = await until(
      'the coordinator to be ready',
      () => this.process.output.match(/^(http:\S+) is ready/m)?.[1] ?? (this.process.process.exitCode !== null && assert.fail(this.process.output)),
    )
    this.listen = this.url.replace('http://', '')
    return this
  }
  /** As a power cut would: no goodbye. */
  async crash() {
    await this.process.end('SIGKILL')
  }
  async api(method, path, body, headers = {}) {
    const response = await fetch(this.url + path, {
      method,
      headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${text.slice(0, 400)}`)
    return text === '' ? undefined : /json/.test(response.headers.get('content-type') ?? '') ? JSON.parse(text) : text
  }
  /** The API as a member of a workspace of the development mode. */
  as(workspace) {
    this.workspaces.add(workspace)
    return (method, path, body) => this.api(method, path, body, { 'x-everdict-tenant': workspace })
  }
  /** Starts a runner with a token, as the page's command does: on standard input. */
  runner(token, name = `r${this.children.length}`) {
    const child = new Child(['runner', '--pair', '-', '--api-url', this.url, '--state-dir', join(this.dir, name), '--work-dir', join(this.dir, `${name}-work`)], { input: `${token}\n` })
    this.children.push(child)
    return child
  }
  /** Pairs and starts a runner, and waits until it is online. */
  async connect(api, label) {
    const paired = await api('POST', '/runners', { label, capabilities: ['git'] })
    const child = this.runner(paired.token, label)
    await until(`${label} to be online`, async () => (await api('GET', '/workspace/runners')).runners.some((r) => r.id === paired.runner.id && r.online) || child.process.exitCode !== null && assert.fail(child.output))
    return { ...paired.runner, child }
  }
  /** Ends what still runs: a runner that is told to stop would wait for it. */
  async cancelAll() {
    for (const workspace of this.workspaces) {
      const api = this.as(workspace)
      const open = (await Promise.all(['running', 'suspended'].map((status) => api('GET', `/runs?status=${status}`)))).flat()
      await Promise.all(open.map((run) => api('POST', `/runs/${run.id}/cancel`).catch(() => {})))
      await until('the runs to end', async () => (await api('GET', '/runs?status=running')).length === 0, 15_000)
    }
  }
  async stop() {
    await this.cancelAll().catch(() => {}) // one that is down has nothing to cancel
    await Promise.all(this.children.map((c) => c.end()))
    await this.process?.end()
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 5 })
  }
}

/** Where Chromium is. */
export function browserPath() {
  const path = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((p) => existsSync(p))
  assert.ok(path, 'there is no Chromium: make deps installs it, or CHROMIUM says where it is')
  return path
}

/** As root Chromium has no sandbox of its own; it sees nothing but loopback. */
export const browserArgs = [...(process.getuid?.() === 0 ? ['--no-sandbox'] : []), '--disable-dev-shm-usage', '--disable-gpu', '--font-render-hinting=none', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1']

export async function openBrowser() {
  return chromium.launch({ executablePath: browserPath(), headless: true, args: browserArgs })
}

/** Other tests on this machine make and remove networks, and Chromium then ends what it is asking. */
export const notOurs = /ERR_NETWORK_CHANGED/

/**
 * A page whose every mistake fails the test: what it throws, writes to the console as an
 * error, asks of another host, or does against its content security policy.
 * allow are patterns of mistakes that the test provokes.
 */
export async function openPage(browser, url, { workspace, theme = 'light', width = 1360, height = 860, allow = [], storage = {} } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce', locale: 'en-GB', timezoneId: 'Europe/Berlin', permissions: ['clipboard-read', 'clipboard-write'] })
  context.setDefaultTimeout(30_000)
  const items = { ...storage, ...(workspace ? { 'everdict.workspace': workspace } : {}) }
  await context.addInitScript((all) => {
    for (const [k, v] of Object.entries(all)) if (localStorage.getItem(k) === null) localStorage.setItem(k, v)
    globalThis.violations = []
    addEventListener('securitypolicyviolation', (e) => globalThis.violations.push(`${e.effectiveDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`))
  }, items)
  const page = await context.newPage()
  const mistakes = []
  page.on('pageerror', (e) => mistakes.push(`thrown: ${e.message}`))
  page.on('console', (m) => {
    if (m.type() === 'error' || m.type() === 'warning') mistakes.push(`console: ${m.text()} ${m.location().url}`)
  })
  page.on('dialog', (d) => {
    mistakes.push(`dialog: ${d.message()}`)
    void d.dismiss()
  })
  page.on('request', (r) => {
    const target = new URL(r.url())
    if (target.protocol.startsWith('http') && target.origin !== new URL(url).origin) mistakes.push(`request to ${r.url()}`)
  })
  page.check = async () => {
    const violations = await page.evaluate(() => globalThis.violations).catch(() => [])
    const real = [...mistakes, ...violations.map((v) => `policy: ${v}`)].filter((m) => ![...allow, notOurs].some((a) => a.test(m)))
    assert.deepEqual(real, [], 'mistakes of the page')
  }
  page.done = async () => {
    await page.check()
    await context.close()
  }
  page.origin = url
  return page
}

/** What axe finds on a page that matters: serious and critical. */
export async function axeFindings(page) {
  await page.evaluate(axeSource)
  return page.evaluate(async () =>
    (await globalThis.axe.run(document, { resultTypes: ['violations'] })).violations
      .filter((v) => v.impact === 'serious' || v.impact === 'critical')
      .map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target.join(' ')} ${n.any[0]?.message ?? ''}`).join(' | ')}`),
  )
}

/** A run of the scripted agent. */
export function scripted(id, script, { check, delay, timeoutSec = 120, ...more } = {}) {
  return {
    harness: { id: 'scripted', version: 'latest', params: { script, ...(delay ? { delay } : {}) } },
    case: { id, env: { kind: 'repo', source: { files: { 'README.md': 'hello\n' } } }, task: 'Do what the script says', graders: check ? [{ id: 'tests-pass', config: { cmd: check } }] : [], timeoutSec, tags: [], ...more },
  }
}

export async function settled(api, id) {
  return until(`${id} to be over`, async () => {
    const run = await api('GET', `/runs/${id}`)
    return (run.status === 'succeeded' || run.status === 'failed') && run
  })
}
