// The learned head, its hardened twin and an altered head, one letter at a time.
import { decodedArray } from "./numbers.js";

/** @typedef {import("./numbers.js").PlainArray} PlainArray */
/**
 * A machine: `transitions[state][letter]` is the next state; a label of null is none.
 * @typedef {{transitions: number[][], labels: (number | null)[], start: number, sink: number | null}} PlainMachine
 */
/**
 * What the page holds of a model; portraits/explored.py says what each field means.
 * @typedef {object} PlainModel
 * @property {string} name
 * @property {string} title
 * @property {string[]} letters
 * @property {string[] | null} classes
 * @property {boolean} empty_word
 * @property {number[][] | null} follows
 * @property {{table: PlainArray, start: PlainArray, before: PlainArray, shows_previous: boolean,
 *   weight: PlainArray | null, bias: PlainArray | null}} head
 * @property {{root: PlainArray, plane: PlainArray, offset: number[], share: number}} view
 * @property {PlainMachine | null} twin
 * @property {PlainArray | null} representatives
 * @property {boolean} up_to_scale
 * @property {string} summary
 * @property {string} refusal
 * @property {PlainMachine | null} target
 * @property {string} target_name
 * @property {number[] | null} separating_word
 * @property {number | null} trained_length
 * @property {{of: string, verdict: string, claim: string, method: string, margin: number | null,
 *   assumptions: string[], covers: string[], numbers: Record<string, string>, file: string, sha256: string}[]} certificates
 * @property {{bands: string[], counts: number[],
 *   rows: {name: string, kind: string, shares: number[], low: number[], high: number[]}[]} | null} accuracy
 * @property {string[]} notes
 */
/** @typedef {{state: Float64Array, previous: Float64Array}} HeadState */

/** The head as it was trained: products of its matrices, rounded to its own precision after every letter. */
export class SoftHead {
  /** @param {PlainModel} model */
  constructor(model) {
    const { head } = model;
    const [letters, size] = head.table.shape;
    /** @type {number} */
    this.letters = letters ?? 0;
    /** @type {number} */
    this.size = size ?? 0;
    this.single = head.table.dtype === "float32";
    this.table = Float64Array.from(decodedArray(head.table));
    this.start = Float64Array.from(decodedArray(head.start));
    this.before = Float64Array.from(decodedArray(head.before));
    this.showsPrevious = head.shows_previous;
    this.weight = head.weight === null ? null : Float64Array.from(decodedArray(head.weight));
    this.bias = head.bias === null ? null : Float64Array.from(decodedArray(head.bias));
  }

  /** How many numbers a position is read as; 0 where nothing reads the state. */
  get outputs() {
    return this.bias === null ? 0 : this.bias.length;
  }

  /** @returns {HeadState} */
  begun() {
    return { state: this.start.slice(), previous: this.before.slice() };
  }

  /**
   * Take a letter; what was the state becomes the previous one.
   * @param {HeadState} at
   * @param {number} letter
   */
  step(at, letter) {
    stepped(at, this.table, this.size, letter, this.single);
  }

  /**
   * Return what is read off a state: one number for each class.
   * @param {HeadState} at
   * @returns {number[]}
   */
  read(at) {
    if (this.weight === null || this.bias === null) return [];
    const width = this.showsPrevious ? 2 * this.size : this.size;
    const values = [];
    for (let row = 0; row < this.bias.length; row++) {
      let sum = this.bias[row];
      for (let column = 0; column < this.size; column++) sum += this.weight[row * width + column] * at.state[column];
      if (this.showsPrevious) {
        for (let column = 0; column < this.size; column++) {
          sum += this.weight[row * width + this.size + column] * at.previous[column];
        }
      }
      values.push(sum);
    }
    return values;
  }

  /**
   * Return the label of a state, -1 where it has left the range of numbers.
   * @param {HeadState} at
   */
  label(at) {
    const values = this.read(at);
    let best = 0;
    for (let place = 1; place < values.length; place++) if (values[place] > values[best]) best = place;
    return values.length && Number.isFinite(values[best]) ? best : -1;
  }
}

/**
 * Multiply a state by the matrix of a letter; what was the state becomes the previous one.
 * @param {HeadState} at
 * @param {Float64Array} table
 * @param {number} size
 * @param {number} letter
 * @param {boolean} single Whether every state is rounded to float32.
 */
export function stepped(at, table, size, letter, single) {
  const from = at.state;
  const into = at.previous;
  let place = letter * size * size;
  for (let row = 0; row < size; row++) {
    let sum = 0;
    for (let column = 0; column < size; column++) sum += table[place++] * from[column];
    into[row] = single ? Math.fround(sum) : sum;
  }
  at.state = into;
  at.previous = from;
}

/** Where states lie: distances that count what is read off a state now or later, and the plane that is drawn. */
export class View {
  /** @param {PlainModel} model */
  constructor(model) {
    const { root, plane, offset } = model.view;
    this.size = root.shape[0] ?? 0;
    this.rank = root.shape[1] ?? 0;
    this.root = Float64Array.from(decodedArray(root));
    this.plane = Float64Array.from(decodedArray(plane));
    this.offset = offset;
    this.upToScale = model.up_to_scale;
    /** @type {Float64Array[]} */
    this.points = [];
    /** @type {[number, number][]} */
    this.centres = [];
    if (model.representatives !== null) {
      const all = Float64Array.from(decodedArray(model.representatives));
      for (let begin = 0; begin < all.length; begin += this.size) {
        const state = all.subarray(begin, begin + this.size);
        this.points.push(this.coordinates(state));
        this.centres.push(this.flat(state));
      }
    }
    /** Half the smallest distance of two representatives: farther than this, another one may be nearer. */
    this.limit = this.halfDistance();
  }

