/** A combobox that finds labels by name. */

import { ask } from "./api.js";
import { el, fill, later } from "./dom.js";
import { count, nameOf } from "./format.js";
import { binChip } from "./bin.js";
import { isStale } from "./problem.js";

const SHOWN = 8;
const PAUSE = 150;
let made = 0;

/** @typedef {{name: string, rows: number | null, bin: string | null}} Choice */

export class Chooser {
  #number = (made += 1);
  /** @type {Choice[]} */
  #choices = [];
  #active = -1;
  /** The query that the list belongs to. */
  #wanted = "";
  /** @type {AbortController | null} */
  #asking = null;
  #search = later(() => this.#find(), PAUSE);

  /**
   * @param {string} title
   * @param {() => string | undefined} modelName
   * @param {(name: string) => void} onChoice
   */
  constructor(title, modelName, onChoice) {
    this.modelName = modelName;
    this.onChoice = onChoice;
    const id = `chooser-${this.#number}`;
    this.list = el("ul", { id: `${id}-list`, role: "listbox", class: "choices", "aria-label": "Labels", hidden: true });
    this.input = el("input", {
      id,
      type: "text",
      role: "combobox",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "Search by name",
      maxlength: 200,
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": `${id}-list`,
      on: {
        input: this.#search,
        keydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
        focus: () => this.input.value.trim() && this.#search(),
        blur: () => this.#close(),
      },
    });
    this.element = el(
      "div",
      { class: "chooser" },
      el("label", { for: id, text: title }),
      el("div", { class: "field" }, this.input, this.list),
    );
  }

  async #find() {
    const wanted = this.input.value.trim();
    this.#asking?.abort();
    if (!wanted || document.activeElement !== this.input) {
      this.#close();
      return;
    }
    this.#asking = new AbortController();
    try {
      const query = { model: this.modelName(), q: wanted, limit: SHOWN };
      const { labels } = await ask("/v1/labels", { query, signal: this.#asking.signal });
      this.#choices = labels.map((/** @type {any} */ one) => ({
        name: nameOf(one),
        rows: one.training_rows,
        bin: one.bin,
      }));
    } catch (error) {
      if (isStale(error)) return;
      this.#choices = [];
    }
    if (!this.#choices.some((choice) => choice.name === wanted)) {
      this.#choices.push({ name: wanted, rows: null, bin: null });
    }
    this.#active = -1;
    this.#wanted = wanted;
    this.#show();
  }

  #show() {
    fill(
      this.list,
      this.#choices.map((choice, at) =>
        el(
          "li",
          {
            id: `${this.input.id}-${at}`,
            role: "option",
            "aria-selected": String(at === this.#active),
            on: {
              pointerdown: (/** @type {Event} */ event) => event.preventDefault(),
              click: () => this.#choose(choice),
            },
          },
          el("span", {}, choice.rows === null ? "New label: " : null, el("bdi", { text: choice.name })),
          choice.bin === null
            ? null
            : el("span", { class: "seen" }, binChip(choice.bin), ` ${count(choice.rows ?? 0)}`),
        ),
      ),
    );
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    if (this.#active >= 0) {
      this.input.setAttribute("aria-activedescendant", `${this.input.id}-${this.#active}`);
      this.list.children[this.#active].scrollIntoView({ block: "nearest" });
    } else {
      this.input.removeAttribute("aria-activedescendant");
    }
  }

  #close() {
    this.#asking?.abort();
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const isOpen = !this.list.hidden;
    if (event.key === "Escape" && isOpen) this.#close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!isOpen) this.#search();
      else {
        const step = event.key === "ArrowDown" ? 1 : -1;
        const many = this.#choices.length;
        this.#active = this.#active < 0 && step < 0 ? many - 1 : (this.#active + step + many) % many;
        this.#show();
      }
    } else if (event.key === "Enter" && isOpen) {
      const isOld = this.#wanted !== this.input.value.trim();
      const choice = this.#choices[this.#active] ?? this.#choices.find((one) => one.name === this.#wanted);
      if (choice && !isOld) this.#choose(choice);
    } else return;
    event.preventDefault();
  }

  /** @param {Choice} choice */
  #choose(choice) {
    this.input.value = "";
    this.#close();
    this.onChoice(choice.name);
  }
}
