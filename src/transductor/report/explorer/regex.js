// Regular expressions, in Python's syntax as far as they are regular: every error names what is wrong and where.

/** @typedef {import("./machines.js").Arcs} Arcs */
/** @typedef {{letters: Set<string>, negated: boolean}} Characters */
/** @typedef {{read: Characters} | {choice: Tree[][]} | {body: Tree, least: number, most: number}} Tree */

const MOST_POSITIONS = 5000;
const DIGITS = "0123456789";
const WORDS = `${DIGITS}abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_`;
const SPACES = " \t\n\r\v\f";
/** @type {Record<string, string>} */
const CATEGORIES = { d: DIGITS, w: WORDS, s: SPACES };
/** @type {Record<string, string>} */
const CONTROLS = { n: "\n", t: "\t", r: "\r", f: "\f", v: "\v", a: "\x07" };

/**
 * Return the automaton of a pattern over an alphabet; without one, over the characters that the pattern writes.
 * @param {string} pattern
 * @param {string[]} alphabet
 * @returns {Arcs}
 */
export function parsedRegex(pattern, alphabet) {
  return new Parser(pattern, alphabet).parsed();
}

class Parser {
  /**
   * @param {string} pattern
   * @param {string[]} alphabet
   */
  constructor(pattern, alphabet) {
    this.characters = Array.from(pattern);
    this.place = 0;
    this.depth = 0;
    this.states = 0;
    this.given = alphabet;
    /** @type {[number, Characters | null, number][]} */
    this.arcs = [];
    /** @type {Set<string>} */
    this.written = new Set();
    this.negation = -1;
  }

  /** @returns {Arcs} */
  parsed() {
    const tree = this.alternatives();
    if (this.place < this.characters.length) throw this.error("a bracket ) that was not opened");
    if (!this.given.length && this.negation >= 0) {
      this.place = this.negation;
      throw this.error("a dot or a negated class needs the letters: write them beside the pattern");
    }
    const start = this.state();
    const end = this.built(tree, start);
    const letters = this.given.length ? this.given : [...this.written].sort();
    /** @type {Arcs["arcs"]} */
    const arcs = [];
    for (const [from, read, to] of this.arcs) {
      if (read === null) arcs.push([from, null, to]);
      else for (const letter of letters) if (read.letters.has(letter) !== read.negated) arcs.push([from, letter, to]);
    }
    return { states: this.states, arcs, start: [start], accepting: [end], letters };
  }

  /**
   * Append what a tree reads after a state, and return the state behind it; repeats are written out.
   * @param {Tree} tree
   * @param {number} start
   * @returns {number}
   */
  built(tree, start) {
    if ("read" in tree) {
      const end = this.state();
      this.arcs.push([start, tree.read, end]);
      return end;
    }
    if ("choice" in tree) {
      const end = this.state();
      for (const items of tree.choice) {
        this.arcs.push([items.reduce((at, item) => this.built(item, at), start), null, end]);
      }
      return end;
    }
    let at = start;
    for (let count = 0; count < tree.least; count++) at = this.built(tree.body, at);
    if (tree.most === Infinity) {
      const hub = this.state();
      this.arcs.push([at, null, hub]);
      this.arcs.push([this.built(tree.body, hub), null, hub]);
      return hub;
    }
    const end = this.state();
    for (let count = tree.least; count < tree.most; count++) {
      this.arcs.push([at, null, end]);
      at = this.built(tree.body, at);
    }
    this.arcs.push([at, null, end]);
    return end;
  }

  /** @param {string} reason */
  error(reason) {
    return new Error(`position ${this.place}: ${reason}`);
  }

  state() {
    if (this.states >= MOST_POSITIONS) throw this.error(`more than ${MOST_POSITIONS} positions with repeats written out`);
    return this.states++;
  }

  next() {
    return this.characters[this.place];
  }

  /** @param {string} text */
  ahead(text) {
    return this.characters.slice(this.place, this.place + text.length).join("") === text;
  }

  /** @returns {Tree} */
  alternatives() {
    if (++this.depth > 200) throw this.error("brackets are nested too deeply");
    /** @type {Tree[][]} */
    const choice = [[]];
    while (this.place < this.characters.length && this.next() !== ")") {
      if (this.next() === "|") {
        this.place++;
        choice.push([]);
      } else choice[choice.length - 1].push(this.repeated());
    }
    this.depth--;
    return { choice };
  }

  /** @returns {Tree} */
  repeated() {
    const item = this.item();
    const bounds = this.bounds();
    if (bounds === null) return item;
    if (["*", "+", "?"].includes(this.next()) || this.counts() !== null) {
      throw this.error("a repeat of a repeat: use brackets");
    }
    return { body: item, least: bounds[0], most: bounds[1] };
  }

