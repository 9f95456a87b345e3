// Confusion matrices: unpacked when shown, drawn on a canvas, read with the pointer or the arrow keys.

const UNPACKS = "DecompressionStream" in window;

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

const MOST_CONFUSED = 12;
const NAMED_CELL = 10; // the smallest cell beside which a name fits
const LONGEST_NAME = 110; // pixels of a name on an axis

function confusionView() {
  const [box, canvas, cell, slider] = ["canvas-box", "canvas", "cell", "phase"].map(byId);
  let [run, matrix, cursor, area, wanted] = [null, null, null, null, 0];
  const file = () => `phasezero confusion ${runName(run)} phase ${matrix.phase}`;
  byId("matrix-downloads").append(
    downloads("confusion matrix", {
      csv: () => save(file(), "csv", matrixText()),
      png: () => {
        const picture = make("canvas");
        onWhite(() => paintOn(picture, Math.max(700, box.clientWidth), 2, null));
        picture.toBlob((data) => save(file(), "png", data), "image/png");
      },
    }),
  );

  // `chosen` is a phase, or empty for the last; a phase that this page does not have gives the last too.
  async function show(newRun, chosen) {
    run = newRun;
    const [last, kept] = [run.sizes.length - 1, run.matrices.length];
    const note = {
      all: "",
      last: "To keep this file small, it contains only the last matrix of each run.",
      none: "To keep this file small, it contains no confusion matrices. A page of fewer runs does.",
    }[content.matrices];
    byId("confusion-note").textContent = UNPACKS ? note : "This browser is too old to unpack the confusion matrices.";
    byId("confusion-note").hidden = UNPACKS && !note;
    byId("confusion").hidden = kept === 0 || !UNPACKS;
    if (byId("confusion").hidden) return;
    [slider.min, slider.max] = [String(last + 1 - kept), String(last)];
    slider.value = chosen === "" || Number(chosen) > last ? String(last) : chosen;
    slider.disabled = kept < 2;
    const phase = Number(slider.value);
    const ticket = ++wanted; // only the latest choice is drawn: unpacking is not instant
    const sizes = run.sizes.slice(0, phase + 1);
    const seen = sum(sizes);
    const text = `${phase} of ${last}, ${seen} ${seen === 1 ? "class" : "classes"} seen`;
    byId("phase-value").textContent = text;
    slider.setAttribute("aria-valuetext", text);
    const entries = await unpackConfusion(run.matrices[phase - Number(slider.min)], seen);
    if (ticket !== wanted) return;
    const counts = new Map(entries.map(([row, column, count]) => [row * seen + column, count]));
    const totals = new Array(seen).fill(0);
    entries.forEach(([row, , count]) => (totals[row] += count));
    const starts = sizes.map((_, at) => sum(sizes.slice(0, at)));
    const origin = (label) => starts.findLastIndex((start) => start <= label);
    matrix = { phase, seen, entries, counts, totals, starts, origin, names: content.classes[run.classes].class_names };
    cursor = null;
    paint();
    tell();
    refill(byId("confused"), mostConfused());
  }

  const name = (label) => `${matrix.names[label]} (class ${label}, phase ${matrix.origin(label)})`;
  const count = (row, column) => matrix.counts.get(row * matrix.seen + column) ?? 0;

  function tell() {
    if (!cursor) {
      cell.textContent = "Point at a cell, or focus the matrix and use the arrow keys.";
      return;
    }
    const [row, column] = cursor;
    const found = count(row, column);
    const share = matrix.totals[row] ? ` (${percent(found, matrix.totals[row])})` : "";
    cell.textContent =
      row === column
        ? `${name(row)}: ${found} of ${matrix.totals[row]} correct${share}`
        : `${name(row)} predicted as ${name(column)}: ${found} of ${matrix.totals[row]}${share}`;
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
      { name: "true class", get: ([row]) => matrix.names[row] },
      { name: "called", get: ([, column]) => matrix.names[column] },
      { name: "images", number: true, get: ([, , count]) => count },
      { name: "% of the class", number: true, digits: 1, get: ([row, , count]) => (100 * count) / matrix.totals[row] },
    ];
    return [
      make("p", {}, sentence),
      most.length ? table(`Most frequent confusions after phase ${matrix.phase}`, columns, [[null, most]]) : "",
    ];
  }

  function matrixText() {
    const labels = matrix.names.slice(0, matrix.seen);
    return commaSeparated([
      ["true class \\ predicted class", ...labels],
      ...labels.map((own, row) => [own, ...labels.map((_, column) => count(row, column))]),
    ]);
  }

  function paint() {
    if (matrix)
      area = paintOn(canvas, Math.max(box.clientWidth, 220), Math.min(window.devicePixelRatio || 1, 2), cursor);
  }

  // The colours come from the style sheet: none is the canvas's background, all of a row its text colour, by the root
  // of the share in between, so that single mistakes are seen too. Returns where the cells are.
  function paintOn(target, width, ratio, marked) {
    const style = getComputedStyle(canvas);
    const channels = (colour) =>
      colour
        .match(/[\d.]+/g)
        .slice(0, 3)
        .map(Number);
    const [none, full] = [channels(style.backgroundColor), channels(style.color)];
    const shade = (share) => {
      const weight = share ? 0.12 + 0.88 * Math.sqrt(share) : 0;
      return `rgb(${none.map((channel, at) => Math.round(channel + (full[at] - channel) * weight)).join(" ")})`;
    };
    const { seen, starts } = matrix;
    const labels = matrix.names.slice(0, seen);
    const longest = Math.min(LONGEST_NAME, Math.max(...labels.map(textWidth)));
    const scale = 68; // room for the colours
    const named = (width - 26 - longest - scale) / seen >= NAMED_CELL;
    const edge = 26 + (named ? longest : 22);
    const side = Math.min(width - edge - scale, seen * 44); // few classes need no more
    const step = side / seen;
    [target.width, target.height] = [width, side + edge + 6].map((length) => Math.round(length * ratio));
    const pen = target.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = getComputedStyle(document.body).backgroundColor;
    pen.fillRect(0, 0, width, side + edge + 6);
    const [left, top] = [edge, 6];
    const sharp = (length) => Math.round(length * ratio) / ratio; // no light lines between cells
    const rect = (x, y, wide, high) =>
      pen.fillRect(sharp(x), sharp(y), sharp(x + wide) - sharp(x), sharp(y + high) - sharp(y));
    pen.fillStyle = shade(0);
    rect(left, top, side, side);
    for (const [row, column, count] of matrix.entries) {
      pen.fillStyle = shade(count / matrix.totals[row]);
      rect(left + column * step, top + row * step, step, step);
    }
    pen.fillStyle = style.borderTopColor;
    for (const start of [...starts, seen]) {
      pen.fillRect(sharp(left + start * step), top, 1, side);
      pen.fillRect(left, sharp(top + start * step), side, 1);
    }
    const write = (text, x, y, align, turned = false) => {
      pen.save();
      pen.translate(x, y);
      if (turned) pen.rotate(-Math.PI / 2);
      [pen.textAlign, pen.textBaseline] = [align, "middle"];
      pen.fillText(text, 0, 0);
      pen.restore();
    };
    const ink = getComputedStyle(cell);
    const family = getComputedStyle(document.body).fontFamily;
    pen.fillStyle = ink.color;
    pen.font = `${named ? Math.min(12, step) : 11}px ${family}`;
    let before = -Infinity;
    (named ? labels.map((_, label) => label) : starts).forEach((label) => {
      const at = (label + (named ? 0.5 : 0)) * step;
      if (!named && at - before < 20) return; // the first class of each phase, where there is room
      before = at;
      const text = named ? clipped(labels[label], longest) : String(label);
      write(text, left - 5, top + at + (named ? 0 : 4), "right");
      write(text, left + at + (named ? 0 : 4), top + side + 5, "right", true);
    });
    pen.font = `12px ${family}`;
    const which = named ? "" : " (number in the order of the phases)";
    write(`True class${which}`, 9, top + side / 2, "center", true);
    write(`Predicted class${which}`, left + side / 2, top + side + edge - 9, "center");
    const [bar, high] = [left + side + 12, Math.min(side, 220)];
    for (let at = 0; at < high; at++) {
      pen.fillStyle = shade((high - at) / high);
      pen.fillRect(bar, top + at, 12, 1.5);
    }
    pen.fillStyle = ink.color;
    pen.font = `11px ${family}`;
    for (const share of high > 100 ? [100, 75, 50, 25, 0] : [100, 0])
      write(`${share} %`, bar + 16, top + among(high * (1 - share / 100), 6, high - 6), "left");
    if (high > 150) write("of the true class", bar + 6, top + high + 8, "right", true);
    if (marked) {
      pen.strokeStyle = style.outlineColor;
      pen.lineWidth = 2;
      pen.strokeRect(left + marked[1] * step, top + marked[0] * step, step, step);
    }
    return { left, top, side };
  }

  function move(row, column) {
    cursor = [row, column].map((label) => among(label, 0, matrix.seen - 1));
    paint();
    tell();
  }

  function follow(event) {
    if (!matrix) return;
    const { left, top } = canvas.getBoundingClientRect();
    const label = (at) => Math.floor((at / area.side) * matrix.seen);
    move(label(event.clientY - top - area.top), label(event.clientX - left - area.left));
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
  new ResizeObserver(paint).observe(box);
  addEventListener("repaint", paint);
  return { show };
}
