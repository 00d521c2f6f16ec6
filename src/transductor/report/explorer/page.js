// The page: what is typed and moved goes to the model, and what comes back is drawn and said in text.
import { Explored } from "./heads.js";
import { MachinePicture, drawDrift, drawPlane, shortened } from "./drawing.js";
import { byId, inSlices, made, paragraph, stopped } from "./elements.js";
import { breakIt, putErrorIn, showErrorAbout } from "./experiments.js";
import { briefly, counted } from "./numbers.js";
import { startOwn } from "./own.js";
import { showAccuracy, showProofs } from "./proofs.js";
import { LONGEST, Run, randomWord, repeated } from "./runs.js";

/** @typedef {import("./runs.js").Word} Word */
/** @typedef {import("./heads.js").PlainModel} PlainModel */

const TRACED = 12; // letters in the table
const TRAIL = 80; // states of the trail
const MOST_KINDS = 24; // of long words in the list
const svg = (/** @type {string} */ id) => /** @type {SVGSVGElement} */ (/** @type {unknown} */ (document.getElementById(id)));

/** Everything about the model that is shown. */
class Page {
  /** @param {PlainModel} plain */
  constructor(plain) {
    this.model = new Explored(plain);
    this.plain = plain;
    /** @type {Run} */
    this.typed = new Run(this.model, repeated([0]), 0);
    this.tokens = [0].slice(1);
    /** @type {Run | null} */
    this.long = null;
    this.scale = this.planeScale();
    /** @type {MachinePicture | null} */
    this.picture = null;
    /** @type {Map<string, () => Word>} */
    this.kinds = new Map();
    this.random = randomWord(this.model, 1);
    /** @type {"typed" | "long"} What the pictures show: what was touched last. */
    this.focus = "typed";
    this.spaced = !plain.letters.every((letter) => Array.from(letter).length === 1 && letter.trim() !== "");
  }

  planeScale() {
    const run = new Run(this.model, randomWord(this.model, 2), 200);
    const points = [...this.model.view.centres];
    for (let length = 1; length <= 200; length++) {
      run.step();
      points.push(this.model.view.flat(run.at.state));
    }
    const sizes = points.map(([x, y]) => Math.max(Math.abs(x), Math.abs(y))).filter(Number.isFinite);
    return 1.15 * Math.max(...sizes.slice(0, this.model.view.centres.length || 200), 1e-12);
  }

  /** The name of a state of the machine that is drawn: its label, or its number. */
  stateNames() {
    const machine = this.model.machine;
    if (machine === null) return [];
    const labelled = machine.labels.some((label) => label !== null) && machine.labels.length <= 24;
    return machine.labels.map((label, state) => (labelled && label !== null ? this.model.className(label) : String(state)));
  }

  /** Names that are short enough for the plane, where states may lie close together: numbers where several have one label. */
  shortNames() {
    const names = this.stateNames();
    return new Set(names).size === names.length ? names : names.map((_, state) => String(state));
  }

  show() {
    const { plain, model } = this;
    const count = model.twin?.transitions.length ?? 0;
    const about = [`${plain.title}.`];
    if (model.twin !== null) about.push(`Hardened: a machine of ${count} states${plain.summary ? ` (${plain.summary})` : ""}.`);
    else if (plain.refusal) about.push(`It was not hardened: ${plain.refusal}.`);
    if (model.target !== null) about.push(`What is right: ${plain.target_name || "the machine given"}, ${model.target.transitions.length} states.`);
    if (plain.trained_length !== null) about.push(`Trained on at most ${plain.trained_length} letters.`);
    if (plain.separating_word !== null) about.push(`The hardened machine is another one: they differ after ${model.spelled(plain.separating_word)}.`);
    paragraph("about").textContent = about.join(" ");
    byId("notes", HTMLUListElement).replaceChildren(...plain.notes.map((note) => made("li", note)));
    const split = this.spaced ? "words between blanks" : "letters together";
    byId("word-label", HTMLLabelElement).textContent = `Word (${split}: ${shortened(plain.letters.join(this.spaced ? " " : ""), 60)})`;
    this.showLetters();
    byId("machine-figure", HTMLElement).hidden = model.machine === null;
    if (model.machine !== null) {
      this.picture = new MachinePicture(svg("machine"), {
        transitions: model.machine.transitions, names: this.stateNames(), letters: plain.letters,
        start: model.machine.start, sink: model.machine.sink,
      });
    }
    this.showKinds();
    showErrorAbout(this);
    byId("break", HTMLButtonElement).disabled = !model.judges;
    paragraph("break-said").textContent = model.judges ? "" : "Nothing says what is right: there is neither a hardened twin nor a target.";
    byId("break-show", HTMLButtonElement).hidden = true;
    byId("break-kinds", HTMLDetailsElement).hidden = true;
    showProofs(plain);
    showAccuracy(plain);
    this.type();
    this.lengthen();
    putErrorIn(this);
  }

