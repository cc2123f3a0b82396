/** Format numbers and names. */

const whole = new Intl.NumberFormat("en-GB");
const THIN = "\u202f";
const MINUS = "\u2212";

/** @param {number} value */
export function count(value) {
  return whole.format(value);
}

/** @param {number} value @param {string} one @param {string} [many] */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A probability in percent. @param {number} value */
export function percent(value) {
  if (value < 0.01) return `<${THIN}1${THIN}%`;
  if (value > 0.99) return `>${THIN}99${THIN}%`;
  return `${Math.round(value * 100)}${THIN}%`;
}

/** A small share in percent, with two significant digits. @param {number} value */
export function share(value) {
  return `${Number((value * 100).toPrecision(2))}${THIN}%`;
}

/** A score or a weight, with three significant digits. @param {number} value */
export function score(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = size >= 1e5 || size < 1e-3 ? size.toExponential(1) : String(Number(size.toPrecision(3)));
  return (value < 0 ? MINUS : "") + digits;
}

/** A contribution, with its sign. @param {number} value */
export function signed(value) {
  return value > 0 ? `+${score(value)}` : score(value);
}

/** @param {number} place */
export function ordinal(place) {
  const tens = place % 100;
  const ending = tens > 10 && tens < 14 ? "th" : ["th", "st", "nd", "rd"][place % 10] ?? "th";
  return `${count(place)}${ending}`;
}

/** @param {{name: string | null, label: number}} label */
export function nameOf(label) {
  return label.name ?? `label ${label.label}`;
}

/** A name with break opportunities after its parts. @param {string} name */
export function breakable(name) {
  const parts = name.split(/(?<=::|[/_.,;:-])(?=[^:/])/u);
  return parts.flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part]));
}

/** The beginning of a text on one line. @param {string} text @param {number} [most] */
export function beginning(text, most = 240) {
  const line = text.slice(0, most * 2).replace(/\s+/gu, " ").trim();
  const letters = Array.from(line);
  return letters.length > most || text.length > most * 2 ? `${letters.slice(0, most).join("")}…` : line;
}
