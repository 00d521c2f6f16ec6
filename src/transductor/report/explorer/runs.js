// Long words: the learned head beside the machine, letter by letter, in slices that keep the page awake.
import { randomNumbers } from "./numbers.js";
import { AlteredHead } from "./altered.js";
import { distance } from "./heads.js";

/** @typedef {import("./heads.js").Explored} Explored */
/** @typedef {(place: number) => number} Word The letter at each place, from 0. */

export const LONGEST = 100_000;
const SNAPSHOT_EVERY = 256;

/**
 * Return the word that repeats these letters.
 * @param {ArrayLike<number>} letters
 * @returns {Word}
 */
export function repeated(letters) {
  return (place) => letters[place % letters.length];
}

/**
 * Return a random word of the longest length, whose letters follow each other as they may.
 * @param {Explored} model
 * @param {number} seed
 * @returns {Word}
 */
export function randomWord(model, seed) {
  const { follows, letters } = model.plain;
  const random = randomNumbers(seed);
  const word = new Int32Array(LONGEST);
  const endless = follows === null ? [] : lasting(follows);
  let allowed = follows === null ? letters.map((_, letter) => letter) : endless[letters.length];
  for (let place = 0; place < LONGEST; place++) {
    const choice = allowed.length ? allowed[random(allowed.length)] : random(letters.length);
    word[place] = choice;
    if (follows !== null) allowed = endless[choice];
  }
  return (place) => word[place];
}

/**
 * Return, for each letter and last for the start, the letters that may come next and do not end every word.
 * @param {number[][]} follows
 * @returns {number[][]}
 */
function lasting(follows) {
  let kept = new Set(follows[0].map((_, letter) => letter));
  for (;;) {
    const next = new Set([...kept].filter((letter) => follows[letter].some((may, after) => may && kept.has(after))));
    if (next.size === kept.size) break;
    kept = next;
  }
  return follows.map((row) => row.flatMap((may, letter) => (may && kept.has(letter) ? [letter] : [])));
}

/** A run over one word: what the learned head and the machine say at every length, and how far the state drifts. */
export class Run {
  /**
   * @param {Explored} model
   * @param {Word} word
   * @param {number} length
   */
  constructor(model, word, length) {
    this.model = model;
    this.word = word;
    this.length = length;
    this.done = 0;
    this.at = model.soft.begun();
    this.state = model.machine?.start ?? 0;
    this.judged = model.judge?.start ?? 0;
    this.drift = new Float32Array(length + 1).fill(NaN);
    this.wrong = new Uint8Array(length + 1);
    this.twinWrong = new Uint8Array(length + 1);
    /** After how many letters it was first so; 0 for never. */
    this.firstWrong = 0;
    this.firstTwinWrong = 0;
    this.firstBeyond = 0;
    this.mistakes = 0;
    this.twinState = model.twin?.start ?? 0;
    /** @type {{state: Float64Array, previous: Float64Array, twin: number, judged: number}[]} */
    this.snapshots = [];
    this.measure();
  }

  measure() {
    const { model, done } = this;
    const { view, machine } = model;
    if (machine !== null && view.points.length) {
      const right = this.model.twin === null ? this.judged : this.twinState;
      const gap = distance(view.coordinates(this.at.state), view.points[right]);
      this.drift[done] = gap;
      if (!(gap <= view.limit) && !this.firstBeyond && done > 0) this.firstBeyond = done;
    }
    if (done > 0 && model.judges) {
      const right = model.right(this.judged);
      if (right !== null && model.says(this.at) !== right) {
        this.wrong[done] = 1;
        this.mistakes++;
        if (!this.firstWrong) this.firstWrong = done;
      }
    }
    if (done > 0 && model.target !== null && model.twin !== null && model.reads === "labels") {
      const right = model.target.labels[this.judged] ?? null;
      if (right !== null && model.twin.labels[this.twinState] !== right) {
        this.twinWrong[done] = 1;
        if (!this.firstTwinWrong) this.firstTwinWrong = done;
      }
    }
    if (done % SNAPSHOT_EVERY === 0) {
      const { state, previous } = this.at;
      this.snapshots.push({ state: state.slice(), previous: previous.slice(), twin: this.twinState, judged: this.judged });
    }
  }

  /** Read the next letter. */
  step() {
    const letter = this.word(this.done);
    this.model.soft.step(this.at, letter);
    if (this.model.twin !== null) this.twinState = this.model.twin.transitions[this.twinState][letter];
    if (this.model.judge !== null) this.judged = this.model.judge.transitions[this.judged][letter];
    this.done++;
    this.measure();
  }

  /**
   * Read on for about so many milliseconds; return whether the word is finished.
   * @param {number} milliseconds
   */
  advance(milliseconds) {
    const until = performance.now() + milliseconds;
    while (this.done < this.length) {
      this.step();
      if (this.done % 64 === 0 && performance.now() > until) break;
    }
    return this.done >= this.length;
  }

  /**
   * Return where everything stands after some letters that were read.
   * @param {number} length
   */
  standing(length) {
    const { soft, twin, judge } = this.model;
    const from = Math.floor(length / SNAPSHOT_EVERY);
    const kept = this.snapshots[from];
    const at = { state: kept.state.slice(), previous: kept.previous.slice() };
    let [twinState, judged] = [kept.twin, kept.judged];
    for (let place = from * SNAPSHOT_EVERY; place < length; place++) {
      const letter = this.word(place);
      soft.step(at, letter);
      if (twin !== null) twinState = twin.transitions[twinState][letter];
      if (judge !== null) judged = judge.transitions[judged][letter];
    }
    return { at, twinState, judged };
  }
}

/** How long a head whose numbers were altered stays right. */
export class Horizon {
  /**
   * @param {Explored} model
   * @param {number} error
   * @param {Word} word
   * @param {number} length
   */
  constructor(model, error, word, length) {
    this.model = model;
    this.head = new AlteredHead(model, error);
    this.word = word;
    this.length = length;
    this.done = 0;
    this.firstWrong = 0;
    this.judge = this.head.turns ? model.twin : model.judge;
    this.state = this.judge?.start ?? 0;
  }

  /**
   * Read on for about so many milliseconds; return whether the answer is known.
   * @param {number} milliseconds
   */
  advance(milliseconds) {
    const until = performance.now() + milliseconds;
    while (this.done < this.length && !this.firstWrong) {
      const letter = this.word(this.done);
      this.head.step(letter);
      if (this.judge !== null) this.state = this.judge.transitions[this.state][letter];
      this.done++;
      const right = this.head.turns ? this.own(this.state) : this.model.right(this.state);
      if (right !== null && this.head.says() !== right) this.firstWrong = this.done;
      if (this.done % 16 === 0 && performance.now() > until) break;
    }
    return this.firstWrong > 0 || this.done >= this.length;
  }

  /** @param {number} state */
  own(state) {
    if (this.model.reads === "states") return this.model.same[state];
    return this.model.twin?.labels[state] ?? null;
  }
}
