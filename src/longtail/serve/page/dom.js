/** Create elements. Data is always inserted as text, never as HTML. */

const ICONS = {
  keep: "M3.5 8.5l3 3 6-7",
  reject: "M4 4l8 8M12 4l-8 8",
  open: "M6 4l4 4-4 4",
};

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Create an element. `class`, `text`, `data` and `on` (event listeners) are special; other properties are attributes, and those that are
 * null or false are left out.
 *
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...solid(children));
  return element;
}

/**
 * Replace the children of an element.
 *
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...solid(children));
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function solid(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/**
 * A small SVG icon, hidden from screen readers.
 *
 * @param {keyof typeof ICONS} name
 */
export function icon(name) {
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", ICONS[name]);
  drawing.append(line);
  return drawing;
}

/**
 * An element of index.html.
 *
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no #${id}`);
  return element;
}

/**
 * Debounce a function by some milliseconds.
 *
 * @param {() => void} act
 * @param {number} milliseconds
 */
export function later(act, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
}
