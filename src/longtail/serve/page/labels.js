/** Browse the labels of a model by name or frequency. */

import { announce } from "./announce.js";
import { ask } from "./api.js";
import { byId, el, fill, later } from "./dom.js";
import { breakable, count, counted, nameOf } from "./format.js";
import { MEANING, binChip } from "./bin.js";
import { isStale, problem } from "./problem.js";
import { labelLink } from "./router.js";
import { keep, known, modelAt, state } from "./state.js";

const PAGE = 50;
const PAUSE = 150;
const ORDERS = [
  ["frequency", "Most frequent first"],
  ["rarest", "Rarest first"],
  ["name", "By name"],
  ["label", "By id"],
];

export class LabelsView {
  /** @type {AbortController | null} */
  #asking = null;
  #bin = "";
  #shown = 0;
  #most = 1;
  #search = later(() => this.#find(), PAUSE);

  constructor() {
    const search = { input: this.#search };
    this.select = el("select", { id: "labels-model", on: { change: () => this.#chosen() } });
    this.query = el("input", { id: "labels-query", type: "search", maxlength: 200, autocomplete: "off", spellcheck: "false", on: search });
    this.order = el("select", { id: "labels-order", on: { change: () => this.#find() } }, ORDERS.map(([value, text]) => el("option", { value, text })));
    this.least = el("input", { id: "labels-least", type: "number", min: 0, inputmode: "numeric", placeholder: "0", on: search });
    this.mostRows = el("input", { id: "labels-most", type: "number", min: 0, inputmode: "numeric", placeholder: "any", on: search });
    this.bins = el("fieldset", { class: "bins" });
    this.status = el("div", { class: "status" });
    this.body = el("tbody");
    this.table = el(
      "table",
      { class: "labels", hidden: true },
      el("caption", { class: "unseen", text: "Labels and their number of training rows" }),
      el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Label" }), el("th", { scope: "col", text: "Bin" }), el("th", { scope: "col", class: "number", text: "Training rows" }))),
      this.body,
    );
    this.more = el("button", { type: "button", class: "quiet more", text: "More labels", hidden: true, on: { click: () => this.#find(true) } });
    fill(
      byId("view-labels"),
      el("h1", { id: "labels-title", tabindex: -1, text: "Labels" }),
      el(
        "div",
        { class: "card" },
        el(
          "div",
          { class: "filters" },
          field("labels-model", "Model", this.select),
          field("labels-query", "Name", this.query, "wide"),
          field("labels-order", "Order", this.order),
          el(
            "div",
            { class: "range" },
            field("labels-least", "Rows from", this.least),
            field("labels-most", "to", this.mostRows),
          ),
        ),
        this.bins,
        this.status,
        this.table,
        this.more,
      ),
    );
  }

  show() {
    const model = modelAt(0);
    fill(this.select, known.models.map((one) => el("option", { value: one.name, text: one.name, selected: one === model })));
    this.#most = Math.max(1, model?.frequencies.most ?? 1);
    this.#showBins(model);
    if (model) this.#find();
  }

  #chosen() {
    state.models[0] = this.select.value;
    state.tails[0] = null;
    keep();
    dispatchEvent(new Event("longtail:model"));
    this.show();
  }

  /** Radio buttons for head, torso and tail. @param {import("./state.js").Model | undefined} model */
  #showBins(model) {
    if (!model) return;
    const { bins } = model.frequencies;
    const choice = (/** @type {string} */ value, /** @type {string} */ said, /** @type {string} */ note) =>
      el(
        "label",
        { class: `choice ${value}`, title: MEANING[value] },
        el("input", {
          type: "radio",
          name: "bin",
          value,
          checked: this.#bin === value,
          on: {
            change: () => {
              this.#bin = value;
              this.#find();
            },
          },
        }),
        el("span", { class: "said", text: said }),
        el("small", { text: note }),
      );
    fill(
      this.bins,
      el("legend", { class: "unseen", text: "Frequency bin" }),
      choice("", "all", counted(model.labels, "label")),
      Object.entries(bins).map(([name, { labels, least_rows: least, most_rows: most }]) =>
        choice(name, name, `${counted(labels, "label")}, ${least === most ? counted(least, "row") : `${count(least)} to ${counted(most, "row")}`}`),
      ),
    );
  }

  /** @param {boolean} [more] */
  async #find(more = false) {
    const model = modelAt(0);
    if (!model) return;
    this.#asking?.abort();
    const { signal } = (this.#asking = new AbortController());
    const offset = more ? this.#shown : 0;
    const query = {
      model: model.name,
      q: this.query.value.trim(),
      bin: this.#bin,
      order: this.order.value,
      min_rows: whole(this.least.value),
      max_rows: whole(this.mostRows.value),
      limit: PAGE,
      offset,
    };
    try {
      const { total, labels } = await ask("/v1/labels", { query, signal });
      const found = labels.map((/** @type {any} */ one) => this.#line(one, model.name));
      if (more) this.body.append(...found);
      else fill(this.body, found);
      if (more) found[0]?.querySelector("a").focus();
      this.#shown = offset + labels.length;
      this.table.hidden = !total;
      this.more.hidden = this.#shown >= total;
      const said = total ? `${counted(total, "label")}${this.#shown < total ? `, ${count(this.#shown)} shown` : ""}.` : "No label matches.";
      fill(this.status, el("p", { class: total ? "note" : "empty", text: said }));
      announce(said);
    } catch (error) {
      if (isStale(error) || signal.aborted) return;
      this.table.hidden = true;
      this.more.hidden = true;
      fill(this.status, problem(error, () => this.#find()));
    }
  }

  /** @param {any} label @param {string} model */
  #line(label, model) {
    const bar = el("span", { class: `fill ${label.bin}` });
    bar.style.setProperty("width", `${(100 * Math.log1p(label.training_rows)) / Math.log1p(this.#most)}%`);
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, el("a", { href: labelLink(model, label.label) }, el("bdi", {}, breakable(nameOf(label))))),
      el("td", {}, binChip(label.bin)),
      el("td", { class: "number" }, count(label.training_rows), el("span", { class: "bar", "aria-hidden": "true" }, bar)),
    );
  }
}

/** @param {string} id @param {string} title @param {Element} control @param {string} [kind] */
function field(id, title, control, kind = "") {
  return el("div", { class: `field ${kind}` }, el("label", { for: id, text: title }), control);
}

/** @param {string} value */
function whole(value) {
  return /^\d{1,15}$/u.test(value.trim()) ? Number(value) : null;
}
