/** The view of a label: its frequency, similar labels, and the words with the largest weights. */

import { ask } from "./api.js";
import { byId, el, fill } from "./dom.js";
import { path, similar } from "./explanation.js";
import { count, counted, nameOf, ordinal, score, share } from "./format.js";
import { binChip } from "./bin.js";
import { isStale, problem } from "./problem.js";
import { known } from "./state.js";

const NEAREST = 15;
const WORDS = 30;

/** @type {Record<string, string>} */
const ALIKE = {
  embeddings: "with similar embeddings",
  weights: "with similar weights",
  leaves: "in the same leaves",
};

export class LabelView {
  /** @type {AbortController | null} */
  #asking = null;
  #place = byId("view-label");

  /** @param {string} model @param {number} label */
  async show(model, label) {
    this.#asking?.abort();
    const { signal } = (this.#asking = new AbortController());
    const back = el("p", {}, el("a", { href: "#/labels", text: "All labels" }));
    const title = el("h1", { id: "label-title", tabindex: -1, text: `Label ${label}` });
    const body = el("div", {}, el("p", { class: "note", text: "Loading…" }));
    fill(this.#place, back, title, body);
    try {
      const query = { model, nearest: NEAREST, words: WORDS };
      const found = await ask(`/v1/labels/${label}`, { query, signal });
      title.textContent = nameOf(found);
      document.title = `${nameOf(found)} · longtail`;
      fill(body, this.#facts(found), el("div", { class: "halves" }, this.#words(found), this.#alike(found)), this.#path(found));
    } catch (error) {
      if (isStale(error) || signal.aborted) return;
      fill(body, problem(error, () => this.show(model, label)));
    }
  }

  /** @param {any} found */
  #facts(found) {
    const all = known.models.find((one) => one.name === found.model)?.labels;
    return el(
      "p",
      { class: "figures" },
      binChip(found.bin),
      el("span", {}, el("b", { text: count(found.training_rows) }), found.training_rows === 1 ? " training row" : " training rows"),
      el("span", {}, el("b", { text: share(found.share_of_rows) }), " of all rows"),
      el("span", {}, el("b", { text: ordinal(found.rank) }), all ? ` most frequent of ${counted(all, "label")}` : " most frequent"),
      el("span", { class: "note", text: `id ${found.label} in ${found.model}` }),
    );
  }

  /** @param {any} found */
  #words(found) {
    const card = el("section", { class: "card" }, el("h2", { text: "Words with the largest weights" }));
    if (!found.words?.length) {
      card.append(el("p", { class: "empty", text: found.words ? "No word has a positive weight." : "This model has no word weights." }));
      return card;
    }
    const largest = found.words[0].weight;
    card.append(
      el("p", { class: "note", text: "Words that raise the score of the label most, and their weights." }),
      el(
        "ol",
        { class: "weights" },
        found.words.map((/** @type {any} */ word) => {
          const bar = el("span", { class: "fill" });
          bar.style.setProperty("width", `${(100 * word.weight) / largest}%`);
          return el(
            "li",
            {},
            el("bdi", { text: word.feature }),
            el("span", { class: "bar", "aria-hidden": "true" }, bar),
            el("small", { text: score(word.weight) }),
          );
        }),
      ),
    );
    return card;
  }

  /** @param {any} found */
  #alike(found) {
    const list = similar(found.nearest, found.model);
    const by = ALIKE[found.nearest_by];
    return el(
      "section",
      { class: "card" },
      el("h2", { text: "Similar labels" }),
      el("p", { class: list ? "note" : "empty", text: list ? `Labels ${by ?? "that are similar"}, most similar first.` : "The model has no similar labels." }),
      list?.querySelector("ul"),
    );
  }

  /** @param {any} found */
  #path(found) {
    const way = path(found.path, nameOf(found));
    return way ? el("section", { class: "card" }, way) : null;
  }
}
