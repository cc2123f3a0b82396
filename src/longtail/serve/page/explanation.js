/** Explanation of a score: words, the path through a tree, similar labels. */

import { el } from "./dom.js";
import { count, nameOf, score, share, signed } from "./format.js";
import { binChip } from "./bin.js";
import { level } from "./highlight.js";
import { labelLink } from "./router.js";

const UP = 10;
const DOWN = 6;
const PULLS = 3;

/** @typedef {{feature: string, contribution: number}} Part */

/**
 * @param {any} why explanation of the API
 * @param {import("./state.js").Model} model
 * @param {{label: number, name: string | null}} of the label
 */
export function explanation(why, model, of) {
  const name = nameOf(of);
  const parts = /** @type {Part[]} */ (why.parts);
  const up = parts.filter((part) => part.contribution > 0);
  const down = parts.filter((part) => part.contribution < 0);
  const largest = Math.max(...parts.map((part) => Math.abs(part.contribution)));
  return [
    why.remark ? el("p", { text: why.remark }) : null,
    words("Raised by", up.slice(0, UP), "up", largest),
    words("Lowered by", down.slice(0, DOWN), "down", largest),
    sum(why, up.slice(UP).concat(down.slice(DOWN))),
    sources(why.sources),
    path(why.path, name),
    similar(why.nearest, model.name),
    el("p", {}, el("a", { href: labelLink(model.name, of.label), text: "More about this label" })),
  ];
}

/** @param {string} title @param {Part[]} parts @param {"up" | "down"} way @param {number} largest absolute contribution */
function words(title, parts, way, largest) {
  if (!parts.length) return null;
  return el(
    "div",
    { class: "reason" },
    el("h3", { text: title }),
    el(
      "ul",
      { class: "words" },
      parts.map((part) =>
        el(
          "li",
          { class: `${way} s${level(part.contribution, largest) || 1}` },
          el("bdi", { text: part.feature }),
          " ",
          el("small", { text: signed(part.contribution) }),
        ),
      ),
    ),
  );
}

/** @param {any} why @param {Part[]} unlisted */
function sum(why, unlisted) {
  const rest = unlisted.reduce((total, part) => total + part.contribution, why.others.contribution);
  const many = unlisted.length + why.others.parts;
  const terms = [`${score(why.bias)} without any word`];
  if (many) terms.push(`${signed(rest)} from ${count(many)} other ${many === 1 ? "word" : "words"}`);
  return el("p", { class: "note", text: `Score ${score(why.score)}, of which ${terms.join(" and ")}.` });
}

/** @param {{source: string, contribution: number}[]} found */
function sources(found) {
  if (found.length < 2) return null;
  return el(
    "div",
    { class: "reason" },
    el("h3", { text: "Components" }),
    el(
      "ul",
      { class: "words" },
      found.map((one) => el("li", {}, `${one.source} `, el("small", { text: signed(one.contribution) }))),
    ),
  );
}

/**
 * @param {{tree: string, share: number | null, steps: {node: number | null, name: string, parts: Part[]}[]} | null} way
 * @param {string} name of the label at its end
 */
export function path(way, name) {
  if (!way?.steps.length) return null;
  const part = way.share === null ? "" : `, with ${share(way.share)} of what all trees say`;
  const named = way.steps[0].node === null ? "" : " A node is named by its most frequent labels.";
  return el(
    "div",
    { class: "reason" },
    el("h3", { text: "Path through the tree" }),
    el("p", { class: "note", text: `In ${way.tree}${part}, from the root down.${named}` }),
    el(
      "ol",
      { class: "path" },
      way.steps.map((step) =>
        el(
          "li",
          {},
          el("bdi", { text: step.name }),
          step.parts.slice(0, PULLS).map((pull) =>
            el("small", {}, " ", el("bdi", { text: pull.feature }), ` ${signed(pull.contribution)}`),
          ),
        ),
      ),
      el("li", { class: "end" }, el("bdi", { text: name })),
    ),
  );
}

/** @param {any[]} labels @param {string} model */
export function similar(labels, model) {
  if (!labels.length) return null;
  return el(
    "div",
    { class: "reason" },
    el("h3", { text: "Similar labels" }),
    el(
      "ul",
      { class: "near" },
      labels.map((near) =>
        el(
          "li",
          {},
          el("a", { href: labelLink(model, near.label) }, el("bdi", { text: nameOf(near) })),
          el("span", { class: "seen" }, binChip(near.bin), ` ${count(near.training_rows)}`),
          el("small", { title: "Similarity, at most 1", text: near.similarity.toFixed(2) }),
        ),
      ),
    ),
  );
}
