/** The API key, if the server requires one; stored in this tab only. */

import { byId } from "./dom.js";
import { ApiError } from "./problem.js";

const PLACE = "longtail.key";

/** @type {Promise<void> | null} */
let asking = null;

/** @returns {string | null} */
export function keptKey() {
  return sessionStorage.getItem(PLACE);
}

export function forgetKey() {
  sessionStorage.removeItem(PLACE);
}

/**
 * Ask the user for a key; concurrent requests wait for the same answer.
 *
 * @param {boolean} wasWrong whether the server has refused one
 */
export function askForKey(wasWrong) {
  asking ??= show(wasWrong).finally(() => {
    asking = null;
  });
  return asking;
}

/** @param {boolean} wasWrong @returns {Promise<void>} */
function show(wasWrong) {
  const dialog = byId("key-dialog");
  const input = byId("key");
  byId("key-remark").textContent = wasWrong
    ? "The server did not accept this key. Check that it is complete."
    : "It is stored until this tab is closed.";
  input.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve, reject) => {
    dialog.addEventListener(
      "close",
      () => {
        const key = input.value.trim();
        input.value = "";
        if (dialog.returnValue === "use" && /^[\x21-\x7e]+$/u.test(key)) {
          sessionStorage.setItem(PLACE, key);
          resolve();
        } else {
          reject(new ApiError(401, "unauthorised", "This server requires an API key, and none was given."));
        }
      },
      { once: true },
    );
  });
}
