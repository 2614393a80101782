import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'
import { firstLoad, output } from './build/firstload.ts'

// The page of the desktop app, which lies at a path that is new each time: every address in it is relative.
export default defineConfig({
  root: 'desktop',
  base: './',
  publicDir: '../public',
  plugins: [react(), firstLoad(110_000)],
  build: { ...output, outDir: '../../../../desktop/page/dist' },
})
