/** Split a text into pieces, highlighted by the contributions of their words. */

/** @typedef {{start: number, end: number, contribution: number}} Span */
/** @typedef {{text: string, effect: number}} Piece */

const LEVELS = 4;
const LEAST = 1 / 15;

/**
 * Split a text where spans begin and end. Contributions of overlapping spans, such as n-grams and words, are added.
 *
 * @param {string} text
 * @param {Span[]} spans
 * @returns {Piece[]}
 */
export function pieces(text, spans) {
  /** @type {Map<number, number>} */
  const changes = new Map();
  for (const { start, end, contribution } of spans) {
    if (start < 0 || end > text.length || start >= end) continue;
    changes.set(start, (changes.get(start) ?? 0) + contribution);
    changes.set(end, (changes.get(end) ?? 0) - contribution);
  }
  const result = [];
  let place = 0;
  let effect = 0;
  for (const at of [...changes.keys()].sort((a, b) => a - b)) {
    if (at > place) result.push({ text: text.slice(place, at), effect: tidy(effect) });
    effect += changes.get(at) ?? 0;
    place = at;
  }
  if (place < text.length) result.push({ text: text.slice(place), effect: 0 });
  return result;
}

/**
 * The highlight level of an effect, from 0 (none, for negligible effects) to 4 (the largest effect of the text).
 *
 * @param {number} effect
 * @param {number} largest
 */
export function level(effect, largest) {
  const part = largest ? Math.abs(effect) / largest : 0;
  return part < LEAST ? 0 : Math.ceil(part * LEVELS - 1e-9);
}

/** Treat rounding errors of sums as 0. @param {number} effect */
function tidy(effect) {
  return Math.abs(effect) < 1e-9 ? 0 : effect;
}
