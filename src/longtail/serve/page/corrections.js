/** Texts with the labels that the user kept, added or rejected, stored in this browser until they are cleared. */

const PLACE = "longtail.corrections";

/** @typedef {{id: string, text: string, kept: string[], rejected: string[]}} Row */

/** Fires `change`, also for changes made in another tab, and `full` when the browser's storage is full. */
export class Corrections extends EventTarget {
  /** @type {Row[]} */
  #rows = read();
  /** @type {string | null} */
  #current = null;

  constructor() {
    super();
    addEventListener("storage", (event) => {
      if (event.key !== PLACE && event.key !== null) return;
      this.#rows = read();
      this.#tell();
    });
  }

  get rows() {
    return this.#rows;
  }

  /** The row of the current text, if it has one. */
  get current() {
    return this.#rows.find((row) => row.id === this.#current) ?? null;
  }

  /** Switch to another text, and to its row if it has one. @param {string} text */
  show(text) {
    this.#current = this.#rows.find((row) => row.text === text)?.id ?? null;
    this.#tell();
  }

  /** The current text was edited: update its row. @param {string} text */
  edit(text) {
    this.#refresh();
    const row = this.current;
    if (row) this.#write(this.#rows.map((one) => (one.id === row.id ? { ...row, text } : one)));
    else this.show(text);
  }

  /** @param {string} name @returns {"kept" | "rejected" | null} */
  verdict(name) {
    const row = this.current;
    if (row?.kept.includes(name)) return "kept";
    return row?.rejected.includes(name) ? "rejected" : null;
  }

  /**
   * Decide about a label of the text that is shown.
   *
   * @param {string} text
   * @param {string} name
   * @param {"kept" | "rejected" | null} verdict null takes a decision back
   */
  decide(text, name, verdict) {
    this.#refresh();
    const before = this.current ?? { id: newId(), text, kept: [], rejected: [] };
    const kept = before.kept.filter((one) => one !== name);
    const rejected = before.rejected.filter((one) => one !== name);
    if (verdict === "kept") kept.push(name);
    if (verdict === "rejected") rejected.push(name);
    const row = { ...before, text, kept, rejected };
    const others = this.#rows.filter((one) => one.id !== row.id);
    const at = this.#rows.findIndex((one) => one.id === row.id);
    if (kept.length || rejected.length) others.splice(at < 0 ? others.length : at, 0, row);
    this.#current = row.id;
    this.#write(others);
  }

  /** @param {string} id @returns {Row | undefined} the removed row */
  remove(id) {
    this.#refresh();
    const row = this.#rows.find((one) => one.id === id);
    this.#write(this.#rows.filter((one) => one.id !== id));
    return row;
  }

  clear() {
    this.#write([]);
  }

  /** Rows with rejections only: `longtail update` keeps their other labels, `longtail train` takes them as rows without labels. */
  get rejecting() {
    return this.#rows.filter(({ kept }) => !kept.length);
  }

  /** The rows as JSONL for `longtail update`. */
  toJsonl() {
    return this.#rows
      .map(({ text, kept, rejected }) => `${JSON.stringify({ text, labels: kept, rejected })}\n`)
      .join("");
  }

  /** Reload first, because another tab may have changed the rows. */
  #refresh() {
    const kept = localStorage.getItem(PLACE);
    if (kept !== null) this.#rows = read();
  }

  /** @param {Row[]} rows */
  #write(rows) {
    this.#rows = rows;
    try {
      localStorage.setItem(PLACE, JSON.stringify(rows));
    } catch {
      this.dispatchEvent(new Event("full"));
    }
    this.#tell();
  }

  #tell() {
    this.dispatchEvent(new Event("change"));
  }
}

/** @returns {Row[]} */
function read() {
  try {
    const rows = JSON.parse(localStorage.getItem(PLACE) ?? "[]");
    return Array.isArray(rows) ? rows.filter(isRow) : [];
  } catch {
    return [];
  }
}

/** @param {any} row @returns {row is Row} */
function isRow(row) {
  const isNames = (/** @type {any} */ names) =>
    Array.isArray(names) && names.every((name) => typeof name === "string" && name);
  return typeof row?.id === "string" && typeof row.text === "string" && isNames(row.kept) && isNames(row.rejected);
}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(2)), (part) => part.toString(36)).join("");
}
