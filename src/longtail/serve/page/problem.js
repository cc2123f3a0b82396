/** Errors, and how they are shown. */

import { el } from "./dom.js";

/** A failed request. */
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

/** Whether a request was cancelled in favour of a newer one. @param {unknown} error */
export function isStale(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

const PAUSE = 3000;

/** Statuses after which a retry may succeed: no response, no API key, or a busy server. */
const PASSING = [0, 401, 429, 503, 504];

/**
 * An error message, with a button to retry where that can help.
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
 * Retry automatically when the server responds, while the message is on the page.
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
