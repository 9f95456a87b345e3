// Confusion matrices: unpacked when shown, drawn on a canvas, read with the pointer or the arrow keys.

// The inverse of encode_confusion in content.py: [true, predicted, count] triples in reading order.
async function unpackConfusion(text, seen) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const packed = new Uint8Array(await new Response(stream).arrayBuffer());
  const numbers = [];
  for (let place = 0; place < packed.length;) {
    let [number, weight] = [0, 1];
    while (packed[place] > 127) {
      number += (packed[place++] & 127) * weight;
      weight *= 128;
    }
    numbers.push(number + packed[place++] * weight);
  }
  const entries = [];
  for (let index = 0, at = -1; index < numbers.length; index += 2) {
    at += numbers[index];
    entries.push([Math.floor(at / seen), at % seen, numbers[index + 1]]);
  }
  return entries;
}

const phaseStarts = (sizes) => sizes.map((_, phase) => sum(sizes.slice(0, phase)));
const MOST_CONFUSED = 12;

function confusionView() {
  const [box, canvas, cell, slider] = ["canvas-box", "canvas", "cell", "phase"].map(byId);
  let run = null,
    matrix = null,
    cursor = null,
    wanted = 0;

  async function show(newRun) {
    run = newRun;
    const last = run.sizes.length - 1;
    const kept = run.matrices.length;
    const note = {
      all: "",
      last: "To keep this file small, it contains only the last matrix of each run.",
      none: "To keep this file small, it contains no confusion matrices. A page of fewer runs does.",
    }[content.matrices];
    const readable = "DecompressionStream" in window;
    byId("confusion-note").textContent = readable
      ? note
      : "This browser is too old to unpack the confusion matrices.";
    byId("confusion-note").hidden = readable && !note;
    byId("confusion").hidden = kept === 0 || !readable;
    if (byId("confusion").hidden) return;
    slider.min = String(last + 1 - kept);
    slider.max = String(last);
    slider.value = String(last);
    slider.disabled = kept < 2;
    await choosePhase();
  }

  async function choosePhase() {
    const ticket = ++wanted; // only the latest choice is drawn: unpacking is not instant
    const phase = Number(slider.value);
    const seen = sum(run.sizes.slice(0, phase + 1));
    const text = `${phase} of ${run.sizes.length - 1}, ${seen} ${seen === 1 ? "class" : "classes"} seen`;
    byId("phase-value").textContent = text;
    slider.setAttribute("aria-valuetext", text);
    const entries = await unpackConfusion(run.matrices[phase - Number(slider.min)], seen);
    if (ticket !== wanted) return;
    const counts = new Map(entries.map(([row, column, count]) => [row * seen + column, count]));
    const totals = new Array(seen).fill(0);
    entries.forEach(([row, , count]) => {
      totals[row] += count;
    });
    const starts = phaseStarts(run.sizes.slice(0, phase + 1));
    const origin = (label) => starts.findLastIndex((start) => start <= label);
    matrix = { phase, seen, entries, counts, totals, starts, origin, names: content.classes[run.classes].class_names };
    cursor = null;
    paint();
    tell();
    byId("confused").replaceChildren(...mostConfused());
  }

  const name = (label) => `${matrix.names[label]} (class ${label}, phase ${matrix.origin(label)})`;

  function tell() {
    if (!cursor) {
      cell.textContent =
        "Rows are true classes, columns are predicted classes. Point at a cell, or focus the matrix " +
        "and use the arrow keys.";
      return;
    }
    const [row, column] = cursor;
    const count = matrix.counts.get(row * matrix.seen + column) ?? 0;
    const share = matrix.totals[row] ? ` (${percent(count, matrix.totals[row])})` : "";
    cell.textContent =
      row === column
        ? `${name(row)}: ${count} of ${matrix.totals[row]} correct${share}`
        : `${name(row)} predicted as ${name(column)}: ${count} of ${matrix.totals[row]}${share}`;
  }

  function mostConfused() {
    const wrong = matrix.entries.filter(([row, column]) => row !== column);
    const images = (entries) => sum(entries.map(([, , count]) => count));
    const newest = matrix.starts.at(-1);
    const old = wrong.filter(([row]) => row < newest);
    const drawn = old.filter(([, column]) => column >= newest);
    const sentence =
      `${images(wrong)} of ${sum(matrix.totals)} test images are misclassified.` +
      (old.length && newest
        ? ` Of the ${images(old)} of older classes, ${images(drawn)} (${percent(images(drawn), images(old))}) are ` +
          `given a class of the newest phase, which has ${percent(matrix.seen - newest, matrix.seen)} of the classes.`
        : "");
    const most = [...wrong].sort((a, b) => b[2] - a[2]).slice(0, MOST_CONFUSED);
    const columns = [
      { name: "true class", value: ([row]) => matrix.names[row] },
      { name: "called", value: ([, column]) => matrix.names[column] },
      { name: "images", number: true, value: ([, , count]) => String(count) },
      {
        name: "of the class",
        number: true,
        value: ([row, , count]) => percent(count, matrix.totals[row]),
      },
    ];
    return [
      make("p", {}, sentence),
      most.length ? table(`Most frequent confusions after phase ${matrix.phase}`, columns, [[null, most]]) : "",
    ];
  }

  // The colours come from the style sheet: none is the canvas's background, all of a row its text colour, by the root
  // of the share in between, so that single mistakes are seen too.
  function paint() {
    if (!matrix) return;
    const style = getComputedStyle(canvas);
    const channels = (colour) =>
      colour
        .match(/[\d.]+/g)
        .slice(0, 3)
        .map(Number);
    const [none, full] = [channels(style.backgroundColor), channels(style.color)];
    const { seen } = matrix;
    const side = Math.round(Math.max(box.clientWidth, 100) * Math.min(window.devicePixelRatio || 1, 2));
    const scale = Math.max(1, Math.floor(side / seen));
    canvas.width = canvas.height = scale * seen;
    const pen = canvas.getContext("2d");
    pen.fillStyle = style.backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    for (const [row, column, count] of matrix.entries) {
      const weight = 0.12 + 0.88 * Math.sqrt(count / matrix.totals[row]);
      const mixed = none.map((channel, at) => Math.round(channel + (full[at] - channel) * weight));
      pen.fillStyle = `rgb(${mixed.join(" ")})`;
      pen.fillRect(column * scale, row * scale, scale, scale);
    }
    pen.fillStyle = style.borderTopColor;
    for (const start of matrix.starts.slice(1)) {
      pen.fillRect(start * scale, 0, 1, canvas.height);
      pen.fillRect(0, start * scale, canvas.width, 1);
    }
    if (cursor) {
      pen.strokeStyle = style.outlineColor;
      pen.lineWidth = Math.max(2, scale / 3);
      pen.strokeRect(cursor[1] * scale, cursor[0] * scale, scale, scale);
    }
  }

  function move(row, column) {
    const inside = (label) => Math.min(Math.max(label, 0), matrix.seen - 1);
    cursor = [inside(row), inside(column)];
    paint();
    tell();
  }

  function follow(event) {
    if (!matrix) return;
    const area = canvas.getBoundingClientRect();
    const label = (at, size) => Math.floor((at / size) * matrix.seen);
    move(label(event.clientY - area.top, area.height), label(event.clientX - area.left, area.width));
  }

  function leave() {
    cursor = null;
    paint();
    if (matrix) tell();
  }

  onPointing(box, follow, leave);
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!matrix || !(event.key in steps)) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    if (cursor) move(cursor[0] + down, cursor[1] + right);
    else move(0, 0);
  });
  slider.addEventListener("input", choosePhase);
  new ResizeObserver(paint).observe(box);
  return { show, paint };
}
