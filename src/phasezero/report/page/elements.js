// The pieces every part of the page is built from. All text goes in as text, never as markup.

const content = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => ![null, undefined, false].includes(child)));
  return element;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Replace what is in an element; the keyboard stays where it was.
function refill(box, ...children) {
  const focused = box.contains(document.activeElement) ? document.activeElement.id : "";
  box.replaceChildren(...children.flat(Infinity).filter((child) => child !== null));
  if (focused) byId(focused)?.focus({ preventScroll: true });
}

// Pointing: a mouse that moves, or a finger that is put down, whose value stays when it is lifted.
function onPointing(element, point, leave) {
  for (const kind of ["pointermove", "pointerdown"]) element.addEventListener(kind, point);
  element.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") leave();
  });
  element.addEventListener("blur", leave);
}

// Names may break after a mark, which is easier to read than a break in the middle of a word.
const breakable = (name) =>
  name.split(/(?<=[/+,=_])|(?<=\.)(?=[a-z])/).flatMap((piece, at) => (at ? [make("wbr"), piece] : [piece]));
const button = (text, onclick, attributes = {}) => make("button", { type: "button", onclick, ...attributes }, text);
const fact = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
const option = (value, text) => make("option", { value }, text);

// Built when it is opened for the first time.
function folded(summary, build) {
  const whole = make("details", {}, make("summary", {}, summary));
  whole.addEventListener("toggle", () => whole.append(build()), { once: true });
  return whole;
}

// What a reader saves: a file of its own, made here.
function save(name, suffix, data) {
  const url = URL.createObjectURL(
    new Blob([data], { type: { csv: "text/csv", svg: "image/svg+xml" }[suffix] ?? "image/png" }),
  );
  make("a", {
    href: url,
    download: `${name
      .replace(/[^\w.-]+/g, "-")
      .replace(/^-|-$/g, "")
      .toLowerCase()}.${suffix}`,
  }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
const downloads = (what, makers) =>
  make(
    "span",
    { class: "downloads" },
    Object.entries(makers).map(([suffix, start]) =>
      button(suffix.toUpperCase(), start, { "aria-label": `Download ${suffix.toUpperCase()}: ${what}` }),
    ),
  );

// A column is {name, get: row => text, number, [mean, deviation] or null, show: row => text or nodes, number, digits, kind}.
// `sections` are [heading, rows] pairs; rows are sorted within their section. `csv` are other columns for the file.
function table(caption, columns, sections, { id = "", kind = "", csv = columns, sortable = true } = {}) {
  const all = sections.flatMap(([, rows]) => rows);
  const isPair = (value) => Array.isArray(value);
  const deviates = new Map(columns.map((column) => [column, all.some((row) => column.get(row)?.[1] > -1)]));
  const shown = (column, row) => {
    const value = column.get(row);
    if (column.show) return column.show(row);
    if (value === null || value === undefined) return "–";
    if (typeof value === "number") return column.digits === undefined ? String(value) : fixed(value, column.digits);
    if (!isPair(value)) return value;
    if (!deviates.get(column)) return fixed(value[0]);
    // In a column with deviations the means stay aligned, even if a single run has no deviation.
    return [fixed(value[0]), make("span", { class: "sd" }, value[1] === null ? "" : ` ± ${fixed(value[1])}`)];
  };
  const body = ([heading, rows], order) =>
    make(
      "tbody",
      {},
      heading &&
        make(
          "tr",
          {},
          make(
            "th",
            { colspan: columns.length, scope: "rowgroup", class: "section" },
            make("span", { class: "stay" }, heading),
          ),
        ),
      (order ? [...rows].sort(order) : rows).map((row) =>
        make(
          "tr",
          {},
          columns.map((column, place) =>
            make(
              place ? "td" : "th",
              { scope: place ? null : "row", class: column.number ? "number" : column.kind },
              shown(column, row),
            ),
          ),
        ),
      ),
    );
  const heads = columns.map((column) => {
    const head = make("th", { scope: "col", class: column.number ? "number" : null });
    head.append(sortable ? button(column.name, () => sortBy(column, head)) : column.name);
    return head;
  });
  function sortBy(column, head) {
    const was = head.getAttribute("aria-sort");
    const down = was ? was === "ascending" : Boolean(column.number);
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => (isPair(column.get(row)) ? column.get(row)[0] : column.get(row)) ?? null;
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null); // missing values come last
      return (down ? -1 : 1) * (x < y ? -1 : x > y ? 1 : 0);
    };
    [...whole.tBodies].forEach((old) => old.remove());
    whole.append(...sections.map((section) => body(section, order)));
  }
  const file = id || caption.slice(0, 50);
  const tools = downloads(caption, { csv: () => save(`phasezero ${file}`, "csv", tableText(csv, sections)) });
  const whole = make(
    "table",
    { id: id || null, class: kind || null },
    make("caption", {}, make("span", { class: "stay" }, caption, " ", tools)),
    make("thead", {}, make("tr", {}, heads)),
    sections.map((section) => body(section, null)),
  );
  return framed(whole, caption);
}

function tableText(columns, sections) {
  const all = sections.flatMap(([, rows]) => rows);
  const headed = sections.some(([heading]) => heading);
  const fields = columns.flatMap(({ name, get }) =>
    all.some((row) => Array.isArray(get(row)))
      ? [
          [name, (row) => get(row)?.[0]],
          [`${name} std`, (row) => get(row)?.[1]],
        ]
      : [[name, get]],
  );
  const lines = sections.flatMap(([heading, rows]) =>
    rows.map((row) => [...(headed ? [heading] : []), ...fields.map(([, get]) => get(row))]),
  );
  return commaSeparated([[...(headed ? ["set"] : []), ...fields.map(([name]) => name)], ...lines]);
}

// A table that is wider than its container ends with a whole column, so that nothing is cut, and a line below it
// shows how many more columns there are.
function framed(whole, caption) {
  const scroll = make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, whole);
  const more = make("p", { class: "more", "aria-hidden": "true", hidden: true });
  const place = make("div", {}); // as wide as there is room, and never higher: what fit() does cannot resize it
  const [, ...heads] = whole.tHead.rows[0].cells; // the first column stays
  const end = (head) => head.getBoundingClientRect().right - scroll.getBoundingClientRect().left;
  function count() {
    const hidden = heads.filter((head) => end(head) > scroll.clientWidth + 1).length;
    more.hidden = hidden === 0;
    more.textContent = `${plural(hidden, "more column")} \u2192`;
  }
  function fit() {
    scroll.style.width = "";
    const cut = heads.findIndex((head) => end(head) + scroll.scrollLeft > scroll.clientWidth + 1);
    if (cut > 0) scroll.style.width = `${end(heads[cut - 1]) + scroll.scrollLeft}px`;
    count();
  }
  scroll.addEventListener("scroll", count, { passive: true });
  new ResizeObserver(fit).observe(place);
  return make("div", {}, place, scroll, more);
}
