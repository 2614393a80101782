/** A link to evidence as a file. */
import { send } from '../data/client'
import { workspace } from '../data/workspace'
import { toast } from '../ui/toast'

/** Reads a path and hands it to the browser as a file. */
async function saveAs(path: string, file: string): Promise<void> {
  const blob = await (await send(path, { headers: { accept: '*/*' } })).blob()
  const url = URL.createObjectURL(blob)
  const a = document.createElement('a')
  a.href = url
  a.download = file
  a.click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}

export function FileLink({ name, href, file, label, taken }: { name: string; href: string; file: string; label?: string; taken?: () => void }) {
  return (
    <a
      href={href}
      download={file}
      aria-label={label}
      onClick={(e) => {
        taken?.()
        if (!workspace.inHeader) return
        // A link cannot name the workspace of the development mode.
        e.preventDefault()
        saveAs(href, file).catch(toast.failed)
      }}
    >
      {name}
    </a>
  )
}
