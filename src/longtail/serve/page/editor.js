/** The text field: typing, pasting, dropping or opening a file, with highlighted words. */

import { announce } from "./announce.js";
import { byId, el, fill, later } from "./dom.js";
import { level, pieces } from "./highlight.js";
import { keep, state } from "./state.js";

const LARGEST_FILE = 4 << 20;
const PAUSE = 250;

/** @typedef {import("./highlight.js").Span} Span */

/** Fires `change` (immediately), `settle` (after a pause in typing) and `replace` (another text). */
export class Editor extends EventTarget {
  #area = byId("text");
  #marks = byId("marks");
  #legend = byId("legend");
  #hint = byId("text-hint");
  #usualHint = this.#hint.textContent;
  #settle = later(() => this.dispatchEvent(new Event("settle")), PAUSE);

  constructor() {
    super();
    this.#area.value = state.text;
    this.clearMarks();
    this.#say(null);
    this.#area.addEventListener("input", () => this.#changed(this.#area.value));
    byId("clear-text").addEventListener("click", () => {
      this.replace("");
      this.#area.focus();
    });
    byId("choose").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", () => {
      this.#read([...byId("file").files]);
      byId("file").value = "";
    });
    this.#takeDrops();
  }

  get text() {
    return state.text;
  }

  /** Replace the text, and request its labels immediately. @param {string} text */
  replace(text) {
    this.#area.value = text;
    this.#changed(this.#area.value, true);
    this.dispatchEvent(new Event("settle"));
  }

  focus() {
    this.#area.focus();
  }

  /**
   * Mark the words that pushed a label up or down.
   *
   * @param {Span[]} spans
   * @param {string} name of the label
   * @param {string} model
   */
  mark(spans, name, model) {
    const cut = pieces(state.text, spans);
    const largest = Math.max(0, ...cut.map((piece) => Math.abs(piece.effect)));
    fill(
      this.#marks,
      cut.map(({ text, effect }) => {
        const strength = level(effect, largest);
        return strength ? el("mark", { class: `${effect > 0 ? "up" : "down"} s${strength}`, text }) : text;
      }),
      "\n",
    );
    const marked = cut.some((piece) => piece.effect);
    fill(
      this.#legend,
      marked
        ? [
            "Words that move ",
            el("bdi", { class: "strong", text: name }),
            " ",
            el("span", { class: "key up s3", text: "up" }),
            " or ",
            el("span", { class: "key down s3", text: "down" }),
            ` in ${model}`,
          ]
        : ["No word of the text contributes to ", el("bdi", { class: "strong", text: name }), ` in ${model}`],
    );
    this.#legend.hidden = false;
  }

  clearMarks() {
    fill(this.#marks, `${state.text}\n`);
    this.#legend.hidden = true;
  }

  /** @param {string} text @param {boolean} [replaced] */
  #changed(text, replaced = false) {
    const before = state.text;
    if (text === before) return;
    state.text = text;
    keep();
    this.clearMarks();
    this.#say(null);
    this.dispatchEvent(new CustomEvent("change", { detail: { before, replaced: replaced || !isEdit(before, text) } }));
    this.#settle();
  }

  #takeDrops() {
    const place = byId("drop");
    let depth = 0;
    const over = (/** @type {boolean} */ is) => place.classList.toggle("dropping", is);
    document.addEventListener("dragenter", () => over((depth += 1) > 0));
    document.addEventListener("dragleave", () => over((depth -= 1) > 0));
    // text dropped into the text field is inserted by the browser
    const isUsual = (/** @type {DragEvent} */ event) =>
      event.target === this.#area && !event.dataTransfer?.types.includes("Files");
    document.addEventListener("dragover", (event) => isUsual(event) || event.preventDefault());
    document.addEventListener("drop", (event) => {
      over(((depth = 0), false));
      if (isUsual(event)) return;
      event.preventDefault();
      const dropped = event.dataTransfer;
      if (dropped?.files.length) this.#read([...dropped.files]);
      else if (dropped?.getData("text/plain")) this.replace(dropped.getData("text/plain"));
    });
  }

  /** @param {File[]} files */
  async #read(files) {
    const [file] = files;
    if (!file) return;
    if (file.size > LARGEST_FILE) {
      this.#say(`${file.name} has more than 4 MB, which is too much for one text.`);
      return;
    }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError("binary");
      this.replace(text);
      const others = files.length > 1 ? ` Only the first of ${files.length} files was taken.` : "";
      this.#say(`From ${file.name}.${others}`, false);
    } catch {
      this.#say(`${file.name} can’t be read as text in UTF-8.`);
    }
  }

  /** @param {string | null} sentence @param {boolean} [isProblem] */
  #say(sentence, isProblem = true) {
    this.#hint.textContent = sentence ?? this.#usualHint;
    this.#hint.classList.toggle("unseen", sentence === null && state.text !== "");
    this.#hint.classList.toggle("bad", sentence !== null && isProblem);
    if (sentence) announce(sentence);
  }
}

/**
 * Whether a text was edited rather than replaced: half of it is unchanged at its beginning and end.
 *
 * @param {string} before
 * @param {string} after
 */
export function isEdit(before, after) {
  const most = Math.min(before.length, after.length);
  let head = 0;
  while (head < most && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < most - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  return head + tail >= before.length / 2 && after.trim() !== "";
}
