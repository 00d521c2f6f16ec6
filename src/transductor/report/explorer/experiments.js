// What is done to a head on purpose: looking for a word that breaks it, and putting an error in.
import { shortened } from "./drawing.js";
import { byId, inSlices, made, paragraph } from "./elements.js";
import { briefly, counted } from "./numbers.js";
import { Horizon, LONGEST, Run, repeated } from "./runs.js";
import { breaking } from "./search.js";

/**
 * What a page must offer.
 * @typedef {object} Page
 * @property {import("./heads.js").Explored} model
 * @property {import("./runs.js").Word} random
 * @property {() => import("./runs.js").Word} word
 * @property {(tokens: number[]) => string} joined
 * @property {() => void} type
 * @property {(now: {at: import("./heads.js").HeadState, twinState: number, judged: number}) => string} verdict
 */

const MOST_TURNED = 3e8; // multiplications for one horizon

/**
 * Say what the error is, which depends on the head.
 * @param {Page} page
 */
export function showErrorAbout(page) {
  const horizon = new Horizon(page.model, 0, page.random, 0);
  const angles = "Every angle of the hardened head's permutations is multiplied by 1 + the error (an eigenvalue −1 that is alone cannot turn: it shrinks). It answers with the state it points at.";
  const numbers = "Every number of the learned head's matrices is changed at random by up to the error.";
  paragraph("error-about").textContent = horizon.head.turns ? angles : numbers;
  byId("error", HTMLInputElement).disabled = !(horizon.head.turns || page.model.judges);
}

/**
 * Put an error into a head, and see how long it lasts on the letters that are chosen.
 * @param {Page} page
 */
export function putErrorIn(page) {
  const slider = byId("error", HTMLInputElement);
  const error = Number(slider.value) ? 10 ** (-6 + (Number(slider.value) - 1) / 12) : 0;
  if (slider.disabled) {
    paragraph("error-said").textContent = "Nothing says what is right: there is neither a hardened twin nor a target.";
    return;
  }
  const first = new Horizon(page.model, error, page.word(), 0);
  const most = Math.max(1000, Math.min(LONGEST, Math.floor(MOST_TURNED / first.head.size ** 2)));
  const horizon = new Horizon(page.model, error, page.word(), most);
  slider.setAttribute("aria-valuetext", error ? `error ${briefly(error)}` : "no error");
  inSlices("error", (milliseconds) => horizon.advance(milliseconds), (finished) => {
    const said = horizon.firstWrong ? `first wrong after ${counted(horizon.firstWrong)} letters` : `right at all ${counted(horizon.done)} letters${finished ? "" : " so far"}`;
    paragraph("error-said").textContent = `${error ? `Error ${briefly(error)}` : "No error"}: ${said}.`;
  });
}

/**
 * Look for a wrong word.
 * @param {Page} page
 */
export function breakIt(page) {
  const search = breaking(page.model);
  /** @type {IteratorResult<string, import("./search.js").Breaking> | null} */
  let last = null;
  const advance = (/** @type {number} */ milliseconds) => {
    const until = performance.now() + milliseconds;
    do last = search.next();
    while (!last.done && performance.now() < until);
    return Boolean(last.done);
  };
  byId("break-show", HTMLButtonElement).hidden = true;
  inSlices("break", advance, () => {
    if (last === null) return;
    if (last.done) showBroken(page, last.value);
    else paragraph("break-said").textContent = `Looking: ${last.value} …`;
  });
}

/**
 * @param {Page} page
 * @param {import("./search.js").Breaking} broken
 */
function showBroken(page, broken) {
  const { model } = page;
  const tried = Number.isFinite(broken.triedTo)
    ? `No word of at most ${broken.triedTo} letters is wrong (${counted(broken.tried)} tried).`
    : `No word is wrong: all ${counted(broken.tried)} states that words lead to were looked at.`;
  const parts = [];
  if (broken.word === null) parts.push(`Not broken. ${tried}`);
  else {
    const run = new Run(model, repeated(broken.word), broken.word.length);
    while (!run.advance(1000));
    const now = run.standing(broken.word.length);
    parts.push(`Broken after ${counted(broken.word.length)} ${broken.word.length === 1 ? "letter" : "letters"}, ${broken.shortest ? "the shortest of all wrong words" : `the shortest found (${broken.kind})`}: ${shortened(model.spelled(broken.word), 160)}.`);
    parts.push(`There ${page.verdict(now)} Checked again from the first letter.`);
    if (!broken.shortest) parts.push(tried);
    byId("break-show", HTMLButtonElement).hidden = false;
    byId("break-show", HTMLButtonElement).onclick = () => {
      byId("word", HTMLTextAreaElement).value = page.joined(broken.word ?? []);
      page.type();
      byId("word", HTMLTextAreaElement).focus();
    };
  }
  paragraph("break-said").textContent = parts.join(" ");
  const details = byId("break-kinds", HTMLDetailsElement);
  details.hidden = !broken.kinds.length;
  details.lastElementChild?.replaceChildren(...broken.kinds.map((each) => made("li", each)));
}
