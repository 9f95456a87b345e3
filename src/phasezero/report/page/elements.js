"use strict";
// The small pieces every part of the page is built from. All text goes in as text, never as markup.

const content = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const fixed = (value, digits = 2) => value.toFixed(digits).replace("-", "\u2212");
const signed = (value) => (value > 0 ? "+" : "") + fixed(value);
const spread = (pair) => (pair ? fixed(pair[0]) + (pair[1] === null ? "" : ` ± ${fixed(pair[1])}`) : "–");
// Pointing: a mouse that moves, or a finger that is put down, whose value stays when it is lifted.
function onPointing(element, point, leave) {
  for (const kind of ["pointermove", "pointerdown"]) element.addEventListener(kind, point);
  element.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") leave();
  });
  element.addEventListener("blur", leave);
}

// In a column with deviations the means stay aligned, even if a single run has no deviation.
const aligned = (pair, deviates, note = null) =>
  pair && deviates
    ? [fixed(pair[0]), make("span", { class: "sd" }, pair[1] === null ? "" : ` ± ${fixed(pair[1])}`, note)]
    : spread(pair);
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const sum = (values) => values.reduce((total, value) => total + value, 0);
const percent = (part, whole) => `${fixed((100 * part) / whole, 1)} %`;
const distinct = (values) => [...new Set(values)];

function duration(seconds) {
  if (seconds < 100) return `${seconds < 10 ? seconds.toFixed(2) : seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 100 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Colour, dash and marker repeat with the periods 7, 5 and 8: no two of 280 lines look alike, nor of 40 in grey.
const COLOURS = 7;
const DASHES = ["", "7 3", "8 3 2 3", "2 3", "10 3 2 3 2 3"];
const MARKERS = [
  "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
  "M-3.6-3.6h7.2v7.2h-7.2z",
  "M0-4.8L4.4 3.4H-4.4z",
  "M0-5L5 0L0 5L-5 0z",
  "M0 4.8L4.4-3.4H-4.4z",
  "M-1.6-4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",
  "M-4.4-2.2L-2.2-4.4L0-2.2L2.2-4.4L4.4-2.2L2.2 0L4.4 2.2L2.2 4.4L0 2.2L-2.2 4.4L-4.4 2.2L-2.2 0z",
  "M-4.8 0L3.4-4.4V4.4z",
];
const colourClass = (index) => `line line-${index % COLOURS}`;
const dash = (index) => DASHES[index % DASHES.length];
const marker = (index, x, y) =>
  draw("path", { d: MARKERS[index % MARKERS.length], class: "marker", transform: `translate(${x} ${y})` });

const swatch = (index) =>
  draw(
    "svg",
    { class: `swatch ${colourClass(index)}`, viewBox: "0 0 36 14", width: 36, height: 14, "aria-hidden": "true" },
    draw("path", { d: "M1 7H35", class: "curve", "stroke-dasharray": dash(index) }),
    marker(index, 18, 7),
  );

// A column is {name, value: row => text or nodes, key: row => what to sort by, number, head}. `sections` are
// [heading, rows] pairs; rows are sorted within their section.
function table(caption, columns, sections, { id = "", shaded = false } = {}) {
  const body = (heading, rows) =>
    make(
      "tbody",
      {},
      heading
        ? make(
            "tr",
            {},
            make(
              "th",
              { colspan: columns.length, scope: "rowgroup", class: "section" },
              make("span", { class: "stay" }, heading),
            ),
          )
        : null,
      rows.map((row) =>
        make(
          "tr",
          {},
          columns.map((column, place) => {
            const cell = column.value(row);
            const attributes = { class: column.number ? "number" : "" };
            return place === 0 ? make("th", { scope: "row", ...attributes }, cell) : make("td", attributes, cell);
          }),
        ),
      ),
    );
  const bodies = (order) => sections.map(([heading, rows]) => body(heading, order ? [...rows].sort(order) : rows));
  const heads = columns.map((column) => {
    const attributes = { scope: "col", class: column.number ? "number" : "" };
    if (!column.key) return make("th", attributes, column.name);
    const head = make(
      "th",
      attributes,
      make("button", { type: "button", onclick: () => sortBy(column, head) }, column.name),
    );
    return head;
  });
  function sortBy(column, head) {
    const down = head.getAttribute("aria-sort")
      ? head.getAttribute("aria-sort") === "ascending"
      : Boolean(column.number);
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = (a, b) => {
      const [x, y] = [column.key(a), column.key(b)];
      if (x === null || y === null) return (x === null) - (y === null); // missing values come last
      return (down ? -1 : 1) * (x < y ? -1 : x > y ? 1 : 0);
    };
    whole.querySelectorAll("tbody").forEach((old) => old.remove());
    whole.append(...bodies(order));
  }
  const whole = make(
    "table",
    id ? { id } : {},
    make("caption", {}, make("span", { class: "stay" }, caption)),
    make("thead", {}, make("tr", {}, heads)),
    bodies(null),
  );
  if (shaded) whole.classList.add("shaded");
  return framed(whole, caption);
}

// A table that is wider than its container ends with a whole column, so that no number is cut, and a line below it
// shows how many more columns there are.
function framed(whole, caption) {
  const scroll = make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, whole);
  const more = make("p", { class: "more", "aria-hidden": "true", hidden: true });
  const place = make("div", {}); // as wide as there is room, and never higher: what fit() does cannot resize it
  const heads = [...whole.tHead.rows[0].cells];
  const end = (head) => head.offsetLeft + head.offsetWidth;
  function count() {
    const hidden = heads.filter((head) => end(head) > scroll.scrollLeft + scroll.clientWidth + 1).length;
    more.hidden = hidden === 0;
    more.textContent = `${plural(hidden, "more column")} \u2192`;
  }
  function fit() {
    scroll.style.width = "";
    const cut = heads.findIndex((head) => end(head) > scroll.clientWidth + 1);
    if (cut > 1 && heads[cut].classList.contains("number")) scroll.style.width = `${end(heads[cut - 1])}px`;
    count();
  }
  scroll.addEventListener("scroll", count, { passive: true });
  new ResizeObserver(fit).observe(place);
  return make("div", {}, place, scroll, more);
}

// Names may break after a slash or a plus, which is easier to read than a break in the middle of a word.
const breakable = (name) => name.split(/(?<=[/+])/).flatMap((piece, at) => (at ? [make("wbr"), piece] : [piece]));
const named = (index, label) => make("span", { class: "run" }, swatch(index), make("span", {}, breakable(label)));

const fact = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
const folded = (summary, ...children) => make("details", {}, make("summary", {}, summary), children);
