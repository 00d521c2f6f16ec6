// Pictures by hand: the machine with its lit state, the plane in which states move, and drift against length.
import { counted } from "./numbers.js";

/** @typedef {[number, number]} Point */
/**
 * @typedef {object} DrawnMachine
 * @property {number[][]} transitions
 * @property {string[]} names What is written in each state.
 * @property {string[]} letters
 * @property {number} start
 * @property {number | null} sink
 */

const NAMESPACE = "http://www.w3.org/2000/svg";
const MOST_NODES = 16; // drawn with arrows between all of them; more are a ring
const MOST_ARROWS = 48;
const MOST_FAINT = 1200;
const COLOURS = ["#2f6fd0", "#d1495b", "#2f9a63", "#d98219", "#8459bd", "#1f9aa5", "#967046", "#d4669b"];

/**
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 * @returns {SVGElement}
 */
export function svgElement(tag, attributes, text) {
  const element = /** @type {SVGElement} */ (document.createElementNS(NAMESPACE, tag));
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  }
  if (text !== undefined) element.textContent = text;
  return element;
}

/**
 * Return one colour for each state: distinct ones for few, a wheel for many.
 * @param {number} state
 * @param {number} count
 */
export function stateColour(state, count) {
  return count <= COLOURS.length ? COLOURS[state] : `hsl(${Math.round((360 * state) / count)} 62% 52%)`;
}

/**
 * @param {string} text
 * @param {number} most
 */
export function shortened(text, most) {
  const characters = Array.from(text);
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join("")}…`;
}

/** A machine as a graph or a ring, in which one state at a time is lit. */
export class MachinePicture {
  /**
   * @param {SVGSVGElement} svg
   * @param {DrawnMachine} machine
   */
  constructor(svg, machine) {
    this.svg = svg;
    this.machine = machine;
    const count = machine.transitions.length;
    /** @type {number[]} */
    this.shown = machine.transitions.map((_, state) => state).filter((state) => state !== machine.sink);
    /** @type {Map<string, string[]>} */
    this.arrows = new Map();
    machine.transitions.forEach((row, from) =>
      row.forEach((to, letter) => {
        if (from === machine.sink || to === machine.sink) return;
        const key = `${from} ${to}`;
        this.arrows.set(key, [...(this.arrows.get(key) ?? []), machine.letters[letter]]);
      }),
    );
    this.ring = this.shown.length > MOST_NODES || this.arrows.size > MOST_ARROWS;
    this.places = placesOnCircle(this.shown, this.ring ? [] : [...this.arrows.keys()], machine.start, this.ring);
    this.radius = this.ring ? Math.max(2.2, 9 - this.shown.length / 16) : this.shown.length > 9 ? 15 : 20;
    svg.setAttribute("viewBox", "0 0 360 330");
    this.head = `head-of-${svg.id}`;
    svg.replaceChildren(arrowHead(this.head));
    this.faint = svgElement("g", { class: "faint" });
    this.lit = svgElement("g", { class: "lit" });
    svg.append(this.faint, this.lit);
    /** @type {Map<number, SVGElement>} */
    this.nodes = new Map();
    if (this.ring) this.drawRing();
    else for (const [key, read] of this.arrows) this.drawArrow(this.faint, key, read);
    for (const state of this.shown) {
      const [x, y] = this.place(state);
      const node = svgElement("circle", { cx: x, cy: y, r: this.radius, fill: stateColour(state, count), class: "node" });
      this.nodes.set(state, node);
      svg.append(node);
      if (!this.ring) {
        const name = shortened(machine.names[state], this.radius > 15 ? 7 : 5);
        const size = name.length > 4 ? 9 : 13;
        const twice = machine.names.indexOf(machine.names[state]) !== machine.names.lastIndexOf(machine.names[state]);
        svg.append(svgElement("text", { x, y: y + size / 3 - (twice ? 3 : 0), class: "name", "font-size": size }, name));
        if (twice) svg.append(svgElement("text", { x, y: y + 12, class: "name", "font-size": 8 }, String(state)));
      }
    }
  }

  /**
   * @param {number} state
   * @returns {Point}
   */
  place(state) {
    return this.places.get(state) ?? [180, 165];
  }

  drawRing() {
    if (this.arrows.size > MOST_FAINT) return;
    for (const key of this.arrows.keys()) {
      const [from, to] = key.split(" ").map((each) => this.place(Number(each)));
      if (from !== to) this.faint.append(svgElement("path", { d: chord(from, to), class: "arc" }));
    }
  }

  /**
   * @param {SVGElement} into
   * @param {string} key
   * @param {string[]} read
   */
  drawArrow(into, key, read) {
    const [one, other] = key.split(" ").map(Number);
    const [from, to] = [this.place(one), this.place(other)];
    const back = this.arrows.has(`${other} ${one}`);
    const { path, label } = one === other ? loop(from, this.radius) : arrow(from, to, this.radius, back);
    into.append(svgElement("path", { d: path, class: "arc", "marker-end": `url(#${this.head})` }));
    const text = shortened(read.join(" "), 14);
    into.append(svgElement("text", { x: label[0], y: label[1] + 4, class: "letter" }, text));
  }

  /**
   * Light a state, and the arrow by which it was reached.
   * @param {number | null} state
   * @param {number | null} before
   */
  light(state, before) {
    this.lit.replaceChildren();
    for (const [each, node] of this.nodes) node.classList.toggle("current", each === state);
    if (state === null) return;
    if (this.ring) {
      for (const [key, read] of this.arrows) {
        if (Number(key.split(" ")[0]) === state) this.drawArrow(this.lit, key, read);
      }
      const [x, y] = this.place(state);
      this.lit.append(svgElement("circle", { cx: x, cy: y, r: this.radius + 5, class: "halo" }));
      this.lit.append(
        svgElement("text", { x: 180, y: 165, class: "middle" }, shortened(this.machine.names[state], 16)),
      );
    } else if (before !== null) {
      const key = `${before} ${state}`;
      const read = this.arrows.get(key);
      if (read !== undefined) this.drawArrow(this.lit, key, read);
    }
  }
}

