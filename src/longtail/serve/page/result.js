/** One predicted label: its rank, score and frequency, and the user's correction. */

import { el, fill, icon } from "./dom.js";
import { breakable, nameOf, percent, score } from "./format.js";
import { frequency } from "./bin.js";

let made = 0;

/** @typedef {{label: number, name: string | null, score: number, probability: number | null, training_rows: number,
 *   bin: string}} Prediction */
/** @typedef {"kept" | "rejected" | null} Verdict */

/**
 * @typedef {object} Shown
 * @property {Prediction} prediction
 * @property {number} place counted from 1
 * @property {boolean} calibrated whether scores are shown as chances
 * @property {number | null} chance
 * @property {Verdict} verdict
 * @property {boolean} canDecide
 * @property {string | null} elsewhere its place in the model beside this one
 */

export class Result {
  #number = (made += 1);

  /**
   * @param {() => void} onOpen
   * @param {(verdict: Verdict) => void} onVerdict
   */
  constructor(onOpen, onVerdict) {
    this.onVerdict = onVerdict;
    /** @type {Verdict} */
    this.verdict = null;
    this.place = el("span", { class: "place" });
    this.name = el("bdi", { class: "label-name" });
    this.button = el(
      "button",
      { type: "button", class: "name", "aria-expanded": "false", "aria-controls": `why-${this.#number}`, on: { click: onOpen } },
      this.place,
      this.name,
      icon("open"),
    );
    this.value = el("span", { class: "value" });
    this.fill = el("span", { class: "fill" });
    this.bar = el("span", { class: "bar", "aria-hidden": "true" }, this.fill);
    this.seen = el("span", { class: "facts" });
    this.keep = this.#decider("keep", "kept");
    this.reject = this.#decider("reject", "rejected");
    this.deciding = el("span", { class: "verdict" }, this.keep, this.reject);
    this.why = el("div", { class: "why", id: `why-${this.#number}`, hidden: true });
    this.element = el(
      "li",
      { class: "result", on: { keydown: (/** @type {KeyboardEvent} */ event) => this.#key(event) } },
      el("div", { class: "line" }, this.button, this.value, this.bar, this.seen, this.deciding),
      this.why,
    );
  }

  /** @param {Shown} shown */
  update({ prediction, place, calibrated, chance, verdict, canDecide, elsewhere }) {
    const name = nameOf(prediction);
    this.verdict = verdict;
    this.place.textContent = String(place);
    if (this.name.textContent !== name) fill(this.name, breakable(name));
    if (calibrated) {
      fill(this.value, chance === null ? "–" : percent(chance));
      this.value.title = "Probability of the label";
    } else {
      fill(this.value, score(prediction.score));
      this.value.title = "Score; not a probability, because this model is not calibrated";
    }
    this.bar.hidden = !calibrated;
    this.fill.style.setProperty("width", `${(chance ?? 0) * 100}%`);
    fill(this.seen, frequency(prediction), elsewhere ? el("span", { class: "elsewhere", text: elsewhere }) : null);
    this.deciding.hidden = !canDecide;
    this.element.dataset.verdict = verdict ?? "";
    this.keep.setAttribute("aria-pressed", String(verdict === "kept"));
    this.keep.setAttribute("aria-label", `Keep ${name}`);
    this.reject.setAttribute("aria-pressed", String(verdict === "rejected"));
    this.reject.setAttribute("aria-label", `Reject ${name}`);
  }

  /** @param {boolean} isChosen its words are highlighted @param {boolean} isOpen */
  show(isChosen, isOpen) {
    this.why.hidden = !isOpen;
    this.element.classList.toggle("chosen-one", isChosen);
    this.button.setAttribute("aria-expanded", String(isOpen));
    this.element.classList.toggle("open", isOpen);
  }

  /** @param {"keep" | "reject"} what @param {Verdict} verdict */
  #decider(what, verdict) {
    return el(
      "button",
      { type: "button", class: what, title: what === "keep" ? "Keep (K)" : "Reject (R)", on: { click: () => this.#decide(verdict) } },
      icon(what),
    );
  }

  /** Repeating a decision undoes it. @param {Verdict} verdict */
  #decide(verdict) {
    if (!this.deciding.hidden) this.onVerdict(this.verdict === verdict ? null : verdict);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key === "k") this.#decide("kept");
    else if (key === "r") this.#decide("rejected");
    else if (key === "arrowdown" || key === "arrowup") {
      const next = key === "arrowdown" ? this.element.nextElementSibling : this.element.previousElementSibling;
      next?.querySelector(".name")?.focus();
    } else return;
    event.preventDefault();
  }
}
