/** Dark or light: what the system says, unless somebody has chosen. */
export type Theme = 'system' | 'dark' | 'light'
const key = 'everdict.theme'

export function theme(): Theme {
  try {
    const t = localStorage.getItem(key)
    return t === 'dark' || t === 'light' ? t : 'system'
  } catch {
    return 'system'
  }
}

export function chooseTheme(t: Theme): void {
  try {
    if (t === 'system') localStorage.removeItem(key)
    else localStorage.setItem(key, t)
  } catch {
    // storage is blocked: it holds for this page
  }
  applyTheme(t)
}

export function applyTheme(t: Theme = theme()): void {
  if (t === 'system') delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = t
  dispatchEvent(new Event('everdict:theme'))
}
