// Plain numbers: arrays out of the page's data, random numbers from a seed, and numbers as text.

/** @typedef {{dtype: "float32" | "float64", shape: number[], data: string}} PlainArray */

/**
 * Return the numbers of an array that was written as little-endian bytes in base64.
 * @param {PlainArray} plain
 * @returns {Float32Array | Float64Array}
 */
export function decodedArray(plain) {
  const text = atob(plain.data);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  const view = new DataView(bytes.buffer);
  const single = plain.dtype === "float32";
  const count = bytes.length / (single ? 4 : 8);
  const values = single ? new Float32Array(count) : new Float64Array(count);
  for (let place = 0; place < count; place++) {
    values[place] = single ? view.getFloat32(4 * place, true) : view.getFloat64(8 * place, true);
  }
  return values;
}

/**
 * Return a source of random whole numbers below a bound, the same for the same seed (mulberry32).
 * @param {number} seed
 * @returns {(bound: number) => number}
 */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return (bound) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296) * bound);
  };
}

/**
 * Return whole numbers from 1 to a length, evenly spaced by their logarithms, each once.
 * @param {number} length
 * @param {number} count
 */
export function spacedLengths(length, count) {
  /** @type {Set<number>} */
  const lengths = new Set();
  for (let step = 0; step < count; step++) lengths.add(Math.round(length ** (step / (count - 1))));
  return [...lengths].filter((each) => each >= 1 && each <= length);
}

/**
 * Write a whole number with thin spaces between thousands.
 * @param {number} value
 */
export function counted(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/**
 * Write a number with three significant digits.
 * @param {number} value
 */
export function briefly(value) {
  if (!Number.isFinite(value)) return "too large for its format";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e4 ? String(Number(value.toPrecision(3))) : value.toExponential(1).replace("e-", "e−");
}
