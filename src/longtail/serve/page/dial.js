/** The tail dial: a slider that favours rare labels. */

import { el } from "./dom.js";

const STEP = 0.02;
let made = 0;

export class Dial {
  #rest = 0;

  /** @param {(tail: number | null) => void} onMove null for the model's own position */
  constructor(onMove) {
    this.onMove = onMove;
    const id = `dial-${(made += 1)}`;
    this.output = el("output", { for: id });
    this.input = el("input", { id, type: "range", min: 0, max: 1, step: STEP, on: { input: () => this.#moved() } });
    this.reset = el("button", {
      type: "button",
      class: "quiet",
      text: "Reset",
      "aria-label": "Reset the tail dial",
      on: {
        click: () => {
          this.set(null, this.#rest);
          this.onMove(null);
          this.input.focus();
        },
      },
    });
    this.element = el(
      "div",
      { class: "dial" },
      el("div", { class: "dial-head" }, el("label", { for: id, text: "Tail dial" }), this.output, this.reset),
      this.input,
      el("div", { class: "ends", "aria-hidden": "true" }, el("span", { text: "as scored" }), el("span", { text: "favour rare labels" })),
    );
  }

  /** @param {number | null} tail @param {number | null} rest the model's own position */
  set(tail, rest) {
    this.#rest = rest ?? 0;
    this.input.value = String(tail ?? this.#rest);
    this.#show();
  }

  get tail() {
    const value = Number(this.input.value);
    return Math.abs(value - this.#rest) < STEP / 2 ? null : value;
  }

  #moved() {
    this.#show();
    this.onMove(this.tail);
  }

  #show() {
    const { tail } = this;
    const said = tail === null ? "as trained" : tail.toFixed(2);
    this.output.textContent = said;
    this.input.setAttribute("aria-valuetext", said);
    this.input.style.setProperty("--at", `${Number(this.input.value) * 100}%`);
    this.reset.hidden = tail === null;
  }
}