  /** @returns {number} */
  halfDistance() {
    let least = Infinity;
    for (let one = 0; one < this.points.length; one++) {
      for (let other = 0; other < one; other++) {
        const gap = distance(this.points[one], this.points[other]);
        if (gap > 1e-9) least = Math.min(least, gap);
      }
    }
    return least / 2;
  }

  /**
   * Return a state in coordinates whose distances count.
   * @param {Float64Array} state
   * @returns {Float64Array}
   */
  coordinates(state) {
    const { rank, root } = this;
    const point = new Float64Array(rank);
    for (let row = 0; row < this.size; row++) {
      const value = state[row];
      if (value !== 0) for (let column = 0; column < rank; column++) point[column] += value * root[row * rank + column];
    }
    if (this.upToScale) {
      const norm = Math.hypot(...point) || 1;
      for (let column = 0; column < rank; column++) point[column] /= norm;
    }
    return point;
  }

  /**
   * Return a state in its principal plane.
   * @param {Float64Array} state
   * @returns {[number, number]}
   */
  flat(state) {
    let [x, y] = [-this.offset[0], -this.offset[1]];
    for (let row = 0; row < this.size; row++) {
      x += state[row] * this.plane[2 * row];
      y += state[row] * this.plane[2 * row + 1];
    }
    return [x, y];
  }

  /**
   * Return the nearest representative, -1 where there is none or the state is not finite.
   * @param {Float64Array} point
   */
  nearest(point) {
    let best = -1;
    let least = Infinity;
    for (let place = 0; place < this.points.length; place++) {
      const gap = distance(point, this.points[place]);
      if (gap < least) [best, least] = [place, gap];
    }
    return best;
  }
}

/**
 * @param {ArrayLike<number>} one
 * @param {ArrayLike<number>} other
 */
export function distance(one, other) {
  let sum = 0;
  for (let place = 0; place < one.length; place++) {
    const gap = one[place] - other[place];
    sum += gap * gap;
  }
  return Math.sqrt(sum);
}

/**
 * A model of the page, ready to run: what is learned, what is exact, and what is right.
 *
 * What the learned head says is its label where a linear map reads it, and otherwise the state of the machine that it
 * is nearest to.  What is right is what the target says where one was given, and otherwise what the machine says.
 */
export class Explored {
  /** @param {PlainModel} plain */
  constructor(plain) {
    this.plain = plain;
    this.soft = new SoftHead(plain);
    this.view = new View(plain);
    this.twin = plain.twin;
    this.target = plain.target;
    this.machine = plain.twin ?? plain.target;
    /** Several states of the machine may share a representative: they are told apart by what was read before. */
    this.same = samePoints(this.view.points);
    /** @type {"labels" | "states" | "value" | "nothing"} */
    this.reads = this.soft.outputs > 1 ? "labels" : this.soft.outputs === 1 ? "value" : "nothing";
    if (this.reads === "nothing" && this.machine !== null && this.view.points.length) this.reads = "states";
  }

  /**
   * Return what the learned head says: a label, or the number of a state; -1 for nothing.
   * @param {HeadState} at
   */
  says(at) {
    if (this.reads === "labels") return this.soft.label(at);
    if (this.reads === "states") return this.same[this.view.nearest(this.view.coordinates(at.state))] ?? -1;
    return -1;
  }

  /**
   * Return what is right in a state of the judging machine; null where anything is.
   * @param {number} state
   * @returns {number | null}
   */
  right(state) {
    if (this.reads === "states") return this.twin === null ? null : (this.same[state] ?? null);
    return this.judge === null ? null : (this.judge.labels[state] ?? null);
  }

  /** The machine that says what is right: the target, or for states that the head is near to, its own machine. */
  get judge() {
    return this.reads === "states" ? this.twin : (this.target ?? this.twin);
  }

  /** Whether right and wrong can be told. */
  get judges() {
    return this.judge !== null && (this.reads === "labels" || (this.reads === "states" && this.twin !== null));
  }

  /**
   * Return how a label, or a state, is written.
   * @param {number | null} said
   */
  named(said) {
    if (said === null) return "nothing";
    if (said < 0) return "no label";
    return this.reads === "states" ? `state ${said}` : this.className(said);
  }

  /** @param {number | null} label */
  className(label) {
    return label === null ? "no label" : (this.plain.classes?.[label] ?? String(label));
  }

  /** @param {ArrayLike<number>} word */
  spelled(word) {
    const names = Array.from(word, (letter) => this.plain.letters[letter]);
    return names.length ? names.join(names.every((name) => name.length === 1) ? "" : " ") : "ε";
  }
}

/**
 * @param {Float64Array[]} points
 * @returns {number[]}
 */
function samePoints(points) {
  return points.map((point, place) => {
    for (let other = 0; other < place; other++) if (distance(point, points[other]) < 1e-9) return other;
    return place;
  });
}
