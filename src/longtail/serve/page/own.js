/** The user's own labels of the text: kept and added ones. */

import { announce } from "./announce.js";
import { Chooser } from "./chooser.js";
import { byId, el, fill, icon } from "./dom.js";
import { counted } from "./format.js";
import { modelAt, state } from "./state.js";

export class Own {
  #place = byId("own");

  /** @param {import("./corrections.js").Corrections} corrections */
  constructor(corrections) {
    this.corrections = corrections;
    this.chooser = new Chooser("Add a label that is missing", () => modelAt(0)?.name, (name) => this.#add(name));
    this.chips = el("ul", { class: "chosen" });
    this.note = el("p", { class: "note" });
    fill(
      this.#place,
      el("h2", { id: "own-title", text: "Your labels for this text" }),
      this.chips,
      this.note,
      this.chooser.element,
    );
    corrections.addEventListener("change", () => this.show());
    this.show();
  }

  show() {
    const row = this.corrections.current;
    const canDecide = Boolean(state.text.trim()) && modelAt(0)?.has_names !== false;
    this.#place.hidden = !canDecide;
    fill(
      this.chips,
      (row?.kept ?? []).map((name) =>
        el(
          "li",
          {},
          el("bdi", { text: name }),
          el(
            "button",
            { type: "button", class: "remove", "aria-label": `Remove ${name}`, on: { click: () => this.#remove(name) } },
            icon("reject"),
          ),
        ),
      ),
    );
    this.chips.hidden = !row?.kept.length;
    if (row) {
      fill(
        this.note,
        `${counted(row.kept.length, "label")} kept, ${row.rejected.length} rejected. `,
        el("a", { href: "#/corrections", text: "This text is in your corrections." }),
      );
    } else {
      fill(this.note, "Keep or reject predicted labels, and the text is added to your corrections.");
    }
  }

  /** @param {string} name */
  #add(name) {
    this.corrections.decide(state.text, name, "kept");
    announce(`${name} added`);
  }

  /** @param {string} name */
  #remove(name) {
    this.corrections.decide(state.text, name, null);
    this.chooser.input.focus();
    announce(`${name} removed`);
  }
}
