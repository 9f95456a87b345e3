// Groups of runs compared: what is switched on, the charts and the table. Numbers come ready from content.py.

const CLASSIFIERS = {
  head: "head",
  nearest_mean: "nearest mean of exemplars",
  uncorrected: "head without its correction",
};
const { groups, runs } = content;
groups.forEach((group, index) => {
  group.index = index;
});
// Of runs that went side by side, the share of the machine's time: what they cost; else all of the run's.
const machineSeconds = ({ timing }) => timing.share_seconds ?? timing.seconds_total;
const sideBySide = runs.some((run) => run.timing.share_seconds !== undefined);
const runName = (run) => `${groups[run.group].label}, seed ${run.seed}`;

const differing = (members) =>
  Object.keys(members[0]?.conditions ?? {}).filter(
    (what) => distinct(members.map((group) => group.conditions[what])).length > 1,
  );

// Groups that may be compared with each other, under what sets them apart from the others.
const apart = differing(groups);
const setName = (group) => apart.map((what) => group.conditions[what]).join(" · ");
const sets = distinct(groups.map(setName)).map((name) => [name, groups.filter((group) => setName(group) === name)]);
// Within such a set the names often end alike ("/cifar100/b50s10"), which its heading says already.
for (const [, members] of sets) {
  const tail = members[0].label.match(/\/.*$/)?.[0] ?? "";
  const shared = members.length > 1 && tail && members.every(({ label }) => label.endsWith(tail) && label !== tail);
  members.forEach((group) => {
    group.short = shared ? group.label.slice(0, -tail.length) : group.label;
  });
}
const MANY = 10;
const state = {
  shown: new Set((groups.length > MANY ? sets[0][1] : groups).map((group) => group.index)),
  classifier: "head",
};

const accuracyChart = lineChart(byId("accuracy-chart"), {
  title: "Accuracy",
  xName: "Number of classes seen",
  yName: "Accuracy on all seen classes, %",
  atX: (count) => `${count} classes seen`,
});
const forgettingChart = lineChart(byId("forgetting-chart"), {
  title: "Forgetting",
  xName: "Phase in which the classes came",
  yName: "Accuracy lost by the end, points",
  atX: (phase) => `classes of phase ${phase}`,
});
const spectraChart = lineChart(byId("spectra-chart"), {
  title: "Spectra",
  xName: "Number of directions, k",
  yName: "Share of the variance, %",
  atX: (k) => (k > 1 ? `${k} largest directions` : "largest direction"),
});
const confusion = confusionView();

function facts() {
  const of = (values) => distinct(values).join(", ");
  const added = sum(runs.map((run) => run.timing.seconds_total));
  const aside = sideBySide ? ` (side by side; start to end they add up to ${duration(added)})` : "";
  const entries = [
    ["runs", `${runs.length}` + (groups.length < runs.length ? ` in ${plural(groups.length, "group")}` : "")],
    ["data", of(content.classes.map((list) => list.data))],
    ["protocol", of(groups.map((group) => group.conditions.protocol))],
    ["memory", of(groups.map((group) => group.conditions.memory))],
    ["device", of(runs.map((run) => run.environment.device_name))],
    ["computed in", duration(sum(runs.map(machineSeconds))) + aside],
  ];
  byId("facts").append(...entries.map(([name, value]) => fact(name, value)));
  byId("made").textContent =
    `Made by phasezero ${content.version} from ${plural(runs.length, "run record")}. ` +
    "This file is complete: it loads nothing.";
}

function warnings() {
  const items = [
    ...content.differences.map(({ what, owners }) =>
      make(
        "li",
        {},
        make("strong", {}, `Runs differ in ${what}:`),
        make(
          "ul",
          {},
          owners.map(([value, labels]) =>
            make(
              "li",
              {},
              make("b", {}, value),
              labels.length > 3 ? folded(`${labels.length} groups`, labels.join(", ")) : ` – ${labels.join(", ")}`,
            ),
          ),
        ),
      ),
    ),
    ...content.repeated.map((text) => make("li", {}, text)),
  ];
  byId("warning-list").append(...items);
  byId("warnings").hidden = items.length === 0;
}

function switches() {
  const boxes = new Map();
  const toggle = (indices, on) => {
    indices.forEach((index) => {
      boxes.get(index).checked = on(index);
      if (on(index)) state.shown.add(index);
      else state.shown.delete(index);
    });
    charts();
  };
  const everything = groups.map((group) => group.index);
  byId("switches").append(
    ...sets.map(([text, members]) =>
      make(
        "fieldset",
        {},
        make("legend", sets.length < 2 ? { class: "hidden" } : {}, text || "Runs"),
        sets.length < 2
          ? null
          : make(
              "button",
              {
                type: "button",
                "aria-label": `only these: ${text}`,
                onclick: () => toggle(everything, (index) => members.some((group) => group.index === index)),
              },
              "only these",
            ),
        members.map((group) => {
          const box = make("input", {
            type: "checkbox",
            id: `switch-${group.index}`,
            checked: state.shown.has(group.index),
            onchange: (event) => toggle([group.index], () => event.target.checked),
          });
          boxes.set(group.index, box);
          return make("p", { class: "switch" }, box, make("label", { for: box.id }, named(group.index, group.short)));
        }),
      ),
    ),
  );
  byId("all").addEventListener("click", () => toggle(everything, () => true));
  byId("none").addEventListener("click", () => toggle(everything, () => false));
  byId("switch-buttons").hidden = groups.length < 3;
  const measured = Object.keys(CLASSIFIERS).filter((name) => groups.some((group) => group.results[name]));
  byId("classifier").append(...measured.map((name) => make("option", { value: name }, CLASSIFIERS[name])));
  byId("classifier-field").hidden = measured.length < 2;
  byId("switches").hidden = groups.length < 2;
  byId("shown").hidden = groups.length < 2 && measured.length < 2;
  byId("classifier").addEventListener("change", (event) => {
    state.classifier = event.target.value;
    charts();
    results();
    details();
  });
  const published = groups.filter((group) => group.paper);
  byId("published-field").hidden = published.length === 0;
  byId("published").checked = published.length <= 4;
  byId("published").addEventListener("change", charts);
}

