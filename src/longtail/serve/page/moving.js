/** Animate list entries to their new positions. */

const TIME = 180;
const still = matchMedia("(prefers-reduced-motion: reduce)");

/**
 * Change a list with animated moves, and keep the focus.
 *
 * @param {HTMLElement} list
 * @param {() => void} change
 */
export function smoothly(list, change) {
  const focused = list.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null;
  const before = new Map(Array.from(list.children, (entry) => [entry, entry.getBoundingClientRect().top]));
  change();
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  if (still.matches || document.hidden) return;
  for (const entry of list.children) {
    const top = before.get(entry);
    if (top === undefined) {
      if (before.size) entry.animate({ opacity: [0, 1] }, { duration: TIME });
      continue;
    }
    const way = top - entry.getBoundingClientRect().top;
    if (way) entry.animate({ transform: [`translateY(${way}px)`, "none"] }, { duration: TIME, easing: "ease-out" });
  }
}
