/** Announce changes of the page to screen readers. */

import { byId } from "./dom.js";

let timer = 0;

/** @param {string} sentence */
export function announce(sentence) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    byId("live").textContent = sentence;
  }, 400);
}