  showLetters() {
    const field = byId("word", HTMLTextAreaElement);
    const append = (/** @type {string} */ name) => {
      const glue = this.spaced && field.value && !/\s$/.test(field.value) ? " " : "";
      field.value += glue + name;
      this.type();
    };
    const buttons = this.plain.letters.slice(0, 60).map((name) => {
      const button = made("button", shortened(name, 24));
      button.addEventListener("click", () => append(name));
      return button;
    });
    const back = made("button", "⌫");
    back.setAttribute("aria-label", "Take the last letter away");
    back.addEventListener("click", () => {
      field.value = this.joined(this.tokens.slice(0, -1));
      this.type();
    });
    for (const button of [...buttons, back]) button.setAttribute("type", "button");
    byId("letters", HTMLDivElement).replaceChildren(...buttons, back);
  }

  /** @param {number[]} tokens */
  joined(tokens) {
    return tokens.map((token) => this.plain.letters[token]).join(this.spaced ? " " : "");
  }

  /** Read the word that is typed; what is no letter is named. */
  type() {
    this.focus = "typed";
    const text = byId("word", HTMLTextAreaElement).value;
    const names = this.spaced ? text.split(/\s+/).filter(Boolean) : Array.from(text).filter((name) => name.trim());
    const numbers = new Map(this.plain.letters.map((name, number) => [name, number]));
    const unknown = names.find((name) => !numbers.has(name));
    const error = paragraph("word-error");
    error.textContent = "";
    if (unknown !== undefined) {
      error.textContent = `“${shortened(unknown, 40)}” is no letter; there are ${shortened(this.plain.letters.join(", "), 120)}.`;
      return;
    }
    if (names.length > LONGEST) {
      error.textContent = `The word has ${counted(names.length)} letters; at most ${counted(LONGEST)} are read.`;
      return;
    }
    this.tokens = names.map((name) => numbers.get(name) ?? 0);
    this.typed = new Run(this.model, repeated(this.tokens), names.length);
    inSlices("typed", (milliseconds) => this.typed.advance(milliseconds), (finished) => finished && this.showTyped());
    if (byId("kind", HTMLSelectElement).value === "typed") this.lengthen();
  }

  showTyped() {
    const { model, tokens } = this;
    const length = tokens.length;
    const now = this.typed.standing(length);
    /** @type {string[]} */
    const parts = [length ? `After ${counted(length)} ${length === 1 ? "letter" : "letters"}` : "Before the first letter"];
    if (length) parts[0] += ` (… ${shortened(model.spelled(tokens.slice(-6)), 60)})`;
    parts[0] += ":";
    if (model.reads === "value") parts.push(`the head says ${briefly(model.soft.read(now.at)[0])}.`);
    else if (length || this.plain.empty_word) parts.push(this.verdict(now));
    const gap = this.typed.drift[length];
    if (!Number.isNaN(gap)) parts.push(`The state is ${briefly(gap)} from where it should be; half-way to another is ${briefly(model.view.limit)}.`);
    paragraph("said").textContent = parts.join(" ");
    this.showPlane(this.typed, length);
    const before = length ? this.typed.standing(length - 1) : null;
    this.showMachine(this.machineState(now), before === null ? null : this.machineState(before), length);
    this.showTrace();
    paragraph("numbers").textContent = Array.from(now.at.state, (value) => value.toPrecision(9)).join(" ");
  }

  /**
   * The state of the machine that is drawn: the hardened twin, or what the head should be.
   * @param {{twinState: number, judged: number}} now
   */
  machineState(now) {
    return this.model.twin === null ? now.judged : now.twinState;
  }

  /**
   * Light the state of the machine, and say it.
   * @param {number} at
   * @param {number | null} before
   * @param {number} length
   */
  showMachine(at, before, length) {
    const { machine, twin } = this.model;
    this.picture?.light(machine === null ? null : at, before);
    if (machine === null) return;
    const label = machine.labels[at] === null ? "" : ` (${this.model.className(machine.labels[at])})`;
    const what = twin === null ? "What it should be" : "The hardened machine";
    byId("machine-caption", HTMLElement).textContent = `${what}: ${machine.transitions.length} states, after ${counted(length)} ${length === 1 ? "letter" : "letters"} in state ${at}${label}.`;
  }

