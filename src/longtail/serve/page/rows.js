/** The view of all corrected texts: open, remove, download, clear. */

import { announce } from "./announce.js";
import { byId, el, fill } from "./dom.js";
import { beginning, counted } from "./format.js";

export class RowsView {
  /**
   * @param {import("./corrections.js").Corrections} corrections
   * @param {(text: string) => void} onOpen
   */
  constructor(corrections, onOpen) {
    this.corrections = corrections;
    this.onOpen = onOpen;
    this.list = el("ol", { class: "rows" });
    this.note = el("p", { class: "note" });
    this.download = el("button", { type: "button", class: "main", text: "Download JSONL", on: { click: () => this.#download() } });
    this.clear = el("button", { type: "button", class: "danger", text: "Clear all", on: { click: () => this.#clear() } });
    this.title = el("h1", { id: "corrections-title", tabindex: -1, text: "Corrections" });
    fill(
      byId("view-corrections"),
      this.title,
      this.note,
      el("p", { class: "buttons" }, this.download, this.clear),
      this.list,
      el(
        "p",
        { class: "note" },
        "Each row of the file has a text, the labels that you kept or added, and the labels that you rejected. Other labels are not included. The rows stay in this browser until you clear them.",
      ),
    );
    corrections.addEventListener("change", () => this.show());
    this.show();
  }

  show() {
    const { rows } = this.corrections;
    byId("count").textContent = String(rows.length);
    byId("count").hidden = !rows.length;
    this.note.textContent = rows.length
      ? `${counted(rows.length, "text")}, for the next training or for longtail update.`
      : "Nothing here yet. Keep or reject labels of a text, and the text appears here.";
    const only = this.corrections.rejecting.length;
    if (only) this.note.textContent += ` ${counted(only, "text")} with rejected labels alone: for longtail update only, as longtail train would take such a row as one without labels.`;
    this.download.disabled = !rows.length;
    this.clear.disabled = !rows.length;
    fill(this.list, rows.map((row) => this.#row(row)));
  }

  /** @param {import("./corrections.js").Row} row */
  #row(row) {
    const start = beginning(row.text);
    const short = beginning(row.text, 40);
    return el(
      "li",
      { class: "card row" },
      el("p", { class: "excerpt", dir: "auto", text: start }),
      row.kept.length
        ? el("ul", { class: "chosen" }, row.kept.map((name) => el("li", {}, el("bdi", { text: name }))))
        : el("p", { class: "note", text: "No label kept or added." }),
      row.rejected.length
        ? el("p", { class: "note rejected" }, "Rejected: ", row.rejected.flatMap((name, at) => [at ? ", " : null, el("bdi", { text: name })]))
        : null,
      el(
        "p",
        { class: "buttons" },
        el("button", { type: "button", class: "quiet", text: "Open", "aria-label": `Open: ${short}`, on: { click: () => this.onOpen(row.text) } }),
        el("button", { type: "button", class: "quiet", text: "Remove", "aria-label": `Remove: ${short}`, on: { click: () => this.#remove(row.id) } }),
      ),
    );
  }

  /** @param {string} id */
  async #remove(id) {
    if (!(await sure("Remove this text?", "Its labels are removed too.", "Remove"))) return;
    this.corrections.remove(id);
    this.title.focus();
    announce("Removed.");
  }

  async #clear() {
    const many = counted(this.corrections.rows.length, "text");
    if (!(await sure("Clear all corrections?", `${many} with your labels will be deleted. Download them first if you need them.`, "Clear all"))) return;
    this.corrections.clear();
    this.title.focus();
    announce("All corrections are cleared.");
  }

  #download() {
    const address = URL.createObjectURL(new Blob([this.corrections.toJsonl()], { type: "application/jsonl" }));
    const link = el("a", { href: address, download: "corrections.jsonl" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    announce(`${counted(this.corrections.rows.length, "row")} downloaded.`);
  }
}

/** @param {string} title @param {string} remark @param {string} yes @returns {Promise<boolean>} */
function sure(title, remark, yes) {
  const dialog = byId("ask-dialog");
  byId("ask-title").textContent = title;
  byId("ask-remark").textContent = remark;
  byId("ask-yes").textContent = yes;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
