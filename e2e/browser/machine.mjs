// A machine that asks to be a runner, as protocol/pairing.go has it: with a device key, a verifier and, if it has a
// browser, a callback of its own.
import assert from 'node:assert/strict'
import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { createServer } from 'node:http'

export class Machine {
  verifier = randomBytes(32).toString('base64url')
  key = generateKeyPairSync('ed25519')
  /** What the browser brought back: pairing, grant and state. */
  brought = new Promise((resolve) => (this.bring = resolve))

  constructor(coordinator, label) {
    this.coordinator = coordinator
    this.label = label
  }

  /** Asks; more has what a request can have beside the machine itself. */
  async ask(more = {}) {
    const body = {
      label: this.label, os: 'linux', arch: 'amd64', hostname: `${this.label}.local`, version: 'v1.2.3', capabilities: ['git', 'docker'],
      publicKey: this.key.publicKey.export({ format: 'jwk' }).x,
      challenge: createHash('sha256').update(this.verifier).digest('base64url'),
      ...more,
    }
    this.started = await this.coordinator.api('POST', '/pairings', body)
    return this.started
  }

  /** Asks with a callback, which this machine serves until close. */
  async askByBrowser() {
    const state = randomBytes(24).toString('base64url')
    this.server = createServer((request, response) => {
      const url = new URL(request.url, 'http://127.0.0.1')
      response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><html lang="en"><title>App</title><link rel="icon" href="data:,"><h1>Back in the app</h1>')
      if (url.pathname === '/callback') this.bring(Object.fromEntries(url.searchParams))
    })
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve))
    this.state = state
    return this.ask({ callback: { port: this.server.address().port, state } })
  }

  /** Becomes a runner, or says with what status it did not. */
  async redeem(grant = '') {
    const id = this.started.id
    const proof = sign(null, Buffer.from(`everdict pairing v1\n${id}\n${grant}`), this.key.privateKey).toString('base64url')
    const response = await fetch(`${this.coordinator.url}/pairings/${id}/redeem`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ verifier: this.verifier, proof, ...(grant ? { grant } : {}) }),
    })
    return { status: response.status, body: await response.json() }
  }

  /** Redeems what was approved. */
  async finish(grant = '') {
    const { status, body } = await this.redeem(grant)
    assert.equal(status, 200, JSON.stringify(body))
    return body.runner
  }

  async close() {
    this.server?.closeAllConnections()
    await new Promise((resolve) => (this.server ? this.server.close(resolve) : resolve()))
  }
}
