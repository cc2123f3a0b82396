/** A panel: a model, its tail dial, and its predicted labels. */

import { announce } from "./announce.js";
import { ask } from "./api.js";
import { el, fill, later } from "./dom.js";
import { Dial } from "./dial.js";
import { explanation } from "./explanation.js";
import { counted, nameOf, ordinal, percent, score } from "./format.js";
import { smoothly } from "./moving.js";
import { isStale, problem } from "./problem.js";
import { Result } from "./result.js";
import { keep, known, modelAt, state } from "./state.js";

const FIRST = 10;
const MOST = 100;
const PARTS = 60;
const NEAREST = 6;
const DIAL_PAUSE = 40;
const SLOW = 250;

/** @typedef {import("./result.js").Prediction} Prediction */

/** Fires `results`, `model` (another one was chosen) and `newer` (the server has another version). */
export class Ranking extends EventTarget {
  #k = FIRST;
  /** @type {Map<string, Result>} */
  #results = new Map();
  /** @type {Prediction[]} */
  #predictions = [];
  /** Cached probabilities and explanations of this text and model version, by label. */
  #asked = { key: "", chances: new Map(), whys: new Map() };
  /** @type {AbortController | null} */
  #asking = null;
  /** @type {AbortController | null} */
  #explaining = null;
  /** Name of the label whose words are highlighted. @type {string | null} */
  #chosen = null;
  #isOpen = false;
  /** @type {{places: Map<string, number>, of: string, k: number} | null} */
  #other = null;
  #soon = later(() => this.ask(), DIAL_PAUSE);

