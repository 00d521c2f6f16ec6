// XML as JFLAP writes it: elements, attributes, text and the five entities; every error names its line.

/** @typedef {{tag: string, attributes: Map<string, string>, children: Element[], text: string, line: number}} Element */

const MOST_DEEP = 50;
const TOKEN = /<!--[\s\S]*?-->|<\?[\s\S]*?\?>|<!\[CDATA\[[\s\S]*?\]\]>|<\/?[^<>"']*(?:(?:"[^"<]*"|'[^'<]*')[^<>"']*)*>|[^<]+|</g;
/** @type {Record<string, string>} */
const ENTITIES = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'" };

/**
 * Return the root element of a document.
 * @param {string} text
 * @returns {Element}
 */
export function parsedXml(text) {
  const type = text.search(/<!(DOCTYPE|ENTITY)/i);
  if (type >= 0) throw new Error(`line ${text.slice(0, type).split("\n").length}: document types are refused`);
  const root = element("", new Map(), 1);
  const open = [root];
  let line = 1;
  for (const [token] of text.replace(/^\ufeff/, "").matchAll(TOKEN)) {
    const inside = open[open.length - 1];
    const error = (/** @type {string} */ reason) => new Error(`line ${line}: not XML: ${reason}`);
    if (token.startsWith("<![CDATA[")) inside.text += token.slice(9, -3);
    else if (token.startsWith("</")) {
      const tag = token.slice(2, -1).trim();
      if (open.length === 1 || inside.tag !== tag) throw error(`</${tag}> closes nothing that is open`);
      open.pop();
    } else if (token.startsWith("<!--") || token.startsWith("<?")) {
      // Comments and declarations say nothing of the automaton.
    } else if (token.startsWith("<")) {
      const match = /^<([A-Za-z_][\w.:-]*)((?:\s+[\w.:-]+\s*=\s*(?:"[^"]*"|'[^']*'))*)\s*(\/?)>$/.exec(token);
      if (match === null) throw error(`${JSON.stringify(token.slice(0, 40))} is no tag`);
      const attributes = new Map();
      for (const [, name, quoted] of match[2].matchAll(/([\w.:-]+)\s*=\s*("[^"]*"|'[^']*')/g)) {
        attributes.set(name, plain(quoted.slice(1, -1), error));
      }
      const made = element(match[1], attributes, line);
      inside.children.push(made);
      if (!match[3]) open.push(made);
      if (open.length > MOST_DEEP) throw error("elements are nested too deeply");
    } else if (open.length > 1) inside.text += plain(token, error);
    else if (token.trim()) throw error("text outside of the root");
    line += token.split("\n").length - 1;
  }
  if (open.length > 1) throw new Error(`line ${line}: not XML: <${open[open.length - 1].tag}> is not closed`);
  if (root.children.length !== 1) throw new Error(`line ${line}: not XML: one root is needed; there are ${root.children.length}`);
  return root.children[0];
}

/**
 * @param {string} tag
 * @param {Map<string, string>} attributes
 * @param {number} line
 * @returns {Element}
 */
function element(tag, attributes, line) {
  return { tag, attributes, children: [], text: "", line };
}

/**
 * Return text with its entities resolved.
 * @param {string} text
 * @param {(reason: string) => Error} error
 */
function plain(text, error) {
  return text.replace(/&([^;\s&]{0,12});?/g, (whole, name) => {
    const code = /^#x[0-9a-f]+$/i.test(name) ? parseInt(name.slice(2), 16) : /^#\d+$/.test(name) ? Number(name.slice(1)) : -1;
    if (code >= 0 && code <= 0x10ffff) return String.fromCodePoint(code);
    if (ENTITIES[name] === undefined || !whole.endsWith(";")) throw error(`the entity ${whole} is not known`);
    return ENTITIES[name];
  });
}
