import { useSyncExternalStore } from 'react'

/**
 * Something that pages watch. It says at most once a frame that it has changed:
 * a thousand events in one read are one rendering.
 */
export abstract class Store {
  private readonly listeners = new Set<() => void>()
  private pending = false
  /** Grows with every change that listeners were told of. */
  version = 0

  subscribe = (fn: () => void): (() => void) => {
    this.listeners.add(fn)
    return () => {
      this.listeners.delete(fn)
    }
  }

  protected changed(): void {
    if (this.pending) return
    this.pending = true
    soon(() => {
      this.pending = false
      this.version++
      for (const fn of this.listeners) fn()
    })
  }
}

/** A hidden tab has no frames, and still has to keep up. */
function soon(fn: () => void): void {
  if (typeof requestAnimationFrame === 'function' && document.visibilityState === 'visible') requestAnimationFrame(fn)
  else setTimeout(fn, 16)
}

/** Renders anew when the store has changed. */
export function useStore<S extends Store>(store: S): S {
  useSyncExternalStore(store.subscribe, () => store.version)
  return store
}
