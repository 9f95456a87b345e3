// The top of the page: facts, warnings, search and filters, the table beside the paper, and the accuracy chart.

const MOST_ROWS = 12; // of the first table, until all are asked for

// Parallel runs count with their share of the machine's time, other runs with all of their time.
const machineSeconds = ({ timing }) => timing.share_seconds ?? timing.seconds_total;
const runName = (run) => `${brief(groups[run.group].label)}, seed ${run.seed}`;

function facts() {
  const of = (values) => distinct(values).join("; "); // a protocol contains commas
  const shared = runs.some((run) => run.timing.share_seconds !== undefined);
  const added = duration(sum(runs.map((run) => run.timing.seconds_total)));
  const count =
    plural(runs.length, "run") + (groups.length < runs.length ? ` in ${plural(groups.length, "group")}` : "");
  const entries = [
    ["records", count],
    ["data", of(content.classes.map((list) => list.name))],
    ["device", of(runs.map((run) => run.environment.device_name))],
    ["machine time", duration(sum(runs.map(machineSeconds)))],
  ];
  byId("facts").append(...entries.map(([name, value]) => fact(name, value)));
  byId("shared-time").hidden = !shared;
  byId("shared-time").textContent =
    runs.length > 1
      ? `Machine time counts every second of a machine once, also when runs trained side by side. The times of all runs from start to end add up to ${added}.`
      : `This run took ${added} from start to end. It trained side by side with other runs; machine time is its share.`;
  byId("made").textContent =
    `Made by phasezero ${content.version} from ${plural(runs.length, "run record")}. ` +
    "This file is self-contained. A link to it keeps the search, the filters and what is shown.";
}

function warnings() {
  const owners = (value, labels) =>
    make(
      "li",
      {},
      make("b", {}, value),
      labels.length > 3
        ? folded(plural(labels.length, "group"), () => make("span", {}, labels.map(brief).join(", ")))
        : ` – ${labels.map(brief).join(", ")}`,
    );
  const items = [
    ...content.differences
      .filter(([what]) => matters(what))
      .map(([what, values]) =>
        make(
          "li",
          {},
          make("strong", {}, `Runs differ in ${what}:`),
          make(
            "ul",
            {},
            Object.entries(values).map(([value, labels]) => owners(value, labels)),
          ),
        ),
      ),
    ...content.repeated.map((text) => make("li", {}, text)),
  ];
  const mixed = content.differences.some(([what]) => matters(what)) ? ": not everything here is comparable" : "";
  byId("warnings-summary").textContent = plural(items.length, "warning") + mixed;
  byId("warning-list").replaceChildren(...items);
  byId("warnings").hidden = items.length === 0;
}

function filters() {
  for (const name of Object.keys(FILTERS)) {
    const found = choicesOf(name);
    byId(name).append(option("", "all"), ...found.map((value) => option(value, value)));
    byId(name).parentElement.hidden = found.length < 2;
    byId(name).addEventListener("change", (event) => change({ [name]: event.target.value }));
  }
  const measured = Object.keys(CLASSIFIERS).filter((name) => groups.some((group) => group.all.results[name]));
  byId("by").append(...[OWN, ...measured].map((name) => option(name, CLASSIFIERS[name])));
  byId("by").parentElement.hidden = measured.length < 2;
  byId("by").addEventListener("change", (event) => change({ by: event.target.value }));
  byId("q").parentElement.hidden = groups.length < 2;
  byId("q").addEventListener("input", (event) => change({ q: event.target.value }));
  byId("bar").hidden = groups.length < 2 && runs.length < 2 && measured.length < 2;
  byId("clear").addEventListener("click", () => {
    change(Object.fromEntries(["q", ...Object.keys(FILTERS)].map((name) => [name, ""])));
    byId("q").focus(); // the button is gone
  });
  const draw = (shown) => change({ shown });
  byId("all").addEventListener("click", () => draw(view.matching.map((group) => group.key)));
  byId("none").addEventListener("click", () => draw([]));
  byId("automatic").addEventListener("click", () => draw(null));
  byId("chooser").addEventListener("toggle", switches);
  byId("published").addEventListener("change", (event) => change({ paper: event.target.checked }));
  const wide = matchMedia("(min-width: 760px)"); // where the filters are always there
  const unfold = () => (byId("filters").open = wide.matches);
  wide.addEventListener("change", unfold);
  unfold();
}