  /**
   * @param {number} at 0, or 1 for the model beside it
   * @param {import("./editor.js").Editor} editor
   * @param {import("./corrections.js").Corrections} corrections
   */
  constructor(at, editor, corrections) {
    super();
    this.at = at;
    this.editor = editor;
    this.corrections = corrections;
    this.select = el("select", { id: `model-${at}`, on: { change: () => this.#changeModel() } });
    this.facts = el("p", { class: "note" });
    this.dial = new Dial((tail) => this.#dialled(tail));
    this.status = el("div", { class: "status" });
    this.list = el("ol", { class: "results", id: `results-${at}` });
    this.more = el("button", { type: "button", class: "quiet more", text: "More labels", hidden: true, on: { click: () => this.#more() } });
    this.title = el("h2", { class: "unseen", id: `panel-${at}` });
    this.element = el(
      "section",
      { class: "card panel", "aria-labelledby": `panel-${at}` },
      this.title,
      el("div", { class: "controls" }, el("div", { class: "model" }, el("label", { for: `model-${at}`, text: "Model" }), this.select, this.facts), this.dial.element),
      this.status,
      this.list,
      this.more,
      el("p", { class: "note keys", text: "In the list: ↑ and ↓ move, Enter opens, K keeps, R rejects." }),
    );
    corrections.addEventListener("change", () => this.#render());
  }

  get model() {
    return modelAt(this.at);
  }

  get predictions() {
    return this.#predictions;
  }

  get k() {
    return this.#k;
  }

  /** Update the list of models. */
  showModels() {
    const { model } = this;
    fill(
      this.select,
      known.models.map((one) => el("option", { value: one.name, text: one.name, selected: one === model })),
      known.loading.map((name) => el("option", { value: name, text: `${name} (loading)`, disabled: true })),
    );
    this.select.disabled = !known.models.length;
    this.dial.set(state.tails[this.at], model?.dial ?? null);
    this.dial.element.hidden = model?.takes !== "texts";
    this.title.textContent = model ? `Labels by ${model.name}` : "Labels";
    fill(this.facts, model ? describe(model) : "");
  }

  /** Send the request again; an earlier one without a response is cancelled. */
  async ask() {
    this.#asking?.abort();
    const { model } = this;
    const { text } = state;
    if (!model || !text.trim() || model.takes !== "texts") {
      this.#clear(model, text);
      return;
    }
    const asking = (this.#asking = new AbortController());
    const { signal } = asking;
    const slow = setTimeout(() => this.element.classList.add("busy"), SLOW);
    this.list.setAttribute("aria-busy", "true");
    const onWait = (/** @type {number} */ seconds) =>
      this.#say(`The server is busy. Retrying in ${counted(seconds, "second")}.`);
    try {
      const tail = state.tails[this.at];
      const body = { text, model: model.name, k: this.#k, tail };
      const answer = await ask("/v1/predict", { body, signal, onWait });
      const predictions = answer.results[0].predictions;
      this.#remember(`${answer.model} ${answer.version} ${text}`, predictions);
      if (model.calibrated && tail !== null) await this.#findChances(text, model.name, predictions, signal);
      signal.throwIfAborted();
      this.#predictions = predictions;
      this.#finish(model);
      if (answer.version !== model.version) this.dispatchEvent(new Event("newer"));
    } catch (error) {
      if (isStale(error) || signal.aborted) return;
      this.#predictions = [];
      this.#render();
      fill(this.status, problem(error, () => this.ask()));
    } finally {
      clearTimeout(slow);
      if (this.#asking === asking) {
        this.element.classList.remove("busy");
        this.list.removeAttribute("aria-busy");
      }
    }
  }

  /** Show the ranks in another model, or none. @param {Ranking | null} other */
  compareWith(other) {
    const model = other?.model;
    this.#other =
      other && model && other.predictions.length
        ? {
            places: new Map(other.predictions.map((one, at) => [nameOf(one), at + 1])),
            of: model.name === this.model?.name ? "the other" : model.name,
            k: other.predictions.length,
          }
        : null;
    this.#render();
  }

  /** Deselect the label whose words are highlighted. */
  close() {
    this.#chosen = null;
    this.#isOpen = false;
    this.#explaining?.abort();
    for (const result of this.#results.values()) result.show(false, false);
  }

  #changeModel() {
    state.models[this.at] = this.select.value;
    state.tails[this.at] = null;
    keep();
    this.close();
    this.editor.clearMarks();
    this.showModels();
    this.dispatchEvent(new Event("model"));
    this.ask();
  }

  /** @param {number | null} tail */
  #dialled(tail) {
    state.tails[this.at] = tail;
    keep();
    this.#asking?.abort();
    this.#soon();
  }

  #more() {
    this.#k = Math.min(this.#k * 2, MOST);
    this.ask();
  }

  /** @param {string} key @param {Prediction[]} predictions */
  #remember(key, predictions) {
    if (this.#asked.key !== key) this.#asked = { key, chances: new Map(), whys: new Map() };
    for (const { label, probability } of predictions) {
      if (probability !== null) this.#asked.chances.set(label, probability);
    }
  }

  /**
   * Chances are learned without the dial, and a label's chance is the same wherever the dial puts it: ask for those of
   * labels that come up.
   *
   * @param {string} text @param {string} model @param {Prediction[]} predictions @param {AbortSignal} signal
   */
  async #findChances(text, model, predictions, signal) {
    const { chances } = this.#asked;
    const only = predictions.map((one) => one.label).filter((label) => !chances.has(label));
    if (!only.length) return;
    const { results } = await ask("/v1/predict", { body: { text, model, k: only.length, only, names: false }, signal });
    for (const { label, probability } of results[0].predictions) chances.set(label, probability);
    for (const label of only) if (!chances.has(label)) chances.set(label, null);
  }

  /** @param {import("./state.js").Model} model */
  #finish(model) {
    const [first] = this.#predictions;
    if (!first) {
      this.#say("The model predicts no label for this text.");
    } else {
      fill(this.status, this.#columns(model));
      const chance = this.#asked.chances.get(first.label);
      const value = model.calibrated && chance !== undefined && chance !== null ? percent(chance) : `score ${score(first.score)}`;
      announce(`${model.name}: ${counted(this.#predictions.length, "label")}. First is ${nameOf(first)}, ${value}.`);
    }
    this.#render();
    this.more.hidden = this.#predictions.length < this.#k || this.#k >= Math.min(MOST, model.labels);
    this.dispatchEvent(new Event("results"));
    this.#select(this.#selected ?? (this.at === 0 ? first : undefined));
  }

  /** @param {import("./state.js").Model} model */
  #columns(model) {
    return el(
      "p",
      { class: "columns note" },
      el("span", { text: "Label" }),
      el("span", { text: model.calibrated ? "Chance" : "Score" }),
      el("span", { text: "Training rows" }),
    );
  }

  /** @param {import("./state.js").Model | undefined} model @param {string} text */
  #clear(model, text) {
    this.#predictions = [];
    this.close();
    this.#render();
    this.more.hidden = true;
    this.element.classList.remove("busy");
    this.list.removeAttribute("aria-busy");
    if (!model) this.#say(known.loading.length ? "Models are loading." : "");
    else if (model.takes !== "texts") {
      this.#say(
        `${model.name} takes rows of features, not texts, so it can’t be asked here. Its labels can be browsed; rows are sent to POST /v1/predict.`,
      );
    } else if (!text.trim()) this.#say("Labels appear here, best first, when there is a text.");
    this.dispatchEvent(new Event("results"));
  }

  /** @param {string} sentence */
  #say(sentence) {
    fill(this.status, sentence ? el("p", { class: "empty", text: sentence }) : null);
  }

  #render() {
    const { model } = this;
    const names = new Set(this.#predictions.map(nameOf));
    this.element.classList.toggle("scores", !model?.calibrated);
    smoothly(this.list, () => {
      for (const [name, result] of this.#results) {
        if (names.has(name)) continue;
        result.element.remove();
        this.#results.delete(name);
      }
      this.#predictions.forEach((prediction, at) => {
        const name = nameOf(prediction);
        const result = this.#results.get(name) ?? this.#made(prediction);
        this.#results.set(name, result);
        result.update({
          prediction,
          place: at + 1,
          calibrated: Boolean(model?.calibrated),
          chance: this.#asked.chances.get(prediction.label) ?? null,
          verdict: this.corrections.verdict(name),
          canDecide: Boolean(model?.has_names),
          elsewhere: this.#elsewhere(name),
        });
        if (this.list.children[at] !== result.element) this.list.insertBefore(result.element, this.list.children[at] ?? null);
      });
    });
  }

  /** @param {string} name */
  #elsewhere(name) {
    if (!this.#other) return null;
    const place = this.#other.places.get(name);
    return place ? `${ordinal(place)} in ${this.#other.of}` : `below ${ordinal(this.#other.k)} in ${this.#other.of}`;
  }

  /** @param {Prediction} prediction */
  #made(prediction) {
    const name = nameOf(prediction);
    return new Result(
      () => {
        this.#isOpen = !(this.#isOpen && this.#chosen === name);
        this.#select(prediction);
      },
      (verdict) => {
        this.corrections.decide(state.text, name, verdict);
        announce(verdict === null ? `${name}: decision taken back` : `${name} ${verdict}`);
      },
    );
  }