/** @param {string} id */
function arrowHead(id) {
  const definitions = svgElement("defs", {});
  const head = svgElement("marker", {
    id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto",
    markerUnits: "userSpaceOnUse",
  });
  head.append(svgElement("path", { d: "M0 0 8 4 0 8z", class: "tip" }));
  definitions.append(head);
  return definitions;
}

/**
 * Place states on a circle, the start at the top; where arrows are drawn, in an order in which few of them cross.
 * @param {number[]} states
 * @param {string[]} arrows
 * @param {number} start
 * @param {boolean} ring
 * @returns {Map<number, Point>}
 */
function placesOnCircle(states, arrows, start, ring) {
  let order = [...states].sort((one, other) => Number(other === start) - Number(one === start) || one - other);
  const ends = arrows.map((key) => key.split(" ").map(Number)).filter(([from, to]) => from !== to);
  let best = tangle(order, ends);
  for (let improved = ends.length > 1; improved; ) {
    improved = false;
    for (let one = 1; one < order.length; one++) {
      for (let other = 1; other < order.length; other++) {
        const tried = [...order];
        tried.splice(other, 0, ...tried.splice(one, 1));
        const cost = tangle(tried, ends);
        if (cost < best - 1e-9) [order, best, improved] = [tried, cost, true];
      }
    }
  }
  const radius = states.length === 1 ? 0 : ring ? 128 : 108;
  return new Map(
    order.map((state, place) => {
      const angle = (2 * Math.PI * place) / order.length - Math.PI / 2;
      return [state, /** @type {Point} */ ([180 + radius * Math.cos(angle), 165 + radius * Math.sin(angle)])];
    }),
  );
}

/**
 * Return how many chords cross, and a little for their lengths.
 * @param {number[]} order
 * @param {number[][]} ends
 */
function tangle(order, ends) {
  const place = new Map(order.map((state, number) => [state, number]));
  const chords = ends.map(([from, to]) => {
    const [one, other] = [place.get(from) ?? 0, place.get(to) ?? 0];
    return one < other ? [one, other] : [other, one];
  });
  let cost = 0;
  chords.forEach(([low, high], number) => {
    cost += 0.3 * Math.min(high - low, order.length - high + low);
    for (const [least, most] of chords.slice(0, number)) {
      if ((low < least && least < high && high < most) || (least < low && low < most && most < high)) cost++;
    }
  });
  return cost;
}

/**
 * @param {Point} from
 * @param {Point} to
 */
function chord([x, y], [u, v]) {
  const [cx, cy] = [(x + u) / 2, (y + v) / 2];
  return `M${x.toFixed(1)} ${y.toFixed(1)}Q${(180 + (cx - 180) * 0.55).toFixed(1)} ${(165 + (cy - 165) * 0.55).toFixed(1)} ${u.toFixed(1)} ${v.toFixed(1)}`;
}