function charts() {
  const shown = groups.filter((group) => state.shown.has(group.index));
  const measured = shown.filter((group) => group.results[state.classifier]);
  const several = differing(shown).length > 0;
  const series = (from, points, note = () => "") =>
    from.map((group) => ({
      index: group.index,
      label: (several ? group.label : group.short) + note(group),
      points: points(group),
    }));
  const levels = byId("published").checked
    ? measured.filter((group) => group.paper && group.paper.by === state.classifier)
    : [];
  accuracyChart.show(
    series(measured, (group) => group.results[state.classifier].curve.map((pair, at) => [group.seen[at], ...pair])),
    levels.map((group) => ({ index: group.index, value: group.paper.mean })),
  );
  forgettingChart.show(
    series(measured, (group) => group.results[state.classifier].lost.map((pair, at) => [at, ...pair])),
  );
  const phase = byId("spectra-phase").value;
  spectraChart.show(
    series(
      shown.filter((group) => group.spectra[phase]),
      ({ spectra }) => spectra[phase][byId("spectra-split").value].map((pair, at) => [spectra[phase].k[at], ...pair]),
      (group) => (group.spectra[phase].n < group.n ? ` (${group.spectra[phase].n} of ${group.n} runs)` : ""),
    ),
  );
  const mixed = differing(shown);
  byId("mixed").hidden = mixed.length === 0;
  byId("mixed").textContent = mixed.length
    ? `These lines compare more than methods: their runs differ in ${mixed.join(", ")}.`
    : "";
}

function spectra() {
  const phases = distinct(groups.flatMap((group) => Object.keys(group.spectra)))
    .map(Number)
    .sort((a, b) => a - b);
  byId("spectra").hidden = phases.length === 0;
  byId("spectra-phase").append(...phases.map((phase) => make("option", { value: phase }, String(phase))));
  for (const id of ["spectra-phase", "spectra-split"]) byId(id).addEventListener("change", charts);
}

function results() {
  const of = (group) => group.results[state.classifier];
  const comparable = (group) => group.paper && of(group) && group.paper.by === state.classifier;
  const gap = (group) => (comparable(group) ? of(group).average[0] - group.paper.mean : null);
  const metric = (name, get) => {
    const found = (group) => (of(group) ? get(of(group)) : null);
    const deviates = groups.some((group) => found(group)?.[1] != null);
    return {
      name,
      number: true,
      value: (group) => aligned(found(group), deviates),
      key: (group) => found(group)?.[0] ?? null,
    };
  };
  const source = ({ paper }) => `${paper.source}; classifier: ${CLASSIFIERS[paper.by]}`;
  const notes = distinct(groups.filter((group) => group.paper).map(source));
  const paper = [
    {
      name: "paper",
      number: true,
      key: (group) => (group.paper ? group.paper.mean : null),
      value: (group) =>
        group.paper
          ? [
              aligned([group.paper.mean, group.paper.sd], true),
              make("sup", {}, String(notes.indexOf(source(group)) + 1)),
            ]
          : "–",
    },
    { name: "gap", number: true, key: gap, value: (group) => (gap(group) === null ? "–" : signed(gap(group))) },
  ];
  const columns = [
    { name: "run", value: (group) => named(group.index, group.short), key: (group) => group.label },
    { name: "n", number: true, value: (group) => String(group.n), key: (group) => group.n },
    metric("average", (found) => found.average),
    ...(notes.length ? paper : []),
    metric("phase 0", (found) => found.curve[0]),
    metric("last", (found) => found.last),
    metric("forgetting", (found) => found.forgetting),
  ];
  const caption =
    `Accuracy in percent, classifier: ${CLASSIFIERS[state.classifier]}; ` +
    "mean ± sample standard deviation over n runs";
  byId("results-table").replaceChildren(
    table(
      caption,
      columns,
      sets.map(([name, members]) => [name || null, members]),
      { id: "results-rows" },
    ),
  );
  const missing = groups.filter((group) => !of(group));
  byId("results-notes").replaceChildren(
    make(
      "p",
      {},
      "“average” is the average incremental accuracy: the mean over all phases, phase 0 included. " +
        (notes.length
          ? "“gap” is ours less the paper’s; there is none where the paper’s comes from another classifier."
          : "The paper has no number for these runs."),
    ),
    notes.length
      ? make(
          "ol",
          {},
          notes.map((text) => make("li", {}, text)),
        )
      : "",
    missing.length
      ? make("p", {}, `Not measured with this classifier: ${missing.map((group) => group.label).join(", ")}.`)
      : "",
  );
}
