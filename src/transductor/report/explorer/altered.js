// A head whose numbers are altered on purpose: how much error does it take to be wrong after how many letters?
import { stepped } from "./heads.js";
import { randomNumbers } from "./numbers.js";

/** @typedef {import("./heads.js").Explored} Explored */
/** @typedef {import("./heads.js").PlainMachine} PlainMachine */

/** A head whose numbers were altered on purpose: the hardened one with its angles off, or the learned one. */
export class AlteredHead {
  /**
   * @param {Explored} model
   * @param {number} error Relative: every angle of a permutation, or every number of a table, is off by about this.
   */
  constructor(model, error) {
    const { twin, soft } = model;
    this.model = model;
    this.turns = twin !== null && isGroupMachine(twin);
    this.size = this.turns && twin !== null ? twin.transitions.length : soft.size;
    if (this.turns && twin !== null) {
      this.table = turnedTable(twin, error);
      this.state = new Float64Array(this.size);
      this.state[twin.start] = 1;
    } else {
      const random = randomNumbers(1);
      this.table = soft.table.map((value) => value * (1 + error * (2 * (random(1 << 30) / (1 << 30)) - 1)));
      this.state = soft.start.slice();
    }
    this.at = { state: this.state, previous: this.turns ? new Float64Array(this.size) : soft.before.slice() };
  }

  /** @param {number} letter */
  step(letter) {
    stepped(this.at, this.table, this.size, letter, false);
  }

  /** Return what it says, as the learned head would: a label or the number of a state. */
  says() {
    if (!this.turns) return this.model.says(this.at);
    let best = 0;
    const { state } = this.at;
    for (let place = 1; place < this.size; place++) if (state[place] > state[best]) best = place;
    const { twin } = this.model;
    return this.model.reads === "states" ? (this.model.same[best] ?? -1) : (twin?.labels[best] ?? -1);
  }
}

/**
 * Whether every letter permutes the states.
 * @param {PlainMachine} machine
 */
export function isGroupMachine(machine) {
  const letters = machine.transitions[0]?.length ?? 0;
  for (let letter = 0; letter < letters; letter++) {
    if (new Set(machine.transitions.map((row) => row[letter])).size !== machine.transitions.length) return false;
  }
  return true;
}

/**
 * Return the permutations of a machine with every angle θ of their eigenvalues turned to (1 + error) θ.
 *
 * On a cycle of n states the eigenvalues are exp(2πik/n); the matrix with these angles multiplied is again real and
 * moves a state by 1 + error places, spread over the cycle.
 * @param {PlainMachine} machine
 * @param {number} error
 * @returns {Float64Array}
 */
export function turnedTable(machine, error) {
  const size = machine.transitions.length;
  const letters = machine.transitions[0]?.length ?? 0;
  const table = new Float64Array(letters * size * size);
  for (let letter = 0; letter < letters; letter++) {
    const seen = new Uint8Array(size);
    for (let first = 0; first < size; first++) {
      if (seen[first]) continue;
      const cycle = [];
      for (let state = first; !seen[state]; state = machine.transitions[state][letter]) {
        seen[state] = 1;
        cycle.push(state);
      }
      const length = cycle.length;
      for (let shift = 0; shift < length; shift++) {
        const value = turned(1 + error - shift, length);
        for (let place = 0; place < length; place++) {
          const to = cycle[(place + shift) % length];
          table[(letter * size + to) * size + cycle[place]] = length === 1 ? 1 : value;
        }
      }
    }
  }
  return table;
}

/**
 * Return (1/n) Σ_k cos(2πk·gap/n) over the n angles around zero.
 * @param {number} gap
 * @param {number} length
 */
function turned(gap, length) {
  let sum = 0;
  for (let k = 0; k < length; k++) {
    const turn = k <= (length - 1) / 2 ? k : k - length;
    sum += Math.cos((2 * Math.PI * turn * gap) / length);
  }
  return sum / length;
}
