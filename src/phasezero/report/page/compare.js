// Sections that compare groups of runs. Numbers come ready from content.py. Each function builds its section when it
// is first opened, and returns what brings it up to date.

function resultsSection() {
  const source = ({ paper }) => `${paper.source}; classifier: ${CLASSIFIERS[paper.by]}`;
  return () => {
    const notes = distinct(view.matching.filter((group) => group.paper).map(source));
    const metric = (name, get) => ({
      name,
      number: true,
      get: (group) => (resultsOf(group) ? get(resultsOf(group)) : null),
    });
    const paper = [
      { name: "paper", number: true, get: (group) => (group.paper ? [group.paper.mean, group.paper.sd] : null) },
      {
        ...metric("gap", (found) => found.gap),
        show: (group) => (resultsOf(group)?.gap == null ? "–" : signed(resultsOf(group).gap)),
      },
    ];
    const columns = [
      {
        name: "run",
        get: (group) => group.label,
        show: (group) => named(view.lookOf(group), group.short, group.label),
      },
      { name: "n", number: true, get: (group) => numbersOf(group).n },
      metric("average", (found) => found.average),
      ...(notes.length ? paper : []),
      metric("phase 0", (found) => found.curve[0]),
      metric("last", (found) => found.last),
      metric("forgetting", (found) => found.forgetting),
    ];
    const which =
      classifierName(view.matching) === CLASSIFIERS[OWN]
        ? `${CLASSIFIERS[OWN]}, as the headings say`
        : classifierName(view.matching);
    const caption = `Accuracy in percent, classifier: ${which}; mean ± sample standard deviation over n runs`;
    const sections = view.sets.map(({ name, members }) => [name || null, members]);
    refill(byId("results-table"), table(caption, columns, sections, { id: "results-rows" }));
    const missing = view.matching.filter((group) => !resultsOf(group)).map((group) => brief(group.label));
    byId("results-notes").replaceChildren(
      make(
        "p",
        {},
        "“average” is the average incremental accuracy: the mean over all phases, phase 0 included. " +
          (notes.length
            ? "“gap” is our number minus the paper’s. It is left out if the paper’s number comes from another classifier."
            : "The paper has no number for these runs."),
      ),
      ...notes.map((text) => make("p", {}, `Paper: ${text}.`)),
      missing.length ? make("p", {}, `Not measured with this classifier: ${missing.join(", ")}.`) : "",
    );
  };
}

function oldNewSection() {
  const [old, fresh] = ["old", "new"].map((which) =>
    lineChart(byId(`${which}-chart`), {
      title: `${which === "old" ? "Old" : "New"} classes`,
      xName: "Phase",
      yName: `Accuracy on ${which} classes, %`,
      atX: (phase) => `phase ${phase}`,
      missing: "No run with two or more phases is shown.",
    }),
  );
  return () => {
    old.show(linesOf((found) => found.old.map((pair, at) => [at + 1, ...pair])));
    fresh.show(linesOf((found) => (found.old.length ? found.new : []).slice(1).map((pair, at) => [at + 1, ...pair])));
  };
}

function forgettingSection() {
  const chart = lineChart(byId("forgetting-chart"), {
    title: "Forgetting",
    xName: "Phase of the classes",
    yName: "Accuracy lost by the end, points",
    atX: (phase) => `classes of phase ${phase}`,
    missing: "No run with two or more phases is shown.",
  });
  return () => chart.show(linesOf(({ lost }) => lost.map((pair, at) => [at, ...pair])));
}

function costSection() {
  const chart = lineChart(byId("cost-chart"), {
    title: "Accuracy against seconds",
    xName: "Seconds of all phases",
    yName: "Average incremental accuracy, %",
    atX: (seconds) => duration(seconds),
    scatter: true,
  });
  return () => {
    chart.show(linesOf(({ average }, group) => [[Math.max(numbersOf(group).seconds[0], 0.001), ...average]]));
    const devices = distinct(
      view.runs.filter((run) => view.shown.includes(groups[run.group])).map((run) => run.environment.device_name),
    );
    byId("devices").hidden = devices.length < 2;
    byId("devices").textContent =
      `These runs used different machines, so their seconds do not compare: ${devices.join(", ")}.`;
  };
}

function spectraSection() {
  const phases = distinct(groups.flatMap((group) => Object.keys(group.all.spectra))).sort((a, b) => a - b);
  byId("after").append(...phases.map((phase) => option(phase, phase)));
  for (const id of ["after", "split"])
    byId(id).addEventListener("change", (event) => change({ [id]: event.target.value }));
  const chart = lineChart(byId("spectra-chart"), {
    title: "Spectra",
    xName: "Number of directions, k",
    yName: "Share of the variance, %",
    atX: (k) => (k > 1 ? `${k} largest directions` : "largest direction"),
    missing: "No run that matches was analysed after this phase.",
  });
  return () => {
    const phase = state.after || phases[0];
    [byId("after").value, byId("split").value] = [phase, state.split];
    const analysed = (group) => numbersOf(group).spectra[phase];
    const drawn = view.lines.filter(({ group }) => analysed(group));
    const others = view.matching.filter(analysed);
    const looks = looksAmong(others);
    // If no line above was analysed, those that were are drawn instead.
    const lines = drawn.length
      ? drawn
      : others.map((group) => ({ group, look: looks.get(group), label: brief(group.label) }));
    byId("spectra-note").textContent =
      drawn.length || !others.length ? "" : "None of the lines above was analysed; these runs were.";
    chart.show(
      lines.map(({ group, look, label }) => {
        const found = analysed(group);
        const part = found.n < numbersOf(group).n ? ` (${found.n} of ${numbersOf(group).n} runs)` : "";
        return { look, label: label + part, points: found[state.split].map((pair, at) => [found.k[at], ...pair]) };
      }),
    );
  };
}
