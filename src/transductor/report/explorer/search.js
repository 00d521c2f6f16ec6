// "Break it": the shortest word found on which the learned head is wrong, and what is known of shorter ones.
import { distance } from "./heads.js";
import { LONGEST } from "./runs.js";

/** @typedef {import("./heads.js").Explored} Explored */
/**
 * @typedef {object} Breaking
 * @property {number[] | null} word A word on which the head is wrong, checked from its first letter.
 * @property {string} kind What kind of word it is.
 * @property {number} triedTo Every word of at most so many letters was tried.
 * @property {number} tried How many words these were; words that lead to the same numbers count once.
 * @property {boolean} shortest Whether no shorter word is wrong.
 * @property {string[]} kinds The kinds of long words that were tried, and to what length.
 */

const MOST_WORDS = 1 << 15; // tried one by one
const MOST_PER_STATE = 3; // states of the head kept for each state of the machine
const MOST_PRODUCTS = 4e8; // multiplications of the search among drifting words
const MOST_PAIRS = 45; // alternations of two letters
const SLICE = 256;
const NOWHERE = { state: new Float64Array(0), previous: new Float64Array(0) };

/**
 * Look for a wrong word; yields now and then so that the page stays awake, and returns what is known.
 * @param {Explored} model
 * @returns {Generator<string, Breaking, void>}
 */
export function* breaking(model) {
  if (!model.judges) throw new Error("nothing says what is right");
  const short = yield* everyShortWord(model);
  if (short.word !== null) return { ...short, kind: "of all words", shortest: true, kinds: [] };
  /** @type {{word: number[] | null, kind: string}} */
  let best = { word: null, kind: "" };
  const kinds = [];
  const letters = model.plain.letters.map((_, letter) => letter);
  const powers = letters.map((letter) => [letter]);
  const pairs = letters.flatMap((one) => letters.flatMap((other) => (other === one ? [] : [[one, other]])));
  for (const block of [...powers, ...pairs.slice(0, MOST_PAIRS)]) {
    if (!allowed(model, block)) continue;
    const most = best.word === null ? LONGEST : best.word.length - 1;
    yield `trying (${model.spelled(block)})ⁿ to ${most} letters`;
    const length = yield* firstWrongOf(model, block, most);
    kinds.push(`(${model.spelled(block)})ⁿ: ${length ? `wrong after ${length}` : `right to ${most}`}`);
    if (length) best = { word: spelledOut(block, length), kind: `(${model.spelled(block)})ⁿ` };
  }
  const drifting = yield* driftingWord(model, best.word === null ? 2000 : best.word.length - 1);
  if (drifting !== null) best = { word: drifting, kind: "the way that drifts most" };
  const checked = best.word !== null && isWrong(model, best.word) ? best.word : null;
  const shortest = checked !== null && checked.length === short.triedTo + 1;
  return { ...short, word: checked, kind: best.kind, shortest, kinds };
}

/**
 * Whether a word is wrong after its last letter, computed from its first.
 * @param {Explored} model
 * @param {number[]} word
 */
export function isWrong(model, word) {
  const at = model.soft.begun();
  let state = model.judge?.start ?? 0;
  for (const letter of word) {
    model.soft.step(at, letter);
    state = model.judge?.transitions[state][letter] ?? 0;
  }
  const right = model.right(state);
  return right !== null && model.says(at) !== right;
}

/**
 * Whether the letters of a block may follow each other for ever.
 * @param {Explored} model
 * @param {number[]} block
 */
function allowed(model, block) {
  const { follows, letters } = model.plain;
  if (follows === null) return true;
  return Boolean(
    follows[letters.length][block[0]] &&
      block.every((letter, place) => follows[letter][block[(place + 1) % block.length]]),
  );
}

/**
 * Try all words, shorter ones first, until there are too many; words that lead to the same numbers are tried once.
 * @param {Explored} model
 * @returns {Generator<string, {word: number[] | null, triedTo: number, tried: number}, void>}
 */
