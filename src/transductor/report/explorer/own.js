// The reader's own automaton: from an expression or a file to its smallest machine, its group and its matrices.
import { MachinePicture } from "./drawing.js";
import { byId, made, paragraph } from "./elements.js";
import { parsedFile } from "./files.js";
import { MOST_ELEMENTS, algebra, matrixOf, shortestAccepted, smallest } from "./machines.js";
import { parsedRegex } from "./regex.js";

/** @typedef {import("./machines.js").Machine} Machine */

const MOST_DRAWN = 200;
const MOST_CELLS = 4000;
/** @type {{machine: Machine, picture: MachinePicture | null} | null} */
let shown = null;

/** Make the section answer. */
export function startOwn() {
  byId("regex-form", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    const alphabet = lettersIn(byId("alphabet", HTMLInputElement).value);
    const pattern = byId("regex", HTMLInputElement).value;
    attempted(() => show(parsedRegex(pattern, alphabet), `The expression ${pattern}`, []));
  });
  const input = byId("file", HTMLInputElement);
  input.addEventListener("change", () => void read(input.files));
  const place = paragraph("drop");
  const section = byId("own-section", HTMLElement);
  for (const kind of ["dragover", "dragleave", "drop"]) {
    section.addEventListener(kind, (event) => {
      event.preventDefault();
      place.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event instanceof DragEvent) void read(event.dataTransfer?.files ?? null);
    });
  }
  byId("own-word", HTMLInputElement).addEventListener("input", follow);
}

/** @param {string} text */
function lettersIn(text) {
  const letters = Array.from(text.trim()).filter((letter) => letter !== " ");
  return [...new Set(letters)];
}

/** @param {FileList | null} files */
async function read(files) {
  const file = files?.[0];
  if (file === undefined) return;
  const text = file.size > 4e6 ? " ".repeat(4e6) : await file.text();
  attempted(() => {
    const automaton = parsedFile(file.name, text);
    show(automaton, file.name, automaton.notes);
  });
}

/** @param {() => void} work */
function attempted(work) {
  const error = paragraph("own-error");
  error.textContent = "";
  try {
    work();
  } catch (reason) {
    hide();
    error.textContent = reason instanceof Error ? reason.message : String(reason);
  }
}

function hide() {
  shown = null;
  paragraph("own-said").textContent = "";
  paragraph("own-word-said").textContent = "";
  for (const id of ["own-figure", "own-word-row", "own-matrices"]) byId(id, HTMLElement).hidden = true;
}

/**
 * @param {import("./machines.js").Arcs} arcs
 * @param {string} name
 * @param {string[]} notes
 */
function show(arcs, name, notes) {
  if (!arcs.letters.length) throw new Error(`${name}: there are no letters`);
  const machine = smallest(arcs);
  const states = machine.transitions.length;
  const drawn = states <= MOST_DRAWN;
  byId("own-figure", HTMLElement).hidden = !drawn;
  const picture = drawn
    ? new MachinePicture(byId("own-machine", SVGSVGElement), {
        transitions: machine.transitions,
        names: machine.accepting.map((accepts, state) => `${state}${accepts ? " ✓" : ""}`),
        letters: machine.letters,
        start: machine.start,
        sink: null,
      })
    : null;
  shown = { machine, picture };
  byId("own-caption", HTMLElement).textContent = "The smallest machine; ✓ marks states that accept. State 0 is the start.";
  byId("own-word-row", HTMLElement).hidden = false;
  byId("own-word", HTMLInputElement).value = "";
  paragraph("own-said").textContent = [`${name}: ${describe(machine)}`, ...notes].join(" ");
  showMatrices(machine);
  follow();
}

/**
 * Return what there is to say of a machine, in sentences.
 * @param {Machine} machine
 */
export function describe(machine) {
  const states = machine.transitions.length;
  const parts = [`${states} ${states === 1 ? "state" : "states"} over ${machine.letters.length} letters.`];
  const word = shortestAccepted(machine);
  if (word === null) parts.push("It accepts no word.");
  else parts.push(`Its shortest word is ${word.map((letter) => machine.letters[letter]).join(" ") || "the empty one"}.`);
  const known = algebra(machine);
  if (known === null) return [...parts, `Its monoid has more than ${MOST_ELEMENTS} elements.`].join(" ");
  const kind = known.group ? `a group of order ${known.size}` : `a monoid of ${known.size} elements, no group`;
  const name = known.name ? ` (${known.name})` : "";
  const traits = [known.commutative ? "commutative" : "not commutative", known.aperiodic ? "aperiodic: star-free" : "not aperiodic"];
  return [...parts, `What its words do to states is ${kind}${name}; ${traits.join("; ")}.`].join(" ");
}

/** @param {Machine} machine */
function showMatrices(machine) {
  const states = machine.transitions.length;
  const details = byId("own-matrices", HTMLDetailsElement);
  details.hidden = states * states * machine.letters.length > MOST_CELLS;
  if (details.hidden) return;
  const tables = machine.letters.map((letter, number) => {
    const rows = matrixOf(machine, number).map((row) =>
      made("tr", "", "", row.map((value) => made("td", String(value), value ? "one" : ""))),
    );
    return made("div", "", "", [made("p", `M of ${letter}`), made("table", "", "", rows)]);
  });
  const reads = machine.accepting.map(Number).join(" ");
  const start = machine.transitions.map((_, state) => Number(state === machine.start)).join(" ");
  const about = made("p", `Columns say from, rows say to. The initial state is [${start}], the readout [${reads}].`);
  details.lastElementChild?.replaceChildren(about, made("div", "", "matrices", tables));
}

function follow() {
  if (shown === null) return;
  const { machine, picture } = shown;
  const text = byId("own-word", HTMLInputElement).value;
  const names = machine.letters.every((letter) => letter.length === 1) ? Array.from(text) : text.split(/\s+/).filter(Boolean);
  let [state, before] = [machine.start, /** @type {number | null} */ (null)];
  for (const name of names) {
    const letter = machine.letters.indexOf(name);
    if (letter < 0) {
      paragraph("own-word-said").textContent = `“${name}” is none of its letters.`;
      return;
    }
    [before, state] = [state, machine.transitions[state][letter]];
  }
  picture?.light(state, before);
  const answer = machine.accepting[state] ? "accepted" : "not accepted";
  paragraph("own-word-said").textContent = `${names.length ? `After ${names.length} letters` : "The empty word"}: state ${state}, ${answer}.`;
}
