/** The frequency bin of a label: head, torso or tail. */

import { el } from "./dom.js";
import { count } from "./format.js";

/** @type {Record<string, string>} */
export const MEANING = {
  head: "the most frequent labels, which make up half of all label assignments",
  torso: "labels of medium frequency, up to 90 % of all label assignments",
  tail: "the rarest labels, with the last 10 % of all label assignments",
};

/** @param {string} bin */
export function binChip(bin) {
  return el("span", { class: `chip ${bin in MEANING ? bin : ""}`, title: MEANING[bin], text: bin });
}

/** @param {{training_rows: number, bin: string}} label */
export function frequency(label) {
  return el(
    "span",
    { class: "seen", title: "Training rows that have the label" },
    binChip(label.bin),
    ` ${count(label.training_rows)}`,
    el("span", { class: "unit", text: label.training_rows === 1 ? " row" : " rows" }),
  );
}