  /** @returns {[number, number] | null} */
  bounds() {
    const mark = this.next();
    /** @type {[number, number] | null} */
    let bounds = null;
    if (mark === "*") bounds = [0, Infinity];
    else if (mark === "+") bounds = [1, Infinity];
    else if (mark === "?") bounds = [0, 1];
    if (bounds !== null) this.place++;
    else {
      const counts = this.counts();
      if (counts === null) return null;
      bounds = counts.bounds;
      this.place += counts.length;
      if (bounds[0] > bounds[1]) throw this.error("the least count is larger than the most");
    }
    if (this.next() === "?") this.place++; // lazy: the language is the same
    else if (this.next() === "+") throw this.error("a possessive quantifier is refused");
    return bounds;
  }

  /** @returns {{bounds: [number, number], length: number} | null} */
  counts() {
    const text = this.characters.slice(this.place, this.place + 16).join("");
    const match = /^\{(\d*)(,?)(\d*)\}/.exec(text);
    if (match === null || match[0] === "{}" || (!match[1] && !match[2])) return null;
    const least = Number(match[1] || 0);
    return { bounds: [least, match[2] ? (match[3] ? Number(match[3]) : Infinity) : least], length: match[0].length };
  }

  /** @returns {Tree} */
  item() {
    const mark = this.next();
    if (mark === "(") return this.group();
    if ("*+?".includes(mark) || this.counts() !== null) throw this.error("nothing to repeat");
    if (mark === "^" || mark === "$") throw this.error("anchors are left out: the word matches as a whole");
    /** @type {Characters} */
    let read;
    if (mark === ".") {
      this.negation = this.place++;
      read = { letters: new Set("\n"), negated: true };
    } else if (mark === "[") read = this.characterClass();
    else if (mark === "\\") read = this.escaped(false);
    else {
      this.place++;
      read = { letters: new Set([mark]), negated: false };
    }
    if (!read.negated) for (const letter of read.letters) this.written.add(letter);
    return { read };
  }

  /** @returns {Tree} */
  group() {
    if (this.ahead("(?:")) this.place += 3;
    else if (this.ahead("(?P<")) {
      const end = this.characters.indexOf(">", this.place);
      if (end < 0) throw this.error("a name that does not end");
      this.place = end + 1;
    } else if (this.ahead("(?")) {
      throw this.error("look-around, back-references, conditionals and flags are refused");
    } else this.place++;
    const tree = this.alternatives();
    if (this.next() !== ")") throw this.error("a bracket ( that is not closed");
    this.place++;
    return tree;
  }

  /**
   * @param {boolean} inClass
   * @returns {Characters}
   */
  escaped(inClass) {
    const letter = this.characters[this.place + 1];
    if (letter === undefined) throw this.error("a backslash at the end");
    const category = CATEGORIES[letter.toLowerCase()];
    if (category !== undefined) {
      if (letter !== letter.toLowerCase()) this.negation = this.place;
      this.place += 2;
      return { letters: new Set(category), negated: letter !== letter.toLowerCase() };
    }
    if (/[1-9]/.test(letter)) throw this.error("a back-reference is refused");
    if (!inClass && /[bBAZ]/.test(letter)) throw this.error(`\\${letter} is refused`);
    const control = CONTROLS[letter];
    if (control === undefined && /[A-Za-z0-9]/.test(letter)) throw this.error(`\\${letter} is not known`);
    this.place += 2;
    return { letters: new Set([control ?? letter]), negated: false };
  }

  /** @returns {Characters} */
  characterClass() {
    const began = this.place;
    this.place++;
    const negated = this.next() === "^";
    if (negated) this.place++;
    /** @type {Set<string>} */
    const letters = new Set();
    for (let first = true; first || this.next() !== "]"; first = false) {
      if (this.place >= this.characters.length) {
        this.place = began;
        throw this.error("a class [ that is not closed");
      }
      const from = this.classItem();
      if (this.next() === "-" && this.characters[this.place + 1] !== "]" && this.characters[this.place + 1] !== undefined) {
        this.place++;
        const to = this.classItem();
        if (from.size !== 1 || to.size !== 1) throw this.error("a range needs a character on both sides");
        const [low, high] = [...from, ...to].map((each) => each.codePointAt(0) ?? 0);
        if (low > high) throw this.error("a range that goes backwards");
        if (high - low > 4096) throw this.error("a range of more than 4096 characters");
        for (let code = low; code <= high; code++) letters.add(String.fromCodePoint(code));
      } else for (const each of from) letters.add(each);
    }
    this.place++;
    if (negated) this.negation = began;
    return { letters, negated };
  }

  /** @returns {Set<string>} */
  classItem() {
    if (this.next() !== "\\") return new Set([this.characters[this.place++]]);
    const read = this.escaped(true);
    if (read.negated) throw this.error("\\D, \\W and \\S are not taken inside a class");
    return read.letters;
  }
}
