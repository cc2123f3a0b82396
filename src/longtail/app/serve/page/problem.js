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

/**
 * A sentence about an error, with a button to try again.
 *
 * @param {unknown} error
 * @param {() => void} again
 */
export function problem(error, again) {
  if (!(error instanceof ApiError)) console.error(error);
  const message = error instanceof ApiError ? error.message : "Something went wrong on this page.";
  return el(
    "div",
    { class: "notice problem", role: "alert" },
    el("p", { text: message }),
    el("button", { type: "button", text: "Try again", on: { click: again } }),
  );
}
