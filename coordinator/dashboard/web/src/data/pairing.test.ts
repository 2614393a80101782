import { describe, expect, it } from 'vitest'
import { ApiError } from './client'
import { appLink, codeOpen, left, loopbackCallback, pairingEnd, reasonOf, userCode } from './pairing'

describe('pairing', () => {
  it('writes a code as the machine shows it, whatever was typed or pasted', () => {
    expect([userCode('wdjbmjht'), userCode(' wdjb - mjht '), userCode('WDJB-MJHT'), userCode('wdj'), userCode('wdjb-'), userCode('w1d2'), userCode('WDJBMJHTXX')]).toEqual([
      'WDJB-MJHT', 'WDJB-MJHT', 'WDJB-MJHT', 'WDJ', 'WDJB', 'WD', 'WDJB-MJHT',
    ])
  })
  it('counts down in whole seconds and never below none', () => {
    expect([left(300_000), left(299_001), left(6_400), left(0), left(-5)]).toEqual(['5:00', '5:00', '0:07', '0:00', '0:00'])
  })
  it('follows a callback to this machine alone, and a link to the app alone', () => {
    expect(loopbackCallback('http://127.0.0.1:4711/callback?pairing=prq_a&grant=pgc_b&state=c')).toBeDefined()
    for (const bad of [undefined, '', 'https://127.0.0.1:1/callback?x', 'http://127.0.0.1.evil.example:1/callback?x', 'http://127.0.0.1:1/other?x', 'http://localhost:1/callback?x', 'javascript:alert(1)//http://127.0.0.1:1/callback?x']) {
      expect(loopbackCallback(bad), String(bad)).toBeUndefined()
    }
    expect(appLink('everdict://open')).toBeDefined()
    for (const bad of [undefined, 'https://everdict.example', ' everdict://open', 'javascript:everdict://']) expect(appLink(bad), String(bad)).toBeUndefined()
  })
  it('says how a request has ended, and nothing of one that is open', () => {
    expect(pairingEnd('pending')).toBeUndefined()
    expect(pairingEnd('approved')).toBeUndefined()
    expect(pairingEnd('done')).toBeUndefined()
    expect(pairingEnd('expired')!.title).toMatch(/over/)
    expect(pairingEnd('denied')!.title).toMatch(/denied/)
    expect(pairingEnd(undefined, new ApiError(404, 'NOT_FOUND', 'none'))!.title).toMatch(/no such/)
    expect(pairingEnd(undefined, new ApiError(500, 'INTERNAL', 'broken'))).toBeUndefined()
  })
  it('reads the reason of a refusal', () => {
    expect(reasonOf(new ApiError(409, 'CONFLICT', '', undefined, { reason: 'used' }))).toBe('used')
    expect(reasonOf(new ApiError(409, 'CONFLICT', '', undefined, { reason: 1 }))).toBeUndefined()
    expect(reasonOf(new Error('x'))).toBeUndefined()
  })
  it('asks after a code for as long as something can come of it', () => {
    const runner = { id: 'r', label: 'l', capabilities: [], pairedAt: '', online: true }
    expect([codeOpen(undefined), codeOpen({ status: 'waiting' }), codeOpen({ status: 'used' })]).toEqual([true, true, true])
    expect([codeOpen({ status: 'used', runner }), codeOpen({ status: 'spoilt' }), codeOpen({ status: 'expired' })]).toEqual([false, false, false])
  })
})
