// A chart of lines or points that responds to the pointer and the arrow keys, with its legend and its downloads.

const MOST_MARKERS = 13; // S=2 has 26 phases; more markers than this merge into a band
const MOST_NAMED = 9; // lines named next to the pointer
const MOST_LISTED = 30; // lines named in the legend
const ROW = 20; // height of a line of the legend

function ticks(low, high, most) {
  const rough = (high - low || 1) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9); tick * step <= high + 1e-9 * step; tick++) found.push(tick * step + 0); // not -0
  return { step, found };
}

// 1, 2 and 5 times the powers of ten, or equal steps where the axis has few of these.
function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
    found.push(
      ...[1, 2, 5].map((factor) => Number(`${factor}e${power}`)).filter((tick) => low <= tick && tick <= high),
    );
  return found.length > 2 ? found : ticks(low, high, 8).found;
}

const pointAt = (line, place) => line.points.find((point) => point[0] === place);
const short = (value, step) => fixed(value, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));

const ruler = document.createElement("canvas").getContext("2d");
ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;
const textWidth = (text) => ruler.measureText(text).width;
function clipped(text, room) {
  let end = text.length;
  while (end > 1 && textWidth(text.slice(0, end)) > room - (end < text.length ? 12 : 0)) end--;
  return end < text.length ? `${text.slice(0, end)}…` : text;
}

