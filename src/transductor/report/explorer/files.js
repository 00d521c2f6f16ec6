// Automata from files: JFLAP's .jff and AT&T text. Every error names the file and, where there is one, the line.

import { parsedXml } from "./xml.js";

/** @typedef {import("./machines.js").Arcs} Arcs */
/** @typedef {Arcs & {notes: string[]}} Read */

const MOST_BYTES = 2_000_000;
const MOST_STATES = 2000;

/**
 * Return the automaton in a file, by what is written in it.
 * @param {string} name
 * @param {string} text
 * @returns {Read}
 */
export function parsedFile(name, text) {
  if (text.length > MOST_BYTES) throw new Error(`${name}: more than ${MOST_BYTES / 1e6} MB`);
  try {
    return text.trimStart().startsWith("<") ? parsedJflap(text) : parsedAtt(text);
  } catch (error) {
    throw new Error(`${name}: ${error instanceof Error ? error.message : error}`);
  }
}

/**
 * Return the acceptor in AT&T text: lines `from to label [label] [weight]` and `state [weight]`, the start first.
 * @param {string} text
 * @returns {Read}
 */
export function parsedAtt(text) {
  const rows = text
    .split("\n")
    .map((line, number) => ({ line: number + 1, fields: line.trim().split(/[ \t]+/).filter(Boolean) }))
    .filter((row) => row.fields.length);
  if (!rows.length) throw new Error("no line holds anything");
  for (const { line, fields } of rows) {
    if (fields.length > 5) throw new Error(`line ${line}: a line has at most 5 fields; got ${fields.length}`);
    for (const state of fields.slice(0, fields.length > 2 ? 2 : 1)) {
      if (!/^\d{1,9}$/.test(state)) throw new Error(`line ${line}: a state must be a whole number; got "${state}"`);
    }
  }
  const arcs = rows.filter((row) => row.fields.length > 2);
  const paired = hasTwoLabels(arcs);
  const numbers = arcs.every((row) => /^\d+$/.test(row.fields[2]));
  const states = new States();
  states.number(rows[0].fields[0]);
  /** @type {Set<string>} */
  const letters = new Set();
  let weighted = false;
  /** @type {Arcs["arcs"]} */
  const read = [];
  /** @type {number[]} */
  const accepting = [];
  for (const { line, fields } of rows) {
    const weight = fields.length <= 2 ? fields[1] : fields[paired ? 4 : 3];
    if (weight !== undefined) {
      if (!isWeight(weight)) throw new Error(`line ${line}: a weight must be a number; got "${weight}"`);
      weighted ||= Number(weight) !== 0;
    }
    const kept = weight === undefined || !/inf/i.test(weight);
    if (fields.length <= 2) {
      const state = states.number(fields[0]);
      if (kept) accepting.push(state);
      continue;
    }
    if (paired && fields[2] !== fields[3]) {
      throw new Error(`line ${line}: a transducer from "${fields[2]}" to "${fields[3]}"; only acceptors can be read`);
    }
    const letter = numbers ? (Number(fields[2]) === 0 ? null : fields[2]) : /^(<eps>|<epsilon>|ε)$/.test(fields[2]) ? null : fields[2];
    if (letter !== null) letters.add(letter);
    const [from, to] = [states.number(fields[0]), states.number(fields[1])];
    if (kept) read.push([from, letter, to]);
  }
  const notes = weighted ? ["The weights are left out: this is the language of the words that have a path."] : [];
  return { states: states.count, arcs: read, start: [0], accepting, letters: sorted(letters), notes };
}

/** @param {string} text */
function isWeight(text) {
  return /^[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|inf(inity)?)$/i.test(text);
}

/**
 * Whether arcs have two labels: 3 or 4 fields with one, the last a weight; 4 or 5 with two.
 * @param {{line: number, fields: string[]}[]} arcs
 */
function hasTwoLabels(arcs) {
  const three = arcs.find((row) => row.fields.length === 3);
  const five = arcs.find((row) => row.fields.length === 5);
  if (three && five) throw new Error(`line ${three.line}: some arcs have one label, others have two`);
  if (three || five || !arcs.length) return Boolean(five);
  const repeated = arcs.every((row) => row.fields[2] === row.fields[3]);
  const weighted = arcs.every((row) => isWeight(row.fields[3]));
  if (repeated && weighted) {
    throw new Error(`line ${arcs[0].line}: the fourth field may be a second label or a weight; write all five fields`);
  }
  return !weighted;
}

/**
 * Return the finite automaton in a JFLAP file.
 * @param {string} text
 * @returns {Read}
 */
export function parsedJflap(text) {
  const root = parsedXml(text);
  if (root.tag !== "structure") throw new Error(`line ${root.line}: the root must be <structure>; got <${root.tag}>`);
  const kind = root.children.find((child) => child.tag === "type")?.text.trim();
  if (kind !== "fa") throw new Error(`only finite automata, of type "fa", can be read; got "${kind ?? "no type"}"`);
  const parts = (root.children.find((child) => child.tag === "automaton") ?? root).children;
  const states = new States();
  /** @type {number[]} */
  const starts = [];
  /** @type {number[]} */
  const accepting = [];
  for (const { attributes, children, line } of parts.filter((part) => part.tag === "state")) {
    const id = attributes.get("id") ?? "";
    if (!/^\d{1,9}$/.test(id)) throw new Error(`line ${line}: a state's id must be a whole number; got "${id}"`);
    if (states.has(id)) throw new Error(`line ${line}: state ${id} is there twice`);
    const number = states.number(id);
    if (children.some((child) => child.tag === "initial")) starts.push(number);
    if (children.some((child) => child.tag === "final")) accepting.push(number);
  }
  if (starts.length !== 1) throw new Error(`one state must be initial; ${starts.length} are`);
  /** @type {Set<string>} */
  const letters = new Set();
  /** @type {Arcs["arcs"]} */
  const arcs = [];
  for (const { children, line } of parts.filter((part) => part.tag === "transition")) {
    const said = (/** @type {string} */ tag) => children.find((child) => child.tag === tag)?.text ?? "";
    const [from, to] = ["from", "to"].map((tag) => {
      const id = said(tag).trim();
      if (!/^\d{1,9}$/.test(id) || !states.has(id)) {
        throw new Error(`line ${line}: a transition is ${tag} "${id}", and there is no such state`);
      }
      return states.number(id);
    });
    const read = said("read");
    if (Array.from(read).length > 1) throw new Error(`line ${line}: an arc reads one character, or none for ε; got "${read}"`);
    if (read) letters.add(read);
    arcs.push([from, read || null, to]);
  }
  return { states: states.count, arcs, start: starts, accepting, letters: sorted(letters), notes: [] };
}

/** Numbers states in the order in which they are met. */
class States {
  constructor() {
    /** @type {Map<string, number>} */
    this.places = new Map();
  }

  get count() {
    return this.places.size;
  }

  /** @param {string} name */
  has(name) {
    return this.places.has(String(Number(name)));
  }

  /** @param {string} name */
  number(name) {
    const key = String(Number(name));
    const known = this.places.get(key);
    if (known !== undefined) return known;
    if (this.places.size >= MOST_STATES) throw new Error(`more than ${MOST_STATES} states`);
    this.places.set(key, this.places.size);
    return this.places.size - 1;
  }
}

/** @param {Set<string>} letters */
function sorted(letters) {
  const all = [...letters];
  const numbers = all.every((letter) => /^\d+$/.test(letter));
  return all.sort((one, other) => (numbers ? Number(one) - Number(other) : one < other ? -1 : 1));
}
