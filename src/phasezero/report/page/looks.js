// How lines look: a method's colour, marker and dash come from looks.py, the same as in the figures.

const path = (points) => `M${points.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L")}Z`;
const polygon = (corners, turn, ...radii) =>
  path(
    Array.from({ length: corners }, (_, at) => {
      const [radius, angle] = [radii[at % radii.length], ((turn + (360 * at) / corners) * Math.PI) / 180];
      return [radius * Math.sin(angle), -radius * Math.cos(angle)];
    }),
  );
const ARM = [
  [-1.6, -1.6],
  [-1.6, -4.6],
  [1.6, -4.6],
]; // a quarter of a cross
const cross = (turn) =>
  path(
    [0, 90, 180, 270].flatMap((quarter) => {
      const [sine, cosine] = [Math.sin, Math.cos].map((of) => of(((quarter + turn) * Math.PI) / 180));
      return ARM.map(([x, y]) => [x * cosine - y * sine, x * sine + y * cosine]);
    }),
  );
// Under matplotlib's names for them.
const MARKERS = {
  o: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
  s: polygon(4, 45, 5.1),
  D: polygon(4, 0, 5),
  d: polygon(4, 0, 5.4, 3),
  "^": polygon(3, 0, 5.2),
  v: polygon(3, 180, 5.2),
  "<": polygon(3, 270, 5.2),
  ">": polygon(3, 90, 5.2),
  p: polygon(5, 0, 4.9),
  h: polygon(6, 0, 4.8),
  H: polygon(6, 30, 4.8),
  8: polygon(8, 22.5, 4.6),
  "*": polygon(10, 0, 6.2, 2.5),
  P: cross(0),
  X: cross(45),
};

// As looks.py's looks_among: models with the same look get shades of its colour, from light to dark, and other markers.
function looksAmong(models) {
  const shade = (colour, share) => {
    const [strength, ground] = [0.9 * Math.abs(share - 0.5), share < 0.5 ? 255 : 0];
    const part = (start) => parseInt(colour.slice(start, start + 2), 16);
    const mixed = [1, 3, 5].map((start) => Number(decimal(part(start) + (ground - part(start)) * strength, 0)));
    return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`.toUpperCase();
  };
  const same = (look) => models.filter((other) => JSON.stringify(other.look) === JSON.stringify(look));
  return new Map(
    models.map((model) => {
      const [alike, look] = [same(model.look), model.look];
      const place = alike.indexOf(model);
      if (alike.length < 2) return [model, look];
      const share = place / (alike.length - 1);
      const others = content.markers.filter((marker) => marker !== look.marker);
      return [
        model,
        {
          ...look,
          colour: shade(look.colour, share),
          dark: shade(look.dark, share / 2),
          marker: place ? others[(place - 1) % others.length] : look.marker,
        },
      ];
    }),
  );
}

function coloured(element, look) {
  element.style.color = `light-dark(${look.colour}, ${look.dark})`;
  return element;
}
const dashes = (look, width = 2) => look.dash.map((length) => length * width).join(" ") || null;
const marker = (look, x, y, size = 1) =>
  draw("path", {
    d: MARKERS[look.marker] ?? MARKERS.o,
    class: "marker",
    transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})`,
  });
// Without a line, the outline of a hollow marker has the line's dash.
const lonely = (look, x, y) => {
  const found = marker(look, x, y, 1.7);
  return look.dash.length ? fill(found, { class: "marker hollow", "stroke-dasharray": dashes(look, 0.7) }, []) : found;
};
const strokeOf = (look) => [
  draw("path", { d: "M1 7H37", class: "curve", "stroke-dasharray": dashes(look) }),
  marker(look, 19, 7),
];
const swatch = (look) =>
  coloured(
    draw(
      "svg",
      { class: "swatch", viewBox: "0 0 38 14", width: 38, height: 14, "aria-hidden": "true" },
      strokeOf(look),
    ),
    look,
  );
const named = (look, name, title = null) =>
  make("span", { class: "run", title }, look && swatch(look), make("span", {}, breakable(name)));
