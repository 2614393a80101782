/// <reference types="vitest/config" />
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'
import { firstLoad, output } from './build/firstload.ts'

// Where `npm run dev` finds the coordinator whose API it shows.
const coordinator = process.env['EVERDICT_API_URL'] ?? 'http://127.0.0.1:8787'

// The client's own routes are / and /ui/...; everything else is the coordinator's.
const ours = /^\/($|\?|ui(\/|\?|$)|src\/|@|node_modules\/|assets\/|index\.html)/

export default defineConfig({
  plugins: [react(), firstLoad(250_000)],
  build: { ...output, outDir: '../dist' },
  server: {
    proxy: {
      '^/.*': { target: coordinator, bypass: (req) => (ours.test(req.url ?? '/') ? req.url : undefined) },
    },
  },
  test: { include: ['src/**/*.test.ts'], environment: 'node' },
})
