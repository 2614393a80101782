import { AlertTriangle, Check, X } from 'lucide-react'
import { useEffect } from 'react'
import { ApiError } from '../data/client'
import { Store, useStore } from '../data/store'
import { Button, cx } from './parts'

interface Toast {
  id: number
  look: 'good' | 'error'
  text: string
  hint?: string | undefined
}

class Toasts extends Store {
  all: Toast[] = []
  private last = 0
  add(look: Toast['look'], text: string, hint?: string): void {
    this.all = [...this.all.slice(-3), { id: ++this.last, look, text, hint }]
    this.changed()
  }
  drop(id: number): void {
    this.all = this.all.filter((t) => t.id !== id)
    this.changed()
  }
}

const toasts = new Toasts()

export const toast = {
  done: (text: string) => toasts.add('good', text),
  failed: (error: unknown) => {
    const e = error instanceof Error ? error : new Error(String(error))
    toasts.add('error', e.message, e instanceof ApiError ? e.hint : undefined)
  },
}

function One({ t }: { t: Toast }) {
  useEffect(() => {
    if (t.look === 'error') return // it stays until it was read
    const timer = setTimeout(() => toasts.drop(t.id), 4000)
    return () => clearTimeout(timer)
  }, [t])
  return (
    <div className={cx('note', t.look)} role={t.look === 'error' ? 'alert' : 'status'}>
      {t.look === 'error' ? <AlertTriangle size={16} aria-hidden /> : <Check size={16} aria-hidden />}
      <div className="grow wrap">
        {t.text}
        {t.hint && <div className="next">{t.hint}</div>}
      </div>
      <Button look="bare small icon" aria-label="Dismiss" onClick={() => toasts.drop(t.id)}>
        <X size={14} aria-hidden />
      </Button>
    </div>
  )
}

export function ToastArea() {
  const { all } = useStore(toasts)
  return (
    <div className="toasts" aria-live="polite">
      {all.map((t) => (
        <One key={t.id} t={t} />
      ))}
    </div>
  )
}
