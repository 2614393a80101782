import { gzipSync } from 'node:zlib'
import type { Plugin } from 'vite'

/** Fails the build when the entry and what it imports statically are over the budget, in bytes of gzip. */
export function firstLoad(budget: number): Plugin {
  return {
    name: 'first-load',
    apply: 'build',
    generateBundle(_, bundle) {
      const size = (name: string) => {
        const chunk = bundle[name]
        return chunk?.type === 'chunk' ? gzipSync(chunk.code, { level: 9 }).length : 0
      }
      const seen = new Set<string>()
      const add = (name: string) => {
        const chunk = bundle[name]
        if (seen.has(name) || chunk?.type !== 'chunk') return
        seen.add(name)
        chunk.imports.forEach(add)
      }
      const names = Object.keys(bundle)
      names.filter((n) => bundle[n]?.type === 'chunk' && (bundle[n] as { isEntry: boolean }).isEntry).forEach(add)
      const sum = (all: Iterable<string>) => [...all].reduce((n, name) => n + size(name), 0)
      const first = sum(seen)
      const kB = (n: number) => `${(n / 1000).toFixed(1)} kB`
      this.info(`first load ${kB(first)} gzip of script, budget ${kB(budget)}; all pages ${kB(sum(names))}`)
      if (first === 0) this.error('no entry was found: the budget of the first load was not checked')
      if (first > budget) this.error(`the first load is ${kB(first)}, over its budget of ${kB(budget)}: load with lazy() what one page alone needs`)
    },
  }
}

/** What both pages are built with: nothing that their content security policies refuse. */
export const output = {
  emptyOutDir: true,
  target: 'es2022',
  // An inlined asset would be a data: URL, which the policy allows for images alone.
  assetsInlineLimit: 0,
  modulePreload: { polyfill: false },
} as const
