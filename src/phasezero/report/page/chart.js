// A line chart that responds to the pointer and the arrow keys. The table below it has the same values.

const MOST_MARKERS = 13; // S=2 has 26 phases; more markers than this merge into a band
const MOST_NAMED = 9; // lines named next to the pointer

function niceStep(range, most) {
  const rough = range / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

function ticks(low, high, most) {
  const step = niceStep(high - low || 1, most);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9); tick * step <= high + 1e-9 * step; tick++) found.push(tick * step);
  return { step, found };
}

const pointAt = (one, place) => one.points.find((point) => point[0] === place);
const short = (value, step) => fixed(value, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));

// `series`: {index, label, points: [[x, mean, deviation or null], ...]}; `levels`: {index, value}.
function lineChart(box, { title, xName, yName, atX, missing = "No shown run has these values." }) {
  const readout = make("p", { class: "readout", "aria-live": "polite", id: `${box.id}-readout` });
  const tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
  const frame = make(
    "div",
    {
      class: "chart",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "line chart",
      "aria-describedby": readout.id,
    },
    tip,
  );
  const values = make("div", {});
  box.append(frame, readout, values);
  let series = [],
    levels = [],
    plot = null,
    at = null;
  const hint =
    "Point at the chart, or use the arrow keys on it: left and right along a line, up and down between lines.";

  function show(newSeries, newLevels = []) {
    [series, levels, at] = [newSeries.filter((one) => one.points.length), newLevels, null];
    frame.setAttribute(
      "aria-label",
      `${title}: ${plural(series.length, "line")}. The table below has the same values.`,
    );
    redraw();
    const xs = distinct(series.flatMap((one) => one.points.map((point) => point[0]))).sort((a, b) => a - b);
    const columns = [
      { name: "run", value: (one) => named(one.index, one.label), key: (one) => one.label },
      ...xs.map((x) => {
        const of = (one) => pointAt(one, x)?.slice(1);
        return {
          name: String(x),
          number: true,
          key: (one) => of(one)?.[0] ?? null,
          value: (one) => (of(one) ? spread(of(one)) : ""),
        };
      }),
    ];
    const open = values.querySelector("details")?.open ?? false;
    values.replaceChildren(
      folded("The values as a table", table(`${title} (${yName}) by: ${xName}`, columns, [[null, series]])),
    );
    values.querySelector("details").open = open;
  }

  function redraw() {
    plot?.svg.remove();
    tip.hidden = true;
    readout.textContent = series.length ? hint : missing;
    const width = Math.max(frame.clientWidth, 240);
    const height = Math.round(Math.min(Math.max(width * 0.52, 270), 440));
    const room = { right: 18, top: 30, bottom: 44 };
    const xs = series.flatMap((one) => one.points.map((point) => point[0]));
    const ys = series.flatMap((one) =>
      one.points.flatMap(([, y, deviation]) => [y - (deviation ?? 0), y + (deviation ?? 0)]),
    );
    levels.forEach((level) => ys.push(level.value));
    if (!xs.length) {
      xs.push(0, 1);
      ys.push(0, 100);
    }
    let [low, high] = [Math.min(...ys), Math.max(...ys)];
    const margin = (high - low || 2) * 0.05;
    [low, high] = [low - margin, high + margin];
    let [first, last] = [Math.min(...xs), Math.max(...xs)];
    if (first === last) {
      first -= 1;
      last += 1;
    }
    const up = ticks(low, high, Math.floor((height - room.top - room.bottom) / 44));
    const marks = up.found.map((value) => short(value, up.step));
    room.left = 11 + 7 * Math.max(5, ...marks.map((text) => text.length)); // 7: of a digit
    const x = (value) => room.left + ((value - first) / (last - first)) * (width - room.left - room.right);
    const y = (value) => height - room.bottom - ((value - low) / (high - low)) * (height - room.top - room.bottom);

    const points = distinct(xs).sort((a, b) => a - b);
    const roomy = points.every((value, at) => at === 0 || x(value) - x(points[at - 1]) >= 30);
    const across = roomy
      ? points
      : ticks(first, last, Math.floor((width - room.left - room.right) / 52)).found.filter(Number.isInteger);
    const svg = draw(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      up.found.map((value, place) => [
        draw("line", { class: "grid", x1: room.left, x2: width - room.right, y1: y(value), y2: y(value) }),
        draw(
          "text",
          { class: "tick", x: room.left - 8, y: y(value) + 4, "text-anchor": "end" },
          marks[place],
        ),
      ]),
      across.map((value) => [
        draw("line", {
          class: "tickmark",
          x1: x(value),
          x2: x(value),
          y1: height - room.bottom,
          y2: height - room.bottom + 5,
        }),
        draw(
          "text",
          { class: "tick", x: x(value), y: height - room.bottom + 19, "text-anchor": "middle" },
          String(value),
        ),
      ]),
      draw("line", {
        class: "axis",
        x1: room.left,
        x2: width - room.right,
        y1: height - room.bottom,
        y2: height - room.bottom,
      }),
      draw(
        "text",
        { class: "name", x: (room.left + width - room.right) / 2, y: height - 6, "text-anchor": "middle" },
        xName,
      ),
      draw("text", { class: "name", x: 2, y: 14 }, yName),
      levels.map((level) =>
        draw(
          "g",
          { class: colourClass(level.index) },
          draw("line", {
            class: "level",
            x1: room.left,
            x2: width - room.right,
            y1: y(level.value),
            y2: y(level.value),
          }),
          draw("path", {
            class: "level-end",
            d: "M0-5L5 0L0 5L-5 0z",
            transform: `translate(${width - room.right} ${y(level.value)})`,
          }),
        ),
      ),
      series.map((one) => {
        const every = Math.ceil(one.points.length / MOST_MARKERS);
        const path = (edge) => one.points.map((point) => `${x(point[0]).toFixed(1)} ${y(edge(point)).toFixed(1)}`);
        const banded = one.points.length > 1 && one.points.some((point) => point[2] !== null);
        const edges = [
          ...path(([, mean, sd]) => mean + (sd ?? 0)),
          ...path(([, mean, sd]) => mean - (sd ?? 0)).reverse(),
        ];
        return draw(
          "g",
          { class: colourClass(one.index), "data-series": one.index },
          banded ? draw("path", { class: "band", d: `M${edges.join("L")}Z` }) : null,
          draw("path", {
            class: "curve",
            d: `M${path((point) => point[1]).join("L")}`,
            "stroke-dasharray": dash(one.index),
          }),
          one.points
            .filter((_, place) => place % every === 0)
            .map((point) => marker(one.index, x(point[0]), y(point[1]))),
        );
      }),
      draw("line", { class: "guide", y1: room.top, y2: height - room.bottom, visibility: "hidden" }),
      draw("circle", { class: "spot", r: 7, visibility: "hidden" }),
    );
    frame.append(svg);
    plot = { svg, x, y, points, width, height };
  }

  // Shows the values at `place` (an x of the data); `nearest` is the line that is meant.
  function point(place, nearest) {
    const here = series.flatMap((one) => {
      const found = pointAt(one, place);
      return found ? [{ one, found }] : [];
    });
    const chosen = here.find(({ one }) => one === nearest) ?? here[0];
    if (!chosen) return;
    const [guide, spot] = [frame.querySelector(".guide"), frame.querySelector(".spot")];
    const [left, top] = [plot.x(place), plot.y(chosen.found[1])];
    for (const [name, value] of [
      ["x1", left],
      ["x2", left],
      ["visibility", "visible"],
    ])
      guide.setAttribute(name, value);
    for (const [name, value] of [
      ["cx", left],
      ["cy", top],
      ["visibility", "visible"],
    ])
      spot.setAttribute(name, value);
    frame.querySelectorAll("[data-series]").forEach((group) => {
      group.classList.toggle("meant", group.getAttribute("data-series") === String(chosen.one.index));
    });
    readout.textContent = `${chosen.one.label}, ${atX(place)}: ${spread(chosen.found.slice(1))}`;
    at = { place, one: chosen.one };
    const near = [...here].sort(
      (a, b) => Math.abs(a.found[1] - chosen.found[1]) - Math.abs(b.found[1] - chosen.found[1]),
    );
    const listed = near.slice(0, MOST_NAMED).sort((a, b) => b.found[1] - a.found[1]);
    tip.replaceChildren(
      make("p", {}, atX(place)),
      ...listed.map(({ one, found }) =>
        make(
          "p",
          { class: one === chosen.one ? "meant" : "" },
          named(one.index, one.label),
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
    tip.style.left = `${Math.max(0, Math.min(beside, plot.width - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, top - tip.offsetHeight / 2)}px`;
  }

  function leave() {
    at = null;
    tip.hidden = true;
    frame.querySelectorAll(".guide, .spot").forEach((mark) => mark.setAttribute("visibility", "hidden"));
    frame.querySelectorAll(".meant").forEach((group) => group.classList.remove("meant"));
    readout.textContent = series.length ? hint : readout.textContent;
  }

  function follow(event) {
    if (!series.length) return;
    const area = frame.getBoundingClientRect();
    const [left, top] = [event.clientX - area.left, event.clientY - area.top];
    const place = plot.points.reduce((best, x) =>
      Math.abs(plot.x(x) - left) < Math.abs(plot.x(best) - left) ? x : best,
    );
    const distance = (one) => {
      const found = pointAt(one, place);
      return found ? Math.abs(plot.y(found[1]) - top) : Infinity;
    };
    point(
      place,
      series.reduce((best, one) => (distance(one) < distance(best) ? one : best)),
    );
  }

  onPointing(frame, follow, leave);
  frame.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return leave();
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const lines = { ArrowUp: -1, ArrowDown: 1 };
    if (!series.length || !(event.key in steps || event.key in lines)) return;
    event.preventDefault();
    let { one, place } = at ?? { one: series[0], place: null };
    if (event.key in lines && place !== null) {
      // Down the chart: from line to line in the order of their values here.
      const here = series.filter((other) => pointAt(other, place));
      here.sort((a, b) => pointAt(b, place)[1] - pointAt(a, place)[1]);
      one = here[Math.min(Math.max(here.indexOf(one) + lines[event.key], 0), here.length - 1)];
    }
    const own = one.points.map((candidate) => candidate[0]);
    const step = place === null && event.key !== "End" ? 0 : (steps[event.key] ?? 0);
    const index = Math.min(Math.max((place === null ? 0 : own.indexOf(place)) + step, 0), own.length - 1);
    point(own[index], one);
  });
  new ResizeObserver(() => {
    if (plot && Math.abs(frame.clientWidth - plot.width) > 1) redraw();
  }).observe(frame);
  return { show };
}