  /** The prediction of the selected label, if it is still ranked. */
  get #selected() {
    return this.#predictions.find((one) => nameOf(one) === this.#chosen);
  }

  /** Highlight the words of a label, and open its explanation if requested. @param {Prediction | undefined} prediction */
  #select(prediction) {
    if (!prediction) {
      this.close();
      return;
    }
    if (nameOf(prediction) !== this.#chosen) this.#explaining?.abort();
    this.#chosen = nameOf(prediction);
    for (const [name, result] of this.#results) result.show(name === this.#chosen, name === this.#chosen && this.#isOpen);
    this.dispatchEvent(new Event("select"));
    this.#explain();
  }

  /** Show the explanation of the selected label, and highlight its words. */
  async #explain() {
    const { model } = this;
    const prediction = this.#selected;
    const result = this.#results.get(this.#chosen ?? "");
    if (!model || !prediction || !result) return;
    this.#explaining?.abort();
    const { signal } = (this.#explaining = new AbortController());
    const asked = this.#asked;
    const { text } = state;
    try {
      if (!asked.whys.has(prediction.label)) {
        if (!result.why.childElementCount) fill(result.why, el("p", { class: "note", text: "Loading the explanation…" }));
        asked.whys.set(prediction.label, await why(text, model, prediction.label, signal));
      }
      if (signal.aborted || text !== state.text) return;
      const found = asked.whys.get(prediction.label);
      fill(result.why, ...explanationOf(found, model, prediction));
      if (found.explanation) this.editor.mark(found.explanation.spans, nameOf(prediction), model.name);
      else this.editor.clearMarks();
    } catch (error) {
      if (isStale(error) || signal.aborted) return;
      fill(result.why, problem(error, () => this.#explain()));
    }
  }
}

/**
 * Details of a label for a text: the explanation, or those of the label's view if the model has none.
 *
 * @param {string} text @param {import("./state.js").Model} model @param {number} label @param {AbortSignal} signal
 */
async function why(text, model, label, signal) {
  if (model.has_explanations) {
    const wish = { k: 1, only: [label], explain: true, parts: PARTS, nearest: NEAREST, offsets: "utf-16" };
    const { results } = await ask("/v1/predict", { body: { text, model: model.name, ...wish }, signal });
    const found = results[0].predictions[0]?.explanation ?? null;
    if (found) return { explanation: found };
  }
  const query = { model: model.name, nearest: NEAREST, words: 0 };
  return { explanation: null, label: await ask(`/v1/labels/${label}`, { query, signal }) };
}

/** @param {any} found @param {import("./state.js").Model} model @param {Prediction} prediction */
function explanationOf(found, model, prediction) {
  if (found.explanation) return explanation(found.explanation, model, prediction);
  const sentence = model.has_explanations
    ? "The model has no explanation for this label."
    : "This model doesn’t support explanations.";
  const empty = { parts: [], sources: [], others: { parts: 0, contribution: 0 }, bias: 0, score: 0 };
  const parts = explanation({ ...empty, remark: sentence, path: found.label.path, nearest: found.label.nearest }, model, prediction);
  return parts.filter((part) => !part?.matches?.(".note"));
}

/** @param {import("./state.js").Model} model */
function describe(model) {
  return [
    model.recipe,
    counted(model.labels, "label"),
    counted(model.rows, "training row"),
    model.calibrated ? "calibrated" : "not calibrated",
  ]
    .filter(Boolean)
    .join(", ");
}
