/** What went wrong, and how it is shown. */

import { el } from "./dom.js";

/** An answer other than the wanted one, or none. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 where nothing was answered
   * @param {string} code
   * @param {string} message
   */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Whether a request was given up because another one took its place. @param {unknown} error */
export function isStale(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

const PAUSE = 3000;

/** Statuses after which the same question may be answered: none came, no key was given, or the server was busy. */
const PASSING = [0, 401, 429, 503, 504];

/**
 * A sentence about an error, with a button to try again where that can help.
 *
 * @param {unknown} error
 * @param {() => void} again
 */
export function problem(error, again) {
  if (!(error instanceof ApiError)) console.error(error);
  const canPass = error instanceof ApiError && PASSING.includes(error.status);
  const message = error instanceof ApiError ? error.message : "Something went wrong on this page.";
  const shown = el(
    "div",
    { class: "notice problem", role: "alert" },
    el("p", { text: message }),
    canPass ? el("button", { type: "button", text: "Try again", on: { click: again } }) : null,
  );
  if (error instanceof ApiError && error.code === "unreachable") whenBack(shown, again);
  return shown;
}

/**
 * Try again by itself once the server answers, for as long as the sentence is on the page.
 *
 * @param {HTMLElement} shown
 * @param {() => void} again
 */
function whenBack(shown, again) {
  setTimeout(async () => {
    if (!shown.isConnected) return;
    const isBack = await fetch("/healthz", { signal: AbortSignal.timeout(PAUSE) }).then((response) => response.ok, () => false);
    if (!shown.isConnected) return;
    if (isBack) again();
    else whenBack(shown, again);
  }, PAUSE);
}
