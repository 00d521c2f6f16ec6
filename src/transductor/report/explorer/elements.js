// The page's elements by their ids, small elements made by hand, and work in slices.

/**
 * Return the element of the page with this id.
 * @template {Element} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return element;
}

/**
 * Return an element that holds a text and further elements; the text is text, whatever is in it.
 * @param {string} tag
 * @param {string} [text]
 * @param {string} [className]
 * @param {Node[]} [children]
 */
export function made(tag, text = "", className = "", children = []) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** @param {string} id */
export const paragraph = (id) => byId(id, HTMLParagraphElement);

/** @type {Map<string, number>} */
const current = new Map();
const SLICE = 12; // milliseconds

/**
 * Do a piece of work in slices between which the page answers; a new one of the same name ends the old one.
 * @param {string} name
 * @param {(milliseconds: number) => boolean} advance Does some of it; returns whether it is finished.
 * @param {(finished: boolean) => void} seen Called after every few slices, and at the end.
 */
export function inSlices(name, advance, seen) {
  const turn = (current.get(name) ?? 0) + 1;
  current.set(name, turn);
  let slices = 0;
  const go = () => {
    if (current.get(name) !== turn) return;
    const finished = advance(SLICE);
    if (finished || ++slices % 8 === 0) seen(finished);
    if (!finished) setTimeout(go, 0);
  };
  go();
}

/**
 * End the work of this name.
 * @param {string} name
 */
export function stopped(name) {
  current.set(name, (current.get(name) ?? 0) + 1);
}
