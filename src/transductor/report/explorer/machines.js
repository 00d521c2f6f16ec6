// Finite automata in the page: from arcs to the smallest machine, its monoid and its matrices.

/**
 * @typedef {object} Arcs An automaton as it was written; a letter of null reads nothing.
 * @property {number} states
 * @property {[number, string | null, number][]} arcs
 * @property {number[]} start
 * @property {number[]} accepting
 * @property {string[]} letters
 */
/**
 * @typedef {object} Machine A complete deterministic machine.
 * @property {string[]} letters
 * @property {number[][]} transitions `transitions[state][letter]` is the next state.
 * @property {boolean[]} accepting
 * @property {number} start
 */
/**
 * @typedef {object} Algebra What is known of the transformations that words are.
 * @property {number} size How many there are, that of the empty word included.
 * @property {boolean} group Whether each can be undone.
 * @property {boolean} commutative
 * @property {boolean} aperiodic Whether no word's powers go round: the language is star-free.
 * @property {string} name What group it is, where that is easily said.
 */

export const MOST_STATES = 2000;
export const MOST_ELEMENTS = 5000;

/**
 * Return the smallest complete machine of a language, states numbered as words reach them.
 * @param {Arcs} arcs
 * @returns {Machine}
 */
export function smallest(arcs) {
  return minimised(determinised(arcs));
}

/**
 * @param {Arcs} automaton
 * @returns {Machine}
 */
export function determinised(automaton) {
  const { states, arcs, letters } = automaton;
  /** @type {number[][]} */
  const free = Array.from({ length: states }, () => []);
  /** @type {Map<string, number>} */
  const number = new Map(letters.map((letter, place) => [letter, place]));
  /** @type {number[][][]} */
  const reads = Array.from({ length: states }, () => letters.map(() => []));
  for (const [from, letter, to] of arcs) {
    if (letter === null) free[from].push(to);
    else reads[from][number.get(letter) ?? 0].push(to);
  }
  /** @param {Iterable<number>} some */
  const closed = (some) => {
    const all = new Set(some);
    for (const state of all) for (const next of free[state]) all.add(next);
    return [...all].sort((one, other) => one - other);
  };
  const final = new Set(automaton.accepting);
  const sets = [closed(automaton.start)];
  const numbers = new Map([[sets[0].join(), 0]]);
  const transitions = [];
  for (let place = 0; place < sets.length; place++) {
    transitions.push(
      letters.map((_, letter) => {
        const next = closed(sets[place].flatMap((state) => reads[state][letter]));
        const key = next.join();
        const known = numbers.get(key);
        if (known !== undefined) return known;
        if (sets.length >= MOST_STATES) throw new Error(`more than ${MOST_STATES} deterministic states are needed`);
        numbers.set(key, sets.length);
        return sets.push(next) - 1;
      }),
    );
  }
  return { letters, transitions, accepting: sets.map((set) => set.some((state) => final.has(state))), start: 0 };
}

/**
 * @param {Machine} machine
 * @returns {Machine}
 */
export function minimised(machine) {
  const { transitions, letters } = machine;
  let classes = machine.accepting.map(Number);
  let count = new Set(classes).size;
  for (;;) {
    /** @type {Map<string, number>} */
    const numbers = new Map();
    const refined = transitions.map((row, state) => {
      const key = `${classes[state]}|${row.map((next) => classes[next]).join()}`;
      if (!numbers.has(key)) numbers.set(key, numbers.size);
      return numbers.get(key) ?? 0;
    });
    classes = refined;
    if (numbers.size === count) break;
    count = numbers.size;
  }
  const order = [classes[machine.start]];
  const place = new Map([[order[0], 0]]);
  const first = new Map(classes.map((each, state) => /** @type {[number, number]} */ ([each, state])).reverse());
  const table = [];
  for (let number = 0; number < order.length; number++) {
    const state = first.get(order[number]) ?? 0;
    table.push(
      transitions[state].map((next) => {
        const known = place.get(classes[next]);
        if (known !== undefined) return known;
        place.set(classes[next], order.length);
        return order.push(classes[next]) - 1;
      }),
    );
  }
  return { letters, transitions: table, accepting: order.map((each) => machine.accepting[first.get(each) ?? 0]), start: 0 };
}

/**
 * Return what is known of the syntactic monoid of a machine, null where it has more than `MOST_ELEMENTS` elements.
 * @param {Machine} machine The smallest of its language.
 * @returns {Algebra | null}
 */
export function algebra(machine) {
  const { transitions, letters } = machine;
  const moves = letters.map((_, letter) => transitions.map((row) => row[letter]));
  const identity = transitions.map((_, state) => state);
  const elements = [identity];
  const seen = new Set([identity.join()]);
  for (let place = 0; place < elements.length; place++) {
    for (const move of moves) {
      const next = elements[place].map((state) => move[state]);
      const key = next.join();
      if (seen.has(key)) continue;
      if (elements.length >= MOST_ELEMENTS) return null;
      seen.add(key);
      elements.push(next);
    }
  }
  const group = moves.every((move) => new Set(move).size === move.length);
  const commutative = moves.every((one) => moves.every((other) => one.every((to, s) => other[to] === one[other[s]])));
  const periods = elements.map(period);
  return {
    size: elements.length,
    group,
    commutative,
    aperiodic: periods.every((each) => each === 1),
    name: group ? groupName(elements.length, commutative, periods) : "",
  };
}

/**
 * Return after how many further powers a transformation comes round.
 * @param {number[]} move
 */
function period(move) {
  const seen = new Map();
  let power = move;
  for (let count = 0; ; count++) {
    const key = power.join();
    if (seen.has(key)) return count - seen.get(key);
    seen.set(key, count);
    power = power.map((state) => move[state]);
  }
}

/**
 * @param {number} size
 * @param {boolean} commutative
 * @param {number[]} orders
 */
function groupName(size, commutative, orders) {
  if (size === 1) return "trivial";
  if (orders.some((order) => order === size)) return `cyclic, Z${size}`;
  if (commutative) return "commutative, not cyclic";
  // The numbers of elements of each order tell these from all other groups of their size.
  const twos = orders.filter((order) => order === 2).length;
  const counts = orders.reduce((all, order) => all.set(order, (all.get(order) ?? 0) + 1), new Map());
  if (size === 6) return "S3";
  if (size === 12 && counts.get(3) === 8) return "A4";
  if (size === 24 && counts.get(4) === 6 && counts.get(3) === 8 && twos === 9) return "S4";
  if (size === 60 && counts.get(5) === 24) return "A5";
  if (size === 120 && counts.get(6) === 20 && counts.get(5) === 24 && twos === 25) return "S5";
  return "";
}

/**
 * Return the matrices of a machine: `matrix[to][from]` is 1 where the letter leads there.
 * @param {Machine} machine
 * @param {number} letter
 * @returns {number[][]}
 */
export function matrixOf(machine, letter) {
  return machine.transitions.map((_, to) => machine.transitions.map((row) => (row[letter] === to ? 1 : 0)));
}

/**
 * Return the shortest accepted word as numbers of letters; null where none is.
 * @param {Machine} machine
 * @returns {number[] | null}
 */
export function shortestAccepted(machine) {
  /** @type {{state: number, word: number[]}[]} */
  const queue = [{ state: machine.start, word: [] }];
  const seen = new Set([machine.start]);
  for (const { state, word } of queue) {
    if (machine.accepting[state]) return word;
    machine.transitions[state].forEach((next, letter) => {
      if (!seen.has(next)) {
        seen.add(next);
        queue.push({ state: next, word: [...word, letter] });
      }
    });
  }
  return null;
}