  /** @param {{at: import("./heads.js").HeadState, twinState: number, judged: number}} now */
  verdict(now) {
    const { model } = this;
    const parts = [];
    if (model.reads !== "nothing") parts.push(`the learned head says ${model.named(model.says(now.at))}`);
    if (model.twin !== null) parts.push(`the hardened one ${this.twinSays(now.twinState)}`);
    const right = model.judges ? model.right(now.judged) : null;
    if (model.target !== null && model.reads === "labels") parts.push(`right is ${model.named(right)}`);
    const wrong = right !== null && model.says(now.at) !== right;
    return `${parts.join(", ")}.${wrong ? " The learned head is wrong." : ""}`;
  }

  /** @param {number} state */
  twinSays(state) {
    const { model } = this;
    return model.reads === "states" ? `state ${model.same[state]}` : model.className(model.twin?.labels[state] ?? null);
  }

  /**
   * @param {Run} run
   * @param {number} length
   */
  showPlane(run, length) {
    const { model } = this;
    const from = Math.max(0, length - TRAIL);
    const trail = [];
    const standing = run.standing(from);
    trail.push(model.view.flat(standing.at.state));
    for (let place = from; place < length; place++) {
      model.soft.step(standing.at, run.word(place));
      trail.push(model.view.flat(standing.at.state));
    }
    const now = run.standing(length);
    const place = model.twin === null ? now.judged : now.twinState;
    drawPlane(svg("plane"), {
      centres: model.view.centres,
      names: this.shortNames(),
      trail,
      learned: trail[trail.length - 1],
      hardened: model.view.centres[place] ?? null,
      scale: this.scale,
    });
    const share = `${(100 * this.plain.view.share).toFixed(0)}% of the variance`;
    byId("plane-caption", HTMLElement).textContent = `The learned state (filled) in its principal plane (${share}), the way it came${model.view.centres.length ? ", and where it should be (square)" : ""}; after ${counted(length)} letters.`;
  }

  showTrace() {
    const { model, tokens } = this;
    const from = Math.max(0, tokens.length - TRACED);
    const header = made("tr", "", "", [made("th", "letter"), ...tokens.slice(from).map((token) => made("th", shortened(this.plain.letters[token], 16)))]);
    const rows = [header];
    const positions = tokens.slice(from).map((_, place) => this.typed.standing(from + place + 1));
    if (model.reads !== "nothing" && model.reads !== "value") {
      rows.push(made("tr", "", "", [made("th", "learned"), ...positions.map((now) => {
        const right = model.judges ? model.right(now.judged) : null;
        const said = model.says(now.at);
        return made("td", model.named(said), right !== null && said !== right ? "differs" : "");
      })]));
    }
    if (model.twin !== null) rows.push(made("tr", "", "", [made("th", "hardened"), ...positions.map((now) => made("td", this.twinSays(now.twinState)))]));
    byId("trace", HTMLTableElement).replaceChildren(...(tokens.length ? rows : []));
    const details = byId("all-labels", HTMLDetailsElement);
    if (details.open) this.showAllLabels();
  }

  showAllLabels() {
    const { model } = this;
    const lines = [];
    const at = model.soft.begun();
    let state = model.twin?.start ?? 0;
    for (const token of this.tokens) {
      model.soft.step(at, token);
      if (model.twin !== null) state = model.twin.transitions[state][token];
      const learned = model.reads === "value" ? String(model.soft.read(at)[0]) : model.reads === "nothing" ? "" : model.named(model.says(at));
      lines.push([this.plain.letters[token], learned, model.twin === null ? "" : this.twinSays(state)].join("\t"));
    }
    byId("labels", HTMLTextAreaElement).value = lines.join("\n");
  }

  showKinds() {
    const { letters } = this.plain;
    this.kinds = new Map([["random", () => this.random], ["typed", () => repeated(this.tokens.length ? this.tokens : [0])]]);
    const select = byId("kind", HTMLSelectElement);
    const names = new Map([["random", "random"], ["typed", "the word above, again and again"]]);
    letters.slice(0, MOST_KINDS).forEach((name, letter) => {
      this.kinds.set(`power ${letter}`, () => repeated([letter]));
      names.set(`power ${letter}`, `only ${shortened(name, 24)}`);
    });
    for (let letter = 0; letter + 1 < Math.min(letters.length, MOST_KINDS); letter++) {
      this.kinds.set(`pair ${letter}`, () => repeated([letter, letter + 1]));
      names.set(`pair ${letter}`, `${shortened(letters[letter], 16)} and ${shortened(letters[letter + 1], 16)} in turn`);
    }
    select.replaceChildren(
      ...[...names].map(([value, name]) => {
        const option = document.createElement("option");
        [option.value, option.textContent] = [value, name];
        return option;
      }),
    );
  }