function* everyShortWord(model) {
  const letters = model.plain.letters.length;
  const { follows } = model.plain;
  const machine = model.judge;
  if (machine === null) return { word: null, triedTo: 0, tried: 0 };
  /** @typedef {{at: import("./heads.js").HeadState, state: number, letter: number, before: number}} Node */
  /** @type {Node[]} */
  const nodes = [{ at: model.soft.begun(), state: machine.start, letter: letters, before: -1 }];
  const seen = new Set();
  let [begin, triedTo, tried] = [0, 0, 0];
  for (;;) {
    const end = nodes.length;
    for (let number = begin; number < end; number++) {
      for (let letter = 0; letter < letters; letter++) {
        const node = nodes[number];
        if (follows !== null && !follows[node.letter][letter]) continue;
        const at = { state: node.at.state.slice(), previous: node.at.previous.slice() };
        model.soft.step(at, letter);
        const state = machine.transitions[node.state][letter];
        const previous = model.soft.showsPrevious ? at.previous.join() : "";
        const key = `${state}|${follows === null ? "" : letter}|${at.state.join()}|${previous}`;
        if (seen.has(key)) continue;
        seen.add(key);
        tried++;
        nodes.push({ at, state, letter, before: number });
        const right = model.right(state);
        if (right !== null && model.says(at) !== right) {
          const word = [];
          for (let place = nodes.length - 1; place > 0; place = nodes[place].before) word.push(nodes[place].letter);
          word.reverse();
          if (isWrong(model, word)) return { word, triedTo, tried };
        }
        if (tried % SLICE === 0) yield `tried all words to ${triedTo} letters, ${tried} in all`;
        if (nodes.length > MOST_WORDS) return { word: null, triedTo, tried };
      }
    }
    triedTo++;
    if (nodes.length === end) return { word: null, triedTo: Infinity, tried };
    begin = end;
  }
}

/**
 * Return the first length at which the repetition of a block is wrong, 0 if none is.
 * @param {Explored} model
 * @param {number[]} block
 * @param {number} most
 * @returns {Generator<string, number, void>}
 */
function* firstWrongOf(model, block, most) {
  const at = model.soft.begun();
  let state = model.judge?.start ?? 0;
  for (let length = 1; length <= most; length++) {
    const letter = block[(length - 1) % block.length];
    model.soft.step(at, letter);
    state = model.judge?.transitions[state][letter] ?? 0;
    const right = model.right(state);
    if (right !== null && model.says(at) !== right) return length;
    if (length % 2048 === 0) yield `(${model.spelled(block)})ⁿ: ${length} letters`;
  }
  return 0;
}

/**
 * @param {number[]} block
 * @param {number} length
 */
function spelledOut(block, length) {
  return Array.from({ length }, (_, place) => block[place % block.length]);
}

/**
 * Go breadth-first through the machine's states, keeping for each the few words on which the head has drifted most.
 * @param {Explored} model
 * @param {number} most
 * @returns {Generator<string, number[] | null, void>}
 */
function* driftingWord(model, most) {
  const machine = model.judge;
  const { view, plain } = model;
  if (machine === null || !view.points.length || most < 1) return null;
  const letters = plain.letters.length;
  const own = model.machine ?? machine; // whose states have representatives
  /** @typedef {{at: import("./heads.js").HeadState, state: number, own: number, letter: number, drift: number,
   *   before: Node | null}} Node */
  /** @type {Node[]} */
  let level = [
    { at: model.soft.begun(), state: machine.start, own: own.start, letter: letters, drift: 0, before: null },
  ];
  let products = 0;
  for (let length = 1; length <= most; length++) {
    /** @type {Map<number, Node[]>} */
    const next = new Map();
    for (const node of level) {
      for (let letter = 0; letter < letters; letter++) {
        if (plain.follows !== null && !plain.follows[node.letter][letter]) continue;
        const at = { state: node.at.state.slice(), previous: node.at.previous.slice() };
        model.soft.step(at, letter);
        const state = machine.transitions[node.state][letter];
        const right = model.right(state);
        const place = own.transitions[node.own][letter];
        const drift = distance(view.coordinates(at.state), view.points[place]);
        const reached = { at, state, own: place, letter, drift, before: node };
        if (right !== null && model.says(at) !== right) {
          const word = wordOf(reached);
          if (isWrong(model, word)) return word;
        }
        const rivals = next.get(state) ?? [];
        rivals.push(reached);
        rivals.sort((one, other) => other.drift - one.drift);
        next.set(state, rivals.slice(0, MOST_PER_STATE));
        products += model.soft.size * (model.soft.size + view.rank);
      }
      node.at = NOWHERE; // only its letter is needed from here on
    }
    level = [...next.values()].flat();
    if (products > MOST_PRODUCTS) return null;
    if (length % 8 === 0) yield `among words of ${length} letters, those that drift most`;
  }
  return null;
}

/**
 * @param {{letter: number, before: any}} node
 * @returns {number[]}
 */
function wordOf(node) {
  const word = [];
  for (let each = node; each.before !== null; each = each.before) word.push(each.letter);
  return word.reverse();
}
