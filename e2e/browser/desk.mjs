// A person's desk: a display, a session bus, a home, a browser that is signed in, and the desktop app. All of it is of this
// test alone, and ends with it.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { axeFindings, browserArgs, browserPath, Child, chromium, notOurs, root, until } from './rig.mjs'

const program = join(root, 'bin/everdict-desktop')

/** No service is started by this bus: what the desktop of a real user has is not part of the test. */
const busConfig = (dir) => `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=${dir}/bus</listen>
  <policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy>
</busconfig>
`

/** A word of a shell. */
const word = (s) => `'${s.replaceAll("'", `'\\''`)}'`

export class Desk {
  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), 'everdict-desk-'))
    this.home = join(this.dir, 'home')
    this.profile = join(this.dir, 'profile')
    for (const dir of ['home/.local/share/applications', 'home/.config', 'run', 'bin', 'profile/Default']) mkdirSync(join(this.dir, dir), { recursive: true, mode: 0o700 })
  }

  async start() {
    this.server = spawn('Xvfb', ['-displayfd', '3', '-screen', '0', '1280x900x24', '-nolisten', 'tcp', '-noreset'], { stdio: ['ignore', 'ignore', 'pipe', 'pipe'] })
    let display = ''
    this.server.stdio[3].on('data', (d) => (display += d))
    this.server.on('error', (e) => (display = `failed: ${e.message}`))
    await until('the display', () => /^\d+\n/.test(display) || (display.startsWith('failed') && assert.fail(`${display}: make deps installs it`)))
    writeFileSync(join(this.dir, 'bus.conf'), busConfig(this.dir))
    this.bus = spawn('dbus-daemon', [`--config-file=${join(this.dir, 'bus.conf')}`, '--nofork', '--nopidfile'], { stdio: 'ignore' })
    await until('the session bus', () => existsSync(join(this.dir, 'bus')))
    this.env = {
      ...Object.fromEntries(Object.keys(process.env).filter((k) => /^(XDG_|WAYLAND_|EVERDICT_|GTK_|GDK_|DESKTOP|KDE_|GNOME_|BROWSER$)/.test(k)).map((k) => [k, undefined])),
      PATH: `${join(this.dir, 'bin')}:${process.env.PATH}`,
      HOME: this.home,
      XDG_RUNTIME_DIR: join(this.dir, 'run'),
      DISPLAY: `:${display.trim()}`,
      DBUS_SESSION_BUS_ADDRESS: `unix:path=${this.dir}/bus`,
      // GTK finds no display with it: the window is the browser's app mode, which a test can drive.
      GDK_BACKEND: 'none',
    }
    // What the app finds as chromium says where it can be driven. The browser itself may have GTK.
    this.script('chromium', `unset GDK_BACKEND\nexec ${word(browserPath())} ${browserArgs.map(word).join(' ')} --remote-debugging-port=0 --force-prefers-reduced-motion "$@"`)
    // The default browser: a link that is opened goes to the one that runs.
    const open = this.script('open-in-browser', `unset GDK_BACKEND\nprintf '%s\\n' "$1" >> ${word(join(this.dir, 'opened'))}\nexec ${word(browserPath())} ${browserArgs.map(word).join(' ')} --user-data-dir=${word(this.profile)} "$1"`)
    writeFileSync(join(this.home, '.local/share/applications/test-browser.desktop'), `[Desktop Entry]\nType=Application\nName=Browser\nExec=${open} %u\nMimeType=x-scheme-handler/http;x-scheme-handler/https;\n`)
    writeFileSync(join(this.home, '.config/mimeapps.list'), '[Default Applications]\nx-scheme-handler/http=test-browser.desktop\nx-scheme-handler/https=test-browser.desktop\n')
    return this
  }

  script(name, body) {
    const path = join(this.dir, 'bin', name)
    writeFileSync(path, `#!/bin/sh\n${body}\n`)
    chmodSync(path, 0o755)
    return path
  }

  /** What was opened in the default browser, in its order. */
  get opened() {
    const path = join(this.dir, 'opened')
    return existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : []
  }

  /** The browser of this desk. Links of the scheme from origin are opened without asking. */
  async browse(origin) {
    writeFileSync(join(this.profile, 'Default/Preferences'), JSON.stringify({ protocol_handler: { allowed_origin_protocol_pairs: { [origin]: { everdict: true } } } }))
    const env = { ...process.env, ...this.env, GDK_BACKEND: undefined }
    this.browser = await chromium.launchPersistentContext(this.profile, {
      executablePath: browserPath(), headless: false, args: browserArgs, env, viewport: null, reducedMotion: 'reduce', locale: 'en-GB', timezoneId: 'Europe/Berlin',
    })
    this.browser.setDefaultTimeout(60_000)
    return this.browser
  }

  /** Runs a command of the app to its end. */
  async run(...args) {
    const child = new Child(args, { program, env: this.env })
    await child.exited
    assert.equal(child.process.exitCode, 0, `everdict-desktop ${args.join(' ')}: ${child.output}`)
    return child.output
  }

  /** Opens a link as the browser does when somebody clicks on it. */
  async follow(link) {
    const child = new Child([link], { program: 'xdg-open', env: this.env })
    await child.exited
    assert.equal(child.process.exitCode, 0, `xdg-open: ${child.output}`)
  }

  /** Starts the app, as a click on its icon does, and returns the page in its window. */
  async launch(...args) {
    this.app = new Child(['--log-stderr', ...args], { program, env: this.env })
    return this.window()
  }

  /** The page in the window that takes the place of one: a browser's window cannot be brought to the front. */
  async nextWindow() {
    await until('the window to close', () => !this.driver.isConnected())
    return this.window()
  }

  /** The page in the window, once there is one. */
  async window() {
    const dir = join(this.home, '.local/state/everdict-desktop/window')
    this.driver = await until('the window', () => {
      if (this.app.process.exitCode !== null) assert.fail(`the app has ended: ${this.app.output}`)
      const file = existsSync(dir) && readdirSync(dir).map((p) => join(dir, p, 'DevToolsActivePort')).find((p) => existsSync(p))
      return file && chromium.connectOverCDP(`http://127.0.0.1:${readFileSync(file, 'utf8').split('\n')[0]}`)
    })
    const page = await until('its page', () => this.driver.contexts()[0]?.pages().find((p) => /^http:\/\/127\.0\.0\.1:\d+\/w\//.test(p.url())))
    page.setDefaultTimeout(60_000)
    page.mistakes = []
    page.on('pageerror', (e) => page.mistakes.push(`thrown: ${e.message}`))
    page.on('console', (m) => {
      if (m.type() === 'error' || m.type() === 'warning') page.mistakes.push(`console: ${m.text()}`)
    })
    page.on('request', (r) => {
      if (new URL(r.url()).origin !== new URL(page.url()).origin) page.mistakes.push(`request to ${r.url()}`)
    })
    page.look = async (state) => {
      page.mistakes.push(...(await axeFindings(page)).map((f) => `${state}: ${f}`))
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (over > 0) page.mistakes.push(`${state} is ${over} px too wide`)
    }
    page.check = () => assert.deepEqual(page.mistakes.filter((m) => !notOurs.test(m)), [], 'mistakes of the page')
    return page
  }

  /** Everything that is kept in the home in files, as text. What is removed meanwhile is not kept. */
  kept(dir = this.home) {
    const there = (read) => {
      try {
        return read()
      } catch (error) {
        if (error.code !== 'ENOENT') throw error
        return []
      }
    }
    return there(() => readdirSync(dir, { withFileTypes: true }))
      .filter((e) => !(e.isDirectory() && e.name === 'window')) // the browser's own profile
      .flatMap((e) => (e.isDirectory() ? this.kept(join(dir, e.name)) : e.isFile() ? there(() => readFileSync(join(dir, e.name), 'latin1')) : []))
      .join('\n')
  }

  /** The processes that work below the home: jobs, and what they have started. */
  working() {
    return readdirSync('/proc')
      .filter((pid) => /^\d+$/.test(pid))
      .filter((pid) => {
        try {
          return readlinkSync(`/proc/${pid}/cwd`).startsWith(join(this.home, '.cache'))
        } catch {
          return false // it has ended
        }
      })
  }

  async stop() {
    await this.driver?.close().catch(() => {})
    await this.app?.end()
    await this.browser?.close()
    for (const child of [this.server, this.bus]) {
      if (!child?.pid || child.exitCode !== null || child.signalCode !== null) continue
      const ended = new Promise((resolve) => child.once('exit', resolve))
      child.kill()
      await ended
    }
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 10 })
  }
}
