// What is proved, with every premise one click away; and what was measured beside other models.
import { byId, made } from "./elements.js";
import { briefly, counted } from "./numbers.js";

/** @typedef {import("./heads.js").PlainModel} PlainModel */

/**
 * Show the certificates of a model.
 * @param {PlainModel} model
 */
export function showProofs(model) {
  const place = byId("proofs", HTMLDivElement);
  place.replaceChildren();
  if (!model.certificates.length) {
    place.append(
      made("p", "Nothing is proved here. The command transductor certify MODEL --against … says what holds, and at which lengths."),
    );
  }
  for (const proof of model.certificates) {
    const about = made("p", "", "", [made("b", proof.verdict), document.createTextNode(`: ${proof.claim}.`)]);
    const premises = made("details", "", "premises", [made("summary", `${proof.assumptions.length} premises`)]);
    premises.append(made("ol", "", "", proof.assumptions.map((each) => made("li", each))));
    const covers = made("details", "", "", [made("summary", "Ways to run the model that it covers")]);
    covers.append(made("ul", "", "", proof.covers.map((each) => made("li", each))));
    const numbers = Object.entries(proof.numbers).map(([name, value]) => made("li", `${name}: ${value}`));
    if (proof.margin !== null) numbers.unshift(made("li", `margin: ${briefly(proof.margin)}`));
    if (proof.file) numbers.push(made("li", `file: ${proof.file}, SHA-256 ${proof.sha256}`));
    const rests = made("details", "", "", [made("summary", "What it rests on"), made("ul", "", "", numbers)]);
    place.append(made("h3", proof.of), about, made("p", `How: ${proof.method}.`), premises, covers, rests);
  }
}

/**
 * Show how right models were at each band of lengths, if that was measured.
 * @param {PlainModel} model
 */
export function showAccuracy(model) {
  byId("accuracy-section", HTMLElement).hidden = model.accuracy === null;
  if (model.accuracy === null) return;
  const { bands, counts, rows } = model.accuracy;
  const header = ["model", "what it is", ...bands.map((band, place) => `${band} (n = ${counted(counts[place])})`)];
  const lines = rows.map((row) => {
    const cells = row.shares.map((share, place) => {
      const bar = made("span", "", "bar");
      bar.style.width = `${(5 * share).toFixed(2)}rem`;
      const interval = `${(100 * row.low[place]).toFixed(0)}–${(100 * row.high[place]).toFixed(0)}`;
      return made("td", "", "", [bar, document.createTextNode(`${percent(share)} (${interval})`)]);
    });
    return made("tr", "", "", [made("th", row.name), made("td", row.kind), ...cells]);
  });
  const head = made("tr", "", "", header.map((name) => made("th", name)));
  byId("accuracy", HTMLTableElement).replaceChildren(head, ...lines);
}

/** @param {number} share */
function percent(share) {
  const text = (100 * share).toFixed(1);
  return text === "100.0" && share < 1 ? "<100%" : `${text}%`;
}
