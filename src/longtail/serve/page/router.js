/** The current view, from the fragment of the URL. */

/** @typedef {{view: "text" | "compare" | "labels" | "label" | "corrections", model?: string, label?: number}} Route */

/** @param {string} hash @returns {Route} */
export function route(hash) {
  const [view, model, label] = hash.replace(/^#\/?/u, "").split("/");
  if (view === "labels" && model !== undefined && /^\d{1,10}$/u.test(label ?? "")) {
    try {
      return { view: "label", model: decodeURIComponent(model), label: Number(label) };
    } catch {
      return { view: "labels" };
    }
  }
  if (view === "compare" || view === "labels" || view === "corrections") return { view };
  return { view: "text" };
}

/** URL of the view of a label. @param {string} model @param {number} label */
export function labelLink(model, label) {
  return `#/labels/${encodeURIComponent(model)}/${label}`;
}