/**
 * @param {Point} from
 * @param {Point} to
 * @param {number} radius
 * @param {boolean} back Whether there is an arrow the other way too.
 * @returns {{path: string, label: Point}}
 */
function arrow([x, y], [u, v], radius, back) {
  const length = Math.hypot(u - x, v - y) || 1;
  const [dx, dy] = [(u - x) / length, (v - y) / length];
  const bend = back ? Math.min(26, length / 5) : 8;
  const [cx, cy] = [(x + u) / 2 + dy * bend, (y + v) / 2 - dx * bend];
  const begun = towards([x, y], [cx, cy], radius + 1);
  const ended = towards([u, v], [cx, cy], radius + 2);
  const label = /** @type {Point} */ ([0.25 * x + 0.5 * cx + 0.25 * u + dy * 8, 0.25 * y + 0.5 * cy + 0.25 * v - dx * 8]);
  const path = `M${begun.map((each) => each.toFixed(1)).join(" ")}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${ended.map((each) => each.toFixed(1)).join(" ")}`;
  return { path, label };
}

/**
 * @param {Point} from
 * @param {Point} to
 * @param {number} far
 * @returns {Point}
 */
function towards([x, y], [u, v], far) {
  const length = Math.hypot(u - x, v - y) || 1;
  return [x + ((u - x) * far) / length, y + ((v - y) * far) / length];
}

/**
 * @param {Point} at
 * @param {number} radius
 * @returns {{path: string, label: Point}}
 */
function loop([x, y], radius) {
  const out = x === 180 && y === 165 ? -Math.PI / 2 : Math.atan2(y - 165, x - 180);
  const spot = (/** @type {number} */ angle, /** @type {number} */ far) =>
    /** @type {Point} */ ([x + far * Math.cos(angle), y + far * Math.sin(angle)]);
  const [begun, ended] = [spot(out - 0.5, radius + 1), spot(out + 0.5, radius + 2)];
  const [one, other] = [spot(out - 0.55, radius + 27), spot(out + 0.55, radius + 27)];
  const path = `M${begun.map((each) => each.toFixed(1)).join(" ")}C${[...one, ...other, ...ended].map((each) => each.toFixed(1)).join(" ")}`;
  return { path, label: spot(out, radius + 29) };
}

/**
 * Draw states in their principal plane: representatives, the way that was gone, and where learned and hardened are.
 * @param {SVGSVGElement} svg
 * @param {{centres: Point[], names: string[], trail: Point[], learned: Point, hardened: Point | null, scale: number}} seen
 */
export function drawPlane(svg, seen) {
  svg.setAttribute("viewBox", "0 0 360 330");
  const factor = 150 / (seen.scale || 1);
  /** @param {Point} point @returns {Point} */
  const at = ([x, y]) => [
    180 + Math.max(-172, Math.min(172, x * factor)) || 180,
    165 - Math.max(-157, Math.min(157, y * factor)) || 165,
  ];
  /** @type {SVGElement[]} */
  const parts = [];
  const count = seen.centres.length;
  seen.centres.forEach((centre, state) => {
    const [x, y] = at(centre);
    parts.push(svgElement("circle", { cx: x, cy: y, r: count > 24 ? 4 : 12, fill: stateColour(state, count), class: "centre" }));
    if (count <= 24) parts.push(svgElement("text", { x, y: y + 4, class: "name", "font-size": 9 }, shortened(seen.names[state], 5)));
  });
  if (seen.trail.length > 1) {
    const points = seen.trail.map((point) => at(point).map((each) => each.toFixed(1)).join(",")).join(" ");
    parts.push(svgElement("polyline", { points, class: "trail" }));
  }
  for (const point of seen.trail) {
    const [cx, cy] = at(point);
    parts.push(svgElement("circle", { cx, cy, r: 1.8, class: "step" }));
  }
  if (seen.hardened !== null) {
    const [x, y] = at(seen.hardened);
    parts.push(svgElement("rect", { x: x - 12, y: y - 12, width: 24, height: 24, transform: `rotate(45 ${x.toFixed(1)} ${y.toFixed(1)})`, class: "hardened" }));
  }
  const [x, y] = at(seen.learned);
  parts.push(svgElement("circle", { cx: x, cy: y, r: 7, class: "learned" }));
  svg.replaceChildren(...parts);
}

