/** State of the page that survives a reload: text, models, tail dials. */

import { later } from "./dom.js";

const PLACE = "longtail.page";

/**
 * @typedef {object} State
 * @property {string} text
 * @property {(string | null)[]} models name of the model of each panel; null is the server's first
 * @property {(number | null)[]} tails position of each panel's dial; null is as the model was trained
 */

/** @typedef {{name: string, version: string, recipe: string | null, takes: "texts" | "features", labels: number,
 *   rows: number, has_names: boolean, calibrated: boolean, dial: number | null, has_explanations: boolean,
 *   has_tree: boolean, nearest_by: string | null, trained_on: string | null,
 *   frequencies: {most: number, median: number, with_one_row: number, without_rows: number,
 *     bins: Record<string, {labels: number, least_rows: number, most_rows: number}>}}} Model */

/** @returns {State} */
function read() {
  /** @type {State} */
  const state = { text: "", models: [null, null], tails: [null, null] };
  try {
    const kept = JSON.parse(localStorage.getItem(PLACE) ?? "{}");
    if (typeof kept.text === "string") state.text = kept.text;
    for (const at of [0, 1]) {
      if (typeof kept.models?.[at] === "string") state.models[at] = kept.models[at];
      if (kept.tails?.[at] >= 0 && kept.tails[at] <= 1) state.tails[at] = kept.tails[at];
    }
  } catch {
    // ignore a state that can't be read
  }
  return state;
}

/** @type {State} */
export const state = read();

/** Models of the server, and names of those that are loading. */
export const known = {
  /** @type {Model[]} */ models: [],
  /** @type {string[]} */ loading: [],
};

/** The model of a panel. @param {number} at @returns {Model | undefined} */
export function modelAt(at) {
  const { models } = known;
  return models.find((model) => model.name === state.models[at]) ?? models[Math.min(at, models.length - 1)];
}

function write() {
  try {
    localStorage.setItem(PLACE, JSON.stringify(state));
  } catch {
    // storage is full or not allowed: the page works without it
  }
}

/** Save the state after a short delay. */
export const keep = later(write, 300);
addEventListener("pagehide", write);