function showFilters() {
  for (const name of ["q", "by", ...Object.keys(FILTERS)])
    if (byId(name).value !== state[name]) byId(name).value = state[name];
  const count = (found, all) => (found < all ? `${found} of ${plural(all, "group")}` : plural(all, "group"));
  byId("matches").hidden = groups.length < 2;
  byId("matches").textContent = view.matching.length ? count(view.matching.length, groups.length) : "No run matches";
  byId("filters-summary").textContent = `Search and filters${view.filtered ? ` (${view.filtered})` : ""}`;
  byId("clear").hidden = view.filtered === 0;
}

// The runs that can be drawn, in comparable sets.
function switches() {
  byId("chooser-summary").textContent = `Lines: ${view.shown.length} of ${view.matching.length}`;
  byId("chooser").hidden = groups.length < 2;
  if (!byId("chooser").open) return;
  const keys = (members) => members.map((group) => group.key);
  const toggle = (group, on) =>
    change({ shown: keys(view.matching.filter((other) => (other === group ? on : view.shown.includes(other)))) });
  refill(
    byId("switches"),
    view.sets.map(({ name, members }, place) =>
      make(
        "fieldset",
        {},
        make("legend", { class: view.sets.length < 2 ? "hidden" : null }, name || "Runs"),
        view.sets.length > 1 &&
          button("only these", () => change({ shown: keys(members) }), {
            id: `only-${place}`,
            "aria-label": `only these: ${name}`,
          }),
        members.map((group) => {
          const box = make("input", {
            type: "checkbox",
            id: `switch-${group.key}`,
            checked: view.shown.includes(group),
            onchange: (event) => toggle(group, event.target.checked),
          });
          const label = make("label", { for: box.id }, named(view.lookOf(group), group.short, group.label));
          return make("p", { class: "switch" }, box, label);
        }),
      ),
    ),
  );
}

