import { Component, type ErrorInfo, type ReactNode } from 'react'

interface Props {
  children: ReactNode
  /** What stands in the place of a page that failed. */
  failed: (error: Error) => ReactNode
}

/** A page that fails takes no other with it. */
export class Failsafe extends Component<Props, { error?: Error }> {
  override state: { error?: Error } = {}
  static getDerivedStateFromError(error: Error) {
    return { error }
  }
  override componentDidCatch(error: Error, info: ErrorInfo): void {
    console.error('a page failed', error, info.componentStack)
  }
  override render() {
    return this.state.error ? this.props.failed(this.state.error) : this.props.children
  }
}