// Lines are {look, label, points: [[x, mean, deviation or null], ...]}, levels {look, value}. With `scatter`, each
// line is a single point, and the x axis is logarithmic.
function lineChart(box, { title, xName, yName, atX, scatter = false, missing = "No shown run has these values." }) {
  const readout = make("p", { class: "readout", "aria-live": "polite", id: `${box.id}-readout` });
  const tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
  const frame = make(
    "div",
    {
      class: "chart",
      tabindex: "0",
      role: "application",
      "aria-roledescription": scatter ? "scatter plot" : "line chart",
      "aria-describedby": readout.id,
    },
    tip,
  );
  const file = `phasezero ${title}`;
  const tools = downloads(title, {
    csv: () => save(file, "csv", tableText(columns(), [[null, lines]])),
    svg: () => save(file, "svg", standalone(plot.svg)),
    png: () => savePicture(file, plot.svg),
  });
  const values = make("div", {});
  box.append(tools, frame, readout, values);
  let [lines, levels, plot, at] = [[], [], null, null];
  const hint =
    "Point at the chart, or use the arrow keys on it: " +
    (scatter ? "from point to point." : "left and right along a line, up and down between lines.");

  function columns() {
    const run = { name: "run", get: (line) => line.name ?? line.label, show: (line) => named(line.look, line.label) };
    const at = (name, get, more) => ({ name, number: true, get, ...more });
    if (scatter)
      return [run, at(xName, (line) => line.points[0][0], { digits: 1 }), at(yName, (line) => line.points[0].slice(1))];
    const xs = distinct(lines.flatMap((line) => line.points.map(([x]) => x))).sort((a, b) => a - b);
    const of = (x) => (line) => pointAt(line, x)?.slice(1) ?? null;
    return [run, ...xs.map((x) => at(String(x), of(x), { show: (line) => (of(x)(line) ? spread(of(x)(line)) : "") }))];
  }

  function show(newLines, newLevels = []) {
    [lines, levels, at] = [newLines.filter((line) => line.points.length), newLevels, null];
    frame.setAttribute(
      "aria-label",
      `${title}: ${plural(lines.length, scatter ? "point" : "line")}. The table below has the same values.`,
    );
    tools.hidden = lines.length === 0;
    redraw();
    const fill = () => table(`${title} (${yName}) by: ${xName}`, columns(), [[null, lines]]);
    const open = values.querySelector("details")?.open ?? false;
    values.replaceChildren(lines.length ? folded("The values as a table", fill) : "");
    if (open && lines.length) values.querySelector("details").open = true;
  }

  function legend(width, top) {
    const listed = lines.slice(0, MOST_LISTED).map((line) => [line.look, line.label]);
    if (lines.length > MOST_LISTED) listed.push([null, `and ${lines.length - MOST_LISTED} more`]);
    const wide = 62 + Math.max(0, ...listed.map(([, label]) => textWidth(label)));
    const columns = Math.max(1, Math.min(listed.length, Math.floor(width / wide)));
    const rows = Math.ceil(listed.length / columns);
    const entries = listed.map(([look, label], place) => {
      const [x, y] = [Math.floor(place / rows) * (width / columns), top + (place % rows) * ROW];
      const text = draw("text", { class: "entry", x: 46, y: 11 }, clipped(label, width / columns - 54));
      const entry = draw(
        "g",
        { transform: `translate(${x.toFixed(1)} ${y})` },
        look && draw("g", {}, scatter ? lonely(look, 19, 7) : strokeOf(look)),
        text,
      );
      if (look) coloured(entry.firstChild, look);
      return entry;
    });
    return { entries, height: rows * ROW };
  }

  // Names beside the points of a scatter plot, where there is room; the legend has them all.
  function labels(x, y, right) {
    const taken = lines.map(({ points: [[at, mean]] }) => [x(at) - 8, x(at) + 8, y(mean)]);
    return lines.flatMap(({ label, points: [[at, mean]] }) => {
      const [width, top] = [textWidth(label), y(mean)];
      const before = x(at) + 12 + width > right;
      const left = before ? x(at) - 12 - width : x(at) + 12;
      if (taken.some(([from, to, level]) => left < to && left + width > from && Math.abs(level - top) < 14)) return [];
      taken.push([left, left + width, top]);
      return [draw("text", { class: "entry", x: left, y: top + 4 }, label)];
    });
  }

  function redraw() {
    plot?.svg.remove();
    tip.hidden = true;
    readout.textContent = lines.length ? hint : missing;
    const width = Math.max(frame.clientWidth, 240);
    const height = Math.round(among(width * 0.52, 270, 440));
    const room = { right: 18, top: 30, bottom: 44 };
    const xs = lines.flatMap((line) => line.points.map(([x]) => x));
    const ys = lines.flatMap((line) =>
      line.points.flatMap(([, y, deviation]) => [y - (deviation ?? 0), y + (deviation ?? 0)]),
    );
    levels.forEach((level) => ys.push(level.value));
    if (!xs.length) {
      xs.push(1, 2);
      ys.push(0, 100);
    }
    let [low, high] = [Math.min(...ys), Math.max(...ys)];
    const margin = (high - low || 2) * 0.05;
    [low, high] = [low - margin, high + margin];
    let [first, last] = [Math.min(...xs), Math.max(...xs)];
    if (scatter) [first, last] = [first / 1.4, last * 1.4];
    else if (first === last) [first, last] = [first - 1, last + 1];
    const up = ticks(low, high, Math.floor((height - room.top - room.bottom) / 44));
    const marks = up.found.map((value) => short(value, up.step));
    room.left = 11 + 7 * Math.max(5, ...marks.map((text) => text.length)); // 7: of a digit
    const [right, floor] = [width - room.right, height - room.bottom];
    const along = scatter ? Math.log10 : (value) => value;
    const x = (value) =>
      room.left + ((along(value) - along(first)) / (along(last) - along(first))) * (right - room.left);
    const y = (value) => floor - ((value - low) / (high - low)) * (floor - room.top);
    const points = distinct(xs).sort((a, b) => a - b);
    const apart = (places) => places.every((value, at) => at === 0 || x(value) - x(places[at - 1]) >= 30);
    let across = points;
    if (scatter)
      across =
        [logTicks(first, last), logTicks(first, last).filter((tick) => String(tick).startsWith("1"))].find(apart) ?? [];
    else if (!apart(points))
      across = ticks(first, last, Math.floor((right - room.left) / 52)).found.filter(Number.isInteger);
    const names = legend(width, height + 6);
    const whole = height + 6 + names.height;
    const text = (kind, left, top, anchor, words) =>
      draw("text", { class: kind, x: left, y: top, "text-anchor": anchor }, words);
    const stroke = (kind, x1, y1, x2, y2) => draw("line", { class: kind, x1, y1, x2, y2 });
    const svg = draw(
      "svg",
      { width, height: whole, viewBox: `0 0 ${width} ${whole}`, "aria-hidden": "true" },
      up.found.map((value, place) => [
        stroke("grid", room.left, y(value), right, y(value)),
        text("tick", room.left - 8, y(value) + 4, "end", marks[place]),
      ]),
      across.map((value) => [
        stroke("tickmark", x(value), floor, x(value), floor + 5),
        text("tick", x(value), floor + 19, "middle", value.toLocaleString("en")),
      ]),
      stroke("axis", room.left, floor, right, floor),
      text("name", (room.left + right) / 2, height - 6, "middle", xName),
      text("name", 2, 14, "start", yName),
      levels.map(({ look, value }) => {
        const end = { class: "level-end", d: "M0-5L5 0L0 5L-5 0z", transform: `translate(${right} ${y(value)})` };
        return coloured(draw("g", {}, stroke("level", room.left, y(value), right, y(value)), draw("path", end)), look);
      }),
      lines.map(({ look, points }, index) => {
        const every = Math.ceil(points.length / MOST_MARKERS);
        const trace = (edge) => points.map((point) => `${x(point[0]).toFixed(1)} ${y(edge(point)).toFixed(1)}`);
        const over = ([, mean, deviation]) => mean + (deviation ?? 0);
        const under = ([, mean, deviation]) => mean - (deviation ?? 0);
        const banded = points.length > 1 && points.some((point) => point[2] !== null);
        const [only] = points;
        const group = draw(
          "g",
          { "data-series": index },
          banded && draw("path", { class: "band", d: `M${[...trace(over), ...trace(under).reverse()].join("L")}Z` }),
          points.length === 1 && stroke("whisker", x(only[0]), y(over(only)), x(only[0]), y(under(only))),
          draw("path", {
            class: "curve",
            d: `M${trace((point) => point[1]).join("L")}`,
            "stroke-dasharray": dashes(look),
          }),
          points
            .filter((_, place) => place % every === 0)
            .map((point) => (scatter ? lonely : marker)(look, x(point[0]), y(point[1]))),
        );
        return coloured(group, look);
      }),
      scatter ? labels(x, y, right) : [],
      draw("line", { class: "guide", y1: room.top, y2: floor, visibility: "hidden" }),
      draw("circle", { class: "spot", r: 7, visibility: "hidden" }),
      names.entries,
    );
    frame.append(svg);
    plot = { svg, x, y, points, width, height };
  }

  // Shows the values at `place` (an x of the data); `nearest` is the line that is meant.
  function point(place, nearest) {
    const here = lines.flatMap((line) => {
      const found = pointAt(line, place);
      return found ? [{ line, found }] : [];
    });
    const chosen = here.find(({ line }) => line === nearest) ?? here[0];
    if (!chosen) return;
    const [left, top] = [plot.x(place), plot.y(chosen.found[1])];
    fill(frame.querySelector(".guide"), { x1: left, x2: left, visibility: "visible" }, []);
    fill(frame.querySelector(".spot"), { cx: left, cy: top, visibility: "visible" }, []);
    frame.querySelectorAll("[data-series]").forEach((group, index) => {
      group.classList.toggle("meant", lines[index] === chosen.line);
    });
    readout.textContent = `${chosen.line.label}, ${atX(place)}: ${spread(chosen.found.slice(1))}`;
    at = { place, line: chosen.line };
    const near = [...here].sort(
      (a, b) => Math.abs(a.found[1] - chosen.found[1]) - Math.abs(b.found[1] - chosen.found[1]),
    );
    const listed = near.slice(0, MOST_NAMED).sort((a, b) => b.found[1] - a.found[1]);
    tip.replaceChildren(
      make("p", {}, atX(place)),
      ...listed.map(({ line, found }) =>
        make(
          "p",
          { class: line === chosen.line ? "meant" : "" },
          named(line.look, line.label),
          make("b", {}, spread(found.slice(1))),
        ),
      ),
      here.length > listed.length ? make("p", {}, `and ${here.length - listed.length} more`) : "",
    );
    tip.hidden = false;
    if (plot.width < 560) {
      // no room next to the lines: below them
      [tip.style.left, tip.style.top] = ["0", `${plot.height}px`];
      return;
    }
    const beside = left + 14 + tip.offsetWidth < plot.width ? left + 14 : left - 14 - tip.offsetWidth;
    tip.style.left = `${among(beside, 0, plot.width - tip.offsetWidth)}px`;
    tip.style.top = `${Math.max(0, top - tip.offsetHeight / 2)}px`;
  }

  function leave() {
    at = null;
    tip.hidden = true;
    frame.querySelectorAll(".guide, .spot").forEach((mark) => mark.setAttribute("visibility", "hidden"));
    frame.querySelectorAll(".meant").forEach((group) => group.classList.remove("meant"));
    readout.textContent = lines.length ? hint : readout.textContent;
  }

  function follow(event) {
    if (!lines.length) return;
    const area = frame.getBoundingClientRect();
    const [left, top] = [event.clientX - area.left, event.clientY - area.top];
    const least = (items, distance) => items.reduce((best, item) => (distance(item) < distance(best) ? item : best));
    if (scatter) {
      const away = ({ points: [[x, y]] }) => Math.hypot(plot.x(x) - left, plot.y(y) - top);
      const line = least(lines, away);
      return point(line.points[0][0], line);
    }
    const place = least(plot.points, (x) => Math.abs(plot.x(x) - left));
    const there = lines.filter((line) => pointAt(line, place));
    point(
      place,
      least(there, (line) => Math.abs(plot.y(pointAt(line, place)[1]) - top)),
    );
  }

  onPointing(frame, follow, leave);
  frame.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return leave();
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const across = { ArrowUp: -1, ArrowDown: 1 };
    if (!lines.length || !(event.key in steps || event.key in across)) return;
    event.preventDefault();
    const next = (list, item, step) => list[among(list.indexOf(item) + step, 0, list.length - 1)];
    if (scatter) {
      const sideways = event.key in steps;
      const key = sideways ? (line) => line.points[0][0] : (line) => -line.points[0][1];
      const order = [...lines].sort((a, b) => key(a) - key(b));
      const line = next(order, at ? at.line : order[0], at ? (sideways ? steps : across)[event.key] : 0);
      return point(line.points[0][0], line);
    }
    let { line, place } = at ?? { line: lines[0], place: null };
    if (event.key in across && place !== null) {
      // Down the chart: from line to line in the order of their values here.
      const here = lines.filter((other) => pointAt(other, place));
      here.sort((a, b) => pointAt(b, place)[1] - pointAt(a, place)[1]);
      line = next(here, line, across[event.key]);
    }
    const own = line.points.map(([x]) => x);
    const step = place === null && event.key !== "End" ? 0 : (steps[event.key] ?? 0);
    point(next(own, place ?? own[0], step), line);
  });
  new ResizeObserver(() => {
    if (plot && Math.abs(frame.clientWidth - plot.width) > 1) redraw();
  }).observe(frame);
  return { show };
}

// Draw in the colours on white, whatever the theme.
function onWhite(make) {
  const root = document.documentElement.dataset;
  const theme = root.theme;
  root.theme = "light";
  try {
    return make();
  } finally {
    root.theme = theme;
  }
}

// A chart as a file of its own: what the style sheet says is written into the elements.
const PRESENTATION = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"];
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const pairs = [...svg.querySelectorAll("*")].map((element, at) => [element, copy.querySelectorAll("*")[at]]);
  onWhite(() =>
    pairs.forEach(([element, twin]) => {
      const style = getComputedStyle(element);
      for (const name of PRESENTATION) twin.setAttribute(name, style.getPropertyValue(name));
      if (element.matches(".guide, .spot")) twin.remove();
      for (const name of ["class", "style"]) twin.removeAttribute(name);
    }),
  );
  copy.prepend(draw("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
  return new XMLSerializer().serializeToString(copy);
}

async function savePicture(name, svg) {
  const url = URL.createObjectURL(new Blob([standalone(svg)], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((picture) => save(name, "png", picture), "image/png");
  URL.revokeObjectURL(url);
}