  word() {
    return (this.kinds.get(byId("kind", HTMLSelectElement).value) ?? (() => this.random))();
  }

  /** The length that the slider says: from 1 to the longest, on a logarithmic scale. */
  length() {
    const slider = byId("length", HTMLInputElement);
    return Math.max(1, Math.round(LONGEST ** (Number(slider.value) / 1000)));
  }

  /** Follow a long word to the end, and draw it as it grows. */
  lengthen() {
    const run = new Run(this.model, this.word(), LONGEST);
    this.long = run;
    inSlices("long", (milliseconds) => run.advance(milliseconds), () => this.showLong());
  }

  showLong() {
    const run = this.long;
    if (run === null) return;
    const { model } = this;
    const wanted = Number(byId("length-number", HTMLInputElement).value) || this.length();
    const at = Math.max(1, Math.min(run.done, Math.min(LONGEST, wanted)));
    drawDrift(svg("drift"), { drift: run.drift, wrong: run.wrong, done: run.done, length: run.length, limit: model.view.limit, at, judges: model.judges });
    const now = run.standing(at);
    if (this.focus === "long") {
      this.showPlane(run, at);
      this.showMachine(this.machineState(now), null, at);
    }
    const parts = [`After ${counted(at)} ${at === 1 ? "letter" : "letters"}: ${model.reads === "value" ? `the head says ${briefly(model.soft.read(now.at)[0])}.` : this.verdict(now)}`];
    const gap = run.drift[at];
    if (!Number.isNaN(gap) && Number.isFinite(model.view.limit)) {
      parts.push(`The learned state has drifted ${briefly(gap)}, ${gap > model.view.limit ? "past half-way to another state" : `half-way is ${briefly(model.view.limit)}`}.`);
    }
    if (run.done < run.length) parts.push(`Followed to ${counted(run.done)} letters so far.`);
    if (model.judges) {
      parts.push(run.firstWrong ? `First wrong after ${counted(run.firstWrong)} letters; wrong at ${counted(run.mistakes)} of ${counted(run.done)}.` : `The learned head is right at all ${counted(run.done)}.`);
      if (model.twin !== null) parts.push(run.firstTwinWrong ? `The hardened one is first wrong after ${counted(run.firstTwinWrong)}.` : "The hardened one is exact: its state is one of the machine's at every length.");
    }
    paragraph("length-said").textContent = parts.join(" ");
    byId("drift-caption", HTMLElement).textContent = "How far the learned state is from where it should be; below, how often it is wrong." + (model.twin === null ? "" : " The hardened one has no distance at all.");
  }
}

function start() {
  /** @type {{models: PlainModel[]}} */
  const { models } = JSON.parse(document.getElementById("models")?.textContent ?? "{}");
  const select = byId("model", HTMLSelectElement);
  select.replaceChildren(...models.map((model, number) => {
    const option = document.createElement("option");
    [option.value, option.textContent] = [String(number), model.name];
    return option;
  }));
  byId("choose", HTMLElement).hidden = models.length < 2;
  let page = new Page(models[0]);
  const slider = byId("length", HTMLInputElement);
  const number = byId("length-number", HTMLInputElement);
  const chosen = () => {
    for (const work of ["typed", "long", "break", "error"]) stopped(work);
    byId("word", HTMLTextAreaElement).value = "";
    slider.value = "0";
    number.value = "1";
    byId("error", HTMLInputElement).value = "0";
    page = new Page(models[Number(select.value)]);
    page.show();
  };
  select.addEventListener("change", chosen);
  byId("word", HTMLTextAreaElement).addEventListener("input", () => page.type());
  slider.addEventListener("input", () => {
    number.value = String(page.length());
    page.focus = "long";
    page.showLong();
  });
  number.addEventListener("input", () => {
    const length = Math.max(1, Math.min(LONGEST, Math.round(Number(number.value)) || 1));
    slider.value = String(Math.round((1000 * Math.log(length)) / Math.log(LONGEST)));
    page.focus = "long";
    page.showLong();
  });
  byId("kind", HTMLSelectElement).addEventListener("change", () => {
    page.lengthen();
    putErrorIn(page);
  });
  byId("error", HTMLInputElement).addEventListener("input", () => putErrorIn(page));
  byId("break", HTMLButtonElement).addEventListener("click", () => breakIt(page));
  byId("all-labels", HTMLDetailsElement).addEventListener("toggle", () => page.showTrace());
  startOwn();
  chosen();
}

start();
