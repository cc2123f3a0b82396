/** Requests to the server: API keys, retries when it is busy, and uniform errors. */

import { askForKey, forgetKey, keptKey } from "./key.js";
import { ApiError, isStale } from "./problem.js";

const SLOWEST = 30_000;
const PATIENCE = 4;
const LONGEST_WAIT = 10;

/**
 * @typedef {object} Question
 * @property {object} [body] sent as JSON, by POST
 * @property {Record<string, string | number | null | undefined>} [query]
 * @property {AbortSignal} [signal]
 * @property {(seconds: number) => void} [onWait] told that the server is busy and is asked again
 */

/**
 * Send a request and return the JSON of the response.
 *
 * @param {string} path
 * @param {Question} [question]
 * @returns {Promise<any>}
 */
export async function ask(path, question = {}) {
  for (let attempt = 1; ; attempt += 1) {
    const key = keptKey();
    const response = await send(path, question, key);
    if (response.ok) return readJson(response);
    const error = await readError(response);
    if (response.status === 401) {
      if (key === keptKey()) forgetKey();
      await askForKey(key !== null);
      question.signal?.throwIfAborted();
      continue;
    }
    const wait = Number(response.headers.get("retry-after"));
    if (!wait || attempt >= PATIENCE || !["busy", "not_ready"].includes(error.code)) throw error;
    const seconds = Math.min(wait, LONGEST_WAIT);
    question.onWait?.(seconds);
    await pause(seconds * 1000, question.signal);
  }
}

/** @param {string} path @param {Question} question @param {string | null} key */
async function send(path, { body, query, signal }, key) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") asked.set(name, String(value));
  }
  /** @type {Record<string, string>} */
  const headers = {};
  if (key !== null) headers["Authorization"] = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  const slow = AbortSignal.timeout(SLOWEST);
  try {
    return await fetch(asked.size ? `${path}?${asked}` : path, {
      method: body ? "POST" : "GET",
      headers,
      body: body ? JSON.stringify(body) : undefined,
      signal: signal ? AbortSignal.any([signal, slow]) : slow,
    });
  } catch (error) {
    if (isStale(error)) throw error;
    if (slow.aborted) throw new ApiError(0, "slow", "The server did not respond within 30 seconds.");
    throw new ApiError(0, "unreachable", "The server can’t be reached. The page will reconnect automatically.");
  }
}

/** @param {Response} response */
async function readJson(response) {
  try {
    return await response.json();
  } catch (error) {
    if (isStale(error)) throw error;
    throw new ApiError(0, "unreachable", "The server’s response was incomplete.");
  }
}

/** @param {Response} response */
async function readError(response) {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.code, error.message);
  } catch (error) {
    if (isStale(error)) throw error;
    return new ApiError(response.status, "unknown", `The server responded with status ${response.status}.`);
  }
}

/** @param {number} milliseconds @param {AbortSignal} [signal] @returns {Promise<void>} */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("another request took its place", "AbortError"));
    });
  });
}
