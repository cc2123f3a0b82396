/** From places of words in a text to pieces of text that are marked more or less. */

/** @typedef {{start: number, end: number, contribution: number}} Span */
/** @typedef {{text: string, effect: number}} Piece */

const LEVELS = 4;
const LEAST = 1 / 15;

/**
 * Cut a text where spans begin and end. Where spans overlap, as runs of words and the words in them do, effects add up.
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
 * How strongly to mark an effect: 1 to 4, where the largest of the text is 4; 0 is not at all, for words that hardly count.
 *
 * @param {number} effect
 * @param {number} largest
 */
export function level(effect, largest) {
  const part = largest ? Math.abs(effect) / largest : 0;
  return part < LEAST ? 0 : Math.ceil(part * LEVELS - 1e-9);
}

/** Sums of what was added and taken away again end beside 0. @param {number} effect */
function tidy(effect) {
  return Math.abs(effect) < 1e-9 ? 0 : effect;
}
