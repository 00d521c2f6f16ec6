// Answers questions about models and automata with the page's own modules; questions come as JSON on standard input.
import { readFileSync } from "node:fs";

const folder = process.argv[2];
const from = (name) => import(`${folder}/${name}.js`);
const { Explored } = await from("heads");
const { Horizon, LONGEST, Run, repeated, randomWord } = await from("runs");
const { breaking } = await from("search");
const { algebra, smallest } = await from("machines");
const { parsedRegex } = await from("regex");
const { parsedAtt, parsedJflap } = await from("files");
const { AlteredHead } = await from("altered");

const questions = JSON.parse(readFileSync(0, "utf8"));

function refusedOr(work) {
  try {
    return work();
  } catch (error) {
    return { error: error.message };
  }
}

function described(arcs) {
  const machine = smallest(arcs);
  return { ...machine, algebra: algebra(machine), notes: arcs.notes ?? [] };
}

function modelAnswers({ plain, words, long, periods, errors, search }) {
  const model = new Explored(plain);
  const states = words.map((word) => {
    const at = model.soft.begun();
    for (const letter of word) model.soft.step(at, letter);
    return { state: Array.from(at.state), logits: model.soft.read(at), says: model.says(at) };
  });
  let twin = model.twin?.start ?? 0;
  const hardened = model.twin === null ? [] : long.map((letter) => model.twin.labels[(twin = model.twin.transitions[twin][letter])]);
  const runs = periods.map((period) => {
    const run = new Run(model, repeated(period), LONGEST);
    while (!run.advance(1000));
    const { firstWrong, firstBeyond, firstTwinWrong, mistakes } = run;
    const standing = run.standing(777);
    return { firstWrong, firstBeyond, firstTwinWrong, mistakes, state: Array.from(standing.at.state), twin: standing.twinState };
  });
  const horizons = errors.map(([error, period]) => {
    const horizon = new Horizon(model, error, repeated(period), LONGEST);
    while (!horizon.advance(1000));
    return horizon.firstWrong;
  });
  const broken = search ? [...[breaking(model)].map((s) => { for (;;) { const { value, done } = s.next(); if (done) return value; } })][0] : null;
  const word = randomWord(model, 1);
  return {
    reads: model.reads, judges: model.judges, limit: model.view.limit, states, hardened, runs, horizons, broken,
    turns: new AlteredHead(model, 0).turns, random: Array.from({ length: 200 }, (_, place) => word(place)),
  };
}

process.stdout.write(
  JSON.stringify({
    models: questions.models.map(modelAnswers),
    regexes: questions.regexes.map(([pattern, letters]) => refusedOr(() => described(parsedRegex(pattern, letters)))),
    jflap: questions.jflap.map((text) => refusedOr(() => described(parsedJflap(text)))),
    att: questions.att.map((text) => refusedOr(() => described(parsedAtt(text)))),
  }),
);
