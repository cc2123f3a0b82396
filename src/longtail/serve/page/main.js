/** The page: its views and models, and updates when the text changes. */

import { ask } from "./api.js";
import { Corrections } from "./corrections.js";
import { byId, el, fill } from "./dom.js";
import { Editor } from "./editor.js";
import { LabelView } from "./label.js";
import { LabelsView } from "./labels.js";
import { Own } from "./own.js";
import { problem } from "./problem.js";
import { Ranking } from "./ranking.js";
import { route } from "./router.js";
import { RowsView } from "./rows.js";
import { known, state } from "./state.js";

const LOADING_PAUSE = 1500;
const TITLES = { text: "Text", compare: "Compare", labels: "Labels", label: "Label", corrections: "Corrections" };

const corrections = new Corrections();
corrections.show(state.text);
const editor = new Editor();
const panels = [0, 1].map((at) => new Ranking(at, editor, corrections));
const own = new Own(corrections);
const labels = new LabelsView();
const label = new LabelView();
new RowsView(corrections, (text) => {
  location.hash = "#/";
  editor.replace(text);
});
byId("panels").append(...panels.map((panel) => panel.element));

/** On a narrow page the user's own labels come last, also in document order. */
const narrow = matchMedia("(max-width: 56rem)");
function arrange() {
  document.querySelector(narrow.matches ? ".desk" : ".writing")?.append(byId("own"));
}
narrow.addEventListener("change", arrange);
arrange();

/** Panels currently on the page. */
function live() {
  return route(location.hash).view === "compare" ? panels : panels.slice(0, 1);
}

function askAll() {
  for (const panel of live()) panel.ask();
}

for (const panel of panels) {
  panel.addEventListener("results", () => {
    const [first, second] = panels;
    const both = live().length > 1;
    first.compareWith(both ? second : null);
    second.compareWith(both ? first : null);
  });
  panel.addEventListener("select", () => panels.find((other) => other !== panel)?.close());
  panel.addEventListener("model", () => own.show());
  panel.addEventListener("newer", () => findModels());
}

editor.addEventListener("change", (event) => {
  const { replaced } = /** @type {CustomEvent} */ (event).detail;
  if (replaced) corrections.show(state.text);
  else corrections.edit(state.text);
  own.show();
});
editor.addEventListener("settle", askAll);
corrections.addEventListener("full", () => {
  fill(
    byId("notice"),
    el("p", { class: "notice problem", role: "alert", text: "The browser’s storage is full, so the last change will be lost on reload: download your corrections and clear them." }),
  );
});
addEventListener("longtail:model", () => {
  panels[0].showModels();
  panels[0].ask();
  own.show();
});

/** Request the list of models; repeat while some are loading. */
async function findModels() {
  const names = known.models.map((model) => model.name).join("\n");
  try {
    Object.assign(known, await ask("/v1/models"));
  } catch (error) {
    fill(byId("notice"), problem(error, findModels));
    return;
  }
  fill(byId("notice"), known.loading.length ? el("p", { class: "notice", text: `Loading: ${known.loading.join(", ")}.` }) : null);
  for (const panel of panels) panel.showModels();
  own.show();
  if (known.models.map((model) => model.name).join("\n") !== names) {
    askAll();
    showView(false);
  }
  if (known.loading.length) setTimeout(findModels, LOADING_PAUSE);
}

/** @param {boolean} moveFocus */
function showView(moveFocus) {
  const now = route(location.hash);
  const shown = now.view === "compare" ? "text" : now.view;
  for (const view of document.querySelectorAll("main > .view")) {
    /** @type {HTMLElement} */ (view).hidden = view.id !== `view-${shown}`;
  }
  byId("view-text").classList.toggle("comparing", now.view === "compare");
  panels[1].element.hidden = now.view !== "compare";
  byId("text-title").textContent = now.view === "compare" ? "Labels of a text by two models" : "Labels of a text";
  document.title = `${TITLES[now.view]} · longtail`;
  for (const link of document.querySelectorAll("nav a")) {
    const view = /** @type {HTMLElement} */ (link).dataset.view;
    if (view === now.view || (view === "labels" && now.view === "label")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (now.view === "labels") labels.show();
  if (now.view === "label") label.show(now.model ?? "", now.label ?? 0);
  if (moveFocus) {
    scrollTo(0, 0);
    /** @type {HTMLElement | null} */ (document.querySelector(`#view-${shown} h1`))?.focus({ preventScroll: true });
  }
}

addEventListener("hashchange", () => {
  showView(true);
  if (known.models.length && byId("view-text").hidden === false) askAll();
});
byId("skip").addEventListener("click", (/** @type {Event} */ event) => {
  event.preventDefault();
  byId("main").focus();
});

showView(false);
for (const panel of panels) panel.showModels();
findModels();
