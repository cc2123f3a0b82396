/** Which view is shown, by the part of the address behind #. */

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

/** Address of a label's own view. @param {string} model @param {number} label */
export function labelLink(model, label) {
  return `#/labels/${encodeURIComponent(model)}/${label}`;
}
