import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import '@fontsource-variable/inter/index.css'
import '@fontsource-variable/jetbrains-mono/index.css'
import '../styles/tokens.css'
import '../styles/base.css'
import '../styles/ui.css'
import '../styles/ansi.css'
import '../styles/pair.css'
import '../styles/desktop.css'
import { App } from './App'

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <App />
  </StrictMode>,
)
