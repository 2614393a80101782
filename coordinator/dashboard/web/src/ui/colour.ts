/** A colour of the styles as a canvas takes it: custom properties have to be resolved for the theme first. */
export function colourOf(el: Element, name: string): string {
  const probe = document.createElement('span')
  probe.hidden = true
  probe.style.color = `var(${name})`
  el.append(probe)
  const colour = getComputedStyle(probe).color
  probe.remove()
  return colour
}