/**
 * Draw how far the learned state is from where it should be, against length, with a strip that shows mistakes.
 * @param {SVGSVGElement} svg
 * @param {{drift: Float32Array, wrong: Uint8Array, done: number, length: number, limit: number, at: number,
 *   judges: boolean}} run
 */
export function drawDrift(svg, run) {
  const [left, right, top, bottom] = [46, 348, 12, 176];
  svg.setAttribute("viewBox", "0 0 360 232");
  const last = Math.log(Math.max(2, run.length));
  const x = (/** @type {number} */ length) => left + ((right - left) * Math.log(Math.max(1, length))) / last;
  const bins = [];
  for (let bin = 0, from = 1; bin < 100 && from <= run.done; bin++) {
    const to = Math.min(run.done, Math.max(from, Math.floor(Math.exp((last * (bin + 1)) / 100))));
    let [most, wrong] = [0, 0];
    for (let place = from; place <= to; place++) {
      if (run.drift[place] > most) most = run.drift[place];
      wrong += run.wrong[place];
    }
    bins.push({ from, to, most, share: wrong / (to - from + 1) });
    from = to + 1;
  }
  const positive = bins.map((bin) => bin.most).filter((most) => most > 0 && Number.isFinite(most));
  const finite = Number.isFinite(run.limit);
  const most = Math.min(1e6, Math.max(...positive, finite ? 4 * run.limit : 0, 1e-9));
  const least = Math.max(Math.min(...positive, most) / 2, most / 1e8);
  const y = (/** @type {number} */ gap) => {
    const share = Math.log(Math.min(most, Math.max(least, gap)) / least) / Math.log(most / least);
    return bottom - (bottom - top) * share;
  };
  const parts = [svgElement("rect", { x: left, y: top, width: right - left, height: bottom - top, class: "frame" })];
  for (let power = 0; 10 ** power <= run.length; power++) {
    parts.push(svgElement("line", { x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: bottom, class: "grid" }));
    const last = 10 ** (power + 1) > run.length;
    parts.push(
      svgElement("text", { x: x(10 ** power) + (last ? 8 : 0), y: bottom + 34, class: last ? "tick end" : "tick" }, counted(10 ** power)),
    );
  }
  for (let power = Math.ceil(Math.log10(least)); 10 ** power <= most; power++) {
    if (Math.log10(most / least) > 5 && power % 2) continue;
    parts.push(svgElement("text", { x: left - 5, y: y(10 ** power) + 4, class: "tick end" }, power === 0 ? "1" : power > 0 ? `10${power === 1 ? "" : superscript(power)}` : `10${superscript(power)}`));
  }
  let halfway = null;
  if (finite) {
    parts.push(svgElement("line", { x1: left, x2: right, y1: y(run.limit), y2: y(run.limit), class: "halfway" }));
    const high = y(run.limit) < top + 24; // then the line's upper side is where the drift goes
    halfway = svgElement("text", { x: high ? right - 6 : left + 6, y: y(run.limit) + (high ? 18 : -5), class: high ? "note end" : "note" }, "half-way to another state");
  }
  const path = bins.filter((bin) => bin.most > 0).map((bin) => `${x((bin.from + bin.to) / 2).toFixed(1)},${y(bin.most).toFixed(1)}`);
  if (path.length) parts.push(svgElement("polyline", { points: path.join(" "), class: "drift" }));
  if (halfway !== null) parts.push(halfway);
  if (run.judges) {
    for (const bin of bins) {
      if (bin.share > 0) {
        const [from, to] = [x(bin.from - 0.5), x(bin.to + 0.5)];
        parts.push(svgElement("rect", { x: from, y: bottom + 6, width: Math.max(1, to - from), height: 9, class: "wrong", opacity: 0.25 + 0.75 * bin.share }));
      }
    }
    parts.push(svgElement("rect", { x: left, y: bottom + 6, width: right - left, height: 9, class: "frame" }));
    parts.push(svgElement("text", { x: left - 5, y: bottom + 14, class: "tick end" }, "wrong"));
  }
  parts.push(svgElement("line", { x1: x(run.at), x2: x(run.at), y1: top, y2: bottom + 18, class: "cursor" }));
  parts.push(svgElement("text", { x: (left + right) / 2, y: bottom + 50, class: "axis" }, "letters read"));
  svg.replaceChildren(...parts);
}

/** @param {number} power */
function superscript(power) {
  return Array.from(String(power), (digit) => ({ "-": "⁻" })[digit] ?? "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("");
}