// The table of methods and S: groups of one data set and B, those with most of the paper's numbers.
function headline() {
  const regular = view.matching.filter((group) => group.step !== null);
  const same = (group) => JSON.stringify([group.data, group.base]);
  const blocks = [...Map.groupBy(regular, same).values()];
  const published = (members) => members.filter((group) => group.paper).length;
  const [block] = blocks.sort((a, b) => published(b) - published(a) || b.length - a.length);
  byId("headline").hidden = !block;
  document.querySelector(".opening").classList.toggle("single", !block);
  if (!block) return;
  const rowName = (group) =>
    group.label
      .split(/(?=[/,](?![^[]*\]))/)
      .map((piece) => piece.replace(/^\/b\d+s\d+(?=r\d|$)/, ","))
      .filter((piece) => piece !== `/${group.data}` && piece !== ",")
      .join("");
  const cells = [...Map.groupBy(block, rowName)].map(([name, members]) => ({
    name,
    of: new Map(members.map((group) => [group.step, group])),
    paper: members.some((group) => group.paper),
    best: Math.max(...members.map((group) => averageOf(group) ?? -1)),
  }));
  const rows = cells.sort((a, b) => b.paper - a.paper || (a.paper ? 0 : b.best - a.best));
  shortNames(rows.map(({ name }) => name)).forEach((short, at) => (rows[at].short = short));
  const most = state.rows === "all" ? rows.length : MOST_ROWS;
  const steps = distinct(block.map((group) => group.step)).sort((a, b) => b - a);
  const at = (step, get) => (row) => (row.of.has(step) ? get(row.of.get(step)) : null);
  const ours = (group) => resultsOf(group)?.average ?? null;
  const gap = (group) => resultsOf(group)?.gap ?? null;
  const theirs = (group) => (group.paper ? [group.paper.mean, group.paper.sd] : null);
  const cell = (group) => [
    make(
      "span",
      { class: "ours" },
      make("b", {}, spread(ours(group))),
      numbersOf(group).n > 1 && ` n=${numbersOf(group).n}`,
    ),
    group.paper &&
      make(
        "span",
        { class: "theirs" },
        `paper ${fixed(group.paper.mean)}`,
        gap(group) !== null && ` ${signed(gap(group))}`,
      ),
  ];
  const first = { name: "method", get: (row) => row.name };
  const lookOf = (row) => [...row.of.values()].map(view.lookOf).find(Boolean) ?? null;
  const columns = [
    {
      ...first,
      show: (row) => make("span", { class: lookOf(row) ? null : "blank" }, named(lookOf(row), row.short, row.name)),
    },
    ...steps.map((step) => ({
      name: `S=${step}`,
      number: true,
      get: at(step, ours),
      show: (row) => at(step, cell)(row) ?? "–",
    })),
  ];
  const csv = [
    first,
    ...steps.flatMap((step) => [
      { name: `S=${step}`, get: at(step, ours) },
      { name: `S=${step} n`, get: at(step, (group) => numbersOf(group).n) },
      { name: `S=${step} paper`, get: at(step, theirs) },
      { name: `S=${step} gap`, get: at(step, gap) },
    ]),
  ];
  const [any] = block;
  const caption =
    `${any.data}, B=${any.base}: percent, mean ± sample standard deviation over n seeds. ` +
    `${published(block) ? "Below: the paper’s mean and our gap to it. " : ""}Classifier: ${classifierName(block)}.`;
  refill(
    byId("headline-table"),
    table(caption, columns, [[null, rows.slice(0, most)]], { id: "headline-rows", kind: "headline", csv }),
  );
  const apart = differing(block).filter((what) => !["protocol", content.classification].includes(what));
  const expand = (all) => change({ rows: all ? "all" : "" });
  const sources = distinct(block.filter((group) => group.paper).map(({ paper }) => paper.source));
  refill(
    byId("headline-notes"),
    rows.length > MOST_ROWS
      ? button(
          most < rows.length ? `Show all ${rows.length} rows` : "Show fewer rows",
          () => expand(most < rows.length),
          { id: "more-rows" },
        )
      : "",
    sources.length ? make("p", {}, `Paper: ${sources.join("; ")}.`) : "",
    apart.length ? make("p", {}, `These runs differ in ${apart.join(", ")}.`) : "",
    block.length < view.matching.length
      ? make(
          "p",
          {},
          `${block.length} of ${plural(view.matching.length, "group")} have this data set and B. “All results” has every group.`,
        )
      : "",
  );
}

const classifierName = (members) => {
  const used = distinct(members.map(classifierOf));
  return used.length > 1 ? CLASSIFIERS[OWN] : CLASSIFIERS[used[0]];
};

const accuracyChart = lineChart(byId("accuracy-chart"), {
  title: "Accuracy",
  xName: "Number of classes seen",
  yName: "Accuracy on all seen classes, %",
  atX: (count) => `${count} classes seen`,
});

const linesOf = (get) =>
  view.lines
    .filter(({ group }) => resultsOf(group))
    .map((line) => ({ ...line, points: get(resultsOf(line.group), line.group) }));

function accuracy() {
  const published = view.lines.filter(({ group }) => paperOf(group) && resultsOf(group));
  const drawn = state.paper ?? published.length <= 4;
  byId("published-field").hidden = published.length === 0;
  byId("published").checked = drawn;
  accuracyChart.show(
    linesOf(({ curve }, group) => curve.map((pair, at) => [group.seen[at], ...pair])),
    drawn ? published.map(({ group, look }) => ({ look, value: group.paper.mean })) : [],
  );
  const [any] = view.shown;
  const common = any
    ? ["data set", "protocol", "memory", "training", "network"].filter((what) => !view.mixed.includes(what))
    : [];
  byId("drawn").textContent = common.map((what) => any.conditions[what]).join(" · ");
  byId("mixed").hidden = view.mixed.length === 0;
  byId("mixed").textContent = `These lines compare more than methods: their runs differ in ${view.mixed.join(", ")}.`;
  switches();
}
