/** The workspace of the development mode, which a header names. With login the session has it. */
const key = 'everdict.workspace'
const fallback = 'default'

let chosen = read()
let named = false

function read(): string {
  try {
    return localStorage.getItem(key) || fallback
  } catch {
    return fallback // storage is blocked
  }
}

export const workspace = {
  /** Whether requests name it: only without login. */
  use(on: boolean): void {
    named = on
  },
  /** Whether requests have to name a workspace that is not the one without a name. */
  get inHeader(): boolean {
    return named && chosen !== fallback
  },
  get name(): string {
    return chosen
  },
  choose(name: string): void {
    chosen = name.trim() || fallback
    try {
      localStorage.setItem(key, chosen)
    } catch {
      // then it holds for this page
    }
  },
  header(): Record<string, string> {
    return named ? { 'x-everdict-tenant': chosen } : {}
  },
}
