/** Two digits that somebody compares, or types in elsewhere: large, and read out one by one. */
export function Digits({ value }: { value: string }) {
  return (
    <output className="digits" aria-label={`The number ${[...value].join(' ')}`}>
      {value}
    </output>
  )
}
