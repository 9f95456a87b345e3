// Groups of runs compared: the charts and the table. Numbers come ready from content.py.

// Parallel runs count with their share of the machine's time, other runs with all of their time.
const machineSeconds = ({ timing }) => timing.share_seconds ?? timing.seconds_total;
const sideBySide = runs.some((run) => run.timing.share_seconds !== undefined);
const runName = (run) => `${groups[run.group].label}, seed ${run.seed}`;

const accuracyChart = lineChart(byId("accuracy-chart"), {
  title: "Accuracy",
  xName: "Number of classes seen",
  yName: "Accuracy on all seen classes, %",
  atX: (count) => `${count} classes seen`,
});
const forgettingChart = lineChart(byId("forgetting-chart"), {
  title: "Forgetting",
  xName: "Phase of the classes",
  yName: "Accuracy lost by the end, points",
  atX: (phase) => `classes of phase ${phase}`,
  missing: "No run with two or more phases is shown.",
});
const spectraChart = lineChart(byId("spectra-chart"), {
  title: "Spectra",
  xName: "Number of directions, k",
  yName: "Share of the variance, %",
  atX: (k) => (k > 1 ? `${k} largest directions` : "largest direction"),
});
const confusion = confusionView();

function facts() {
  const of = (values) => distinct(values).join("; "); // a protocol contains commas
  const added = duration(sum(runs.map((run) => run.timing.seconds_total)));
  const spans = runs.length > 1 ? `in parallel; times from start to end add up to ${added}` : `its share of ${added}, with parallel runs`;
  const aside = sideBySide ? ` (${spans})` : "";
  const entries = [
    ["runs", `${runs.length}` + (groups.length < runs.length ? ` in ${plural(groups.length, "group")}` : "")],
    ["data", of(content.classes.map((list) => list.name))],
    ["protocol", of(groups.map((group) => group.conditions.protocol))],
    ["memory", of(groups.map((group) => group.conditions.memory))],
    ["device", of(runs.map((run) => run.environment.device_name))],
    ["computed in", duration(sum(runs.map(machineSeconds))) + aside],
  ];
  byId("facts").append(...entries.map(([name, value]) => fact(name, value)));
  byId("made").textContent =
    `Made by phasezero ${content.version} from ${plural(runs.length, "run record")}. ` +
    "This file is self-contained.";
}

function charts() {
  const shown = groups.filter((group) => state.shown.has(group.index));
  const measured = shown.filter(resultsOf);
  const mixed = differing(shown);
  const series = (from, points, note) =>
    from.map((group) => ({
      index: group.index,
      label: (mixed.length ? group.label : group.short) + note(group),
      points: points(group),
    }));
  // No heading here names the classifier of a line.
  const byWhich = (group) =>
    mixed.includes(content.classification) && group.own !== "head" ? ` (${CLASSIFIERS[group.own]})` : "";
  const levels = byId("published").checked
    ? measured.filter((group) => group.paper?.by === classifierOf(group))
    : [];
  accuracyChart.show(
    series(measured, (group) => resultsOf(group).curve.map((pair, at) => [group.seen[at], ...pair]), byWhich),
    levels.map((group) => ({ index: group.index, value: group.paper.mean })),
  );
  forgettingChart.show(
    series(measured, (group) => resultsOf(group).lost.map((pair, at) => [at, ...pair]), byWhich),
  );
  const phase = byId("spectra-phase").value;
  const analysed = groups.filter((group) => group.spectra[phase]);
  const visible = analysed.filter((group) => state.shown.has(group.index));
  byId("spectra-chart").hidden = visible.length === 0;
  byId("spectra-off").hidden = visible.length > 0;
  byId("spectra-names").textContent = analysed.map((group) => group.label).join(", ");
  spectraChart.show(
    series(
      visible,
      ({ spectra }) => spectra[phase][byId("spectra-split").value].map((pair, at) => [spectra[phase].k[at], ...pair]),
      (group) => (group.spectra[phase].n < group.n ? ` (${group.spectra[phase].n} of ${group.n} runs)` : ""),
    ),
  );
  byId("mixed").hidden = mixed.length === 0;
  byId("mixed").textContent = mixed.length
    ? `These lines compare more than methods: their runs differ in ${mixed.join(", ")}.`
    : "";
}

function spectra() {
  byId("spectra").hidden = analysedPhases.length === 0;
  byId("spectra-phase").append(...analysedPhases.map((phase) => make("option", { value: phase }, String(phase))));
  for (const id of ["spectra-phase", "spectra-split"]) byId(id).addEventListener("change", charts);
  byId("spectra-on").addEventListener("click", () => {
    const analysed = groups.filter((group) => group.spectra[byId("spectra-phase").value]);
    toggle(
      analysed.map((group) => group.index),
      () => true,
    );
    byId("spectra-chart").querySelector(".chart").focus(); // the button is gone
  });
}

// Everything that depends on the classifier.
function compare() {
  warnings();
  switches();
  charts();
  results();
  sectionLinks();
}

function results() {
  const gap = (group) => resultsOf(group)?.gap ?? null;
  const metric = (name, get) => {
    const found = (group) => (resultsOf(group) ? get(resultsOf(group)) : null);
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
          ? aligned(
              [group.paper.mean, group.paper.sd],
              true,
              make("sup", {}, String(notes.indexOf(source(group)) + 1)),
            )
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
    `Accuracy in percent, classifier: ${classifierName()}; ` +
    "mean ± sample standard deviation over n runs";
  byId("results-table").replaceChildren(
    table(
      caption,
      columns,
      sets.map(([name, members]) => [name || null, members]),
      { id: "results-rows" },
    ),
  );
  const missing = groups.filter((group) => !resultsOf(group));
  byId("results-notes").replaceChildren(
    make(
      "p",
      {},
      "“average” is the average incremental accuracy: the mean over all phases, phase 0 included. " +
        (notes.length
          ? "“gap” is our number minus the paper’s. It is left out if the paper’s number comes from another classifier."
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
