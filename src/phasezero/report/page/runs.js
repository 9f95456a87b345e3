// Single runs: phases, machine, classes and settings.

function details() {
  const run = runs[Number(byId("which").value)];
  const classifier = classifierOf(groups[run.group]);
  const rows = run.by_phase[classifier];
  const lowest = Math.min(...(rows ?? []).flat());
  const shade = (value) => {
    const cell = make("span", { class: "heat" }, fixed(value, 1));
    cell.style.setProperty("--share", `${10 + (80 * (value - lowest)) / (100 - lowest || 1)}%`);
    return cell;
  };
  const matrix =
    rows &&
    table(
      `Accuracy in percent on the classes of each phase, classifier: ${CLASSIFIERS[classifier]}`,
      [
        { name: "after phase", value: ({ phase }) => String(phase) },
        ...run.sizes.map((_, of) => ({
          name: String(of),
          number: true,
          value: ({ row }) => (of < row.length ? shade(row[of]) : ""),
        })),
      ],
      [[null, rows.map((row, phase) => ({ row, phase }))]],
      { shaded: true },
    );
  byId("by-phase").replaceChildren(
    matrix || make("p", {}, "This run was not measured with the chosen classifier."),
    make("p", { class: "notes" }, "Rows: after which phase. Columns: the phase in which the classes came."),
  );
  time(run);
}

function time(run) {
  const stages = distinct(run.seconds.flatMap((seconds) => Object.keys(seconds))).filter(
    (stage) => stage !== "total",
  );
  const most = Math.max(...run.seconds.map((seconds) => seconds.total), 1e-9);
  const bar = (seconds) => {
    const parts = stages.map((stage, place) => {
      const part = make("span", {
        class: `part part-${place % 6}`,
        title: `${stage}: ${duration(seconds[stage] ?? 0)}`,
      });
      part.style.width = `${(100 * (seconds[stage] ?? 0)) / most}%`;
      return part;
    });
    return make("span", { class: "bar", "aria-hidden": "true" }, parts);
  };
  const columns = [
    { name: "phase", value: ({ phase }) => String(phase) },
    { name: "stages", value: ({ seconds }) => bar(seconds) },
    ...stages.map((stage) => ({ name: stage, number: true, value: ({ seconds }) => fixed(seconds[stage] ?? 0) })),
    { name: "total", number: true, value: ({ seconds }) => fixed(seconds.total) },
    { name: "training images", number: true, value: ({ phase }) => String(run.train_images[phase]) },
    { name: "exemplars kept", number: true, value: ({ phase }) => String(run.exemplars[phase]) },
  ];
  byId("time").replaceChildren(
    make(
      "p",
      { class: "key" },
      stages.map((stage, place) => make("span", {}, make("span", { class: `part part-${place % 6}` }), stage)),
    ),
    table("Seconds of each phase and stage", columns, [
      [null, run.seconds.map((seconds, phase) => ({ seconds, phase }))],
    ]),
    run.timing.share_seconds === undefined
      ? ""
      : make(
          "p",
          { class: "notes" },
          `This run was trained in parallel with others: of ${duration(run.timing.seconds_total)} from start to end, ` +
            `${duration(run.timing.share_seconds)} were its share of the machine’s time.`,
        ),
    run.timing.reused_phase_zero
      ? make("p", { class: "notes" }, "Phase 0 came out of the store; its seconds are not in the run’s total.")
      : "",
  );
}

function environment() {
  const startToEnd = {
    name: "start to end",
    number: true,
    value: (run) => duration(run.timing.seconds_total),
    key: (run) => run.timing.seconds_total,
  };
  const facts = distinct(runs.flatMap((run) => Object.keys(run.environment))).filter((key) => key !== "device"); // the device's name says more
  const text = (run, key) => String(run.environment[key] ?? "–");
  const same = facts.filter((key) => distinct(runs.map((run) => text(run, key))).length === 1);
  const title = (key) => key.replace("_name", "");
  const columns = [
    { name: "run", value: (run) => named(run.group, groups[run.group].label), key: (run) => groups[run.group].label },
    { name: "seed", number: true, value: (run) => String(run.seed), key: (run) => run.seed },
    { name: "time", number: true, value: (run) => duration(machineSeconds(run)), key: machineSeconds },
    ...(sideBySide ? [startToEnd] : []),
    {
      name: "phase 0",
      value: (run) => (run.timing.reused_phase_zero ? "from the store" : "trained"),
      key: (run) => run.timing.reused_phase_zero,
    },
    {
      name: "started (UTC)",
      value: (run) => run.timing.started.slice(0, 16).replace("T", " "),
      key: (run) => run.timing.started,
    },
    ...facts
      .filter((key) => !same.includes(key))
      .map((key) => ({ name: title(key), value: (run) => text(run, key), key: (run) => text(run, key) })),
  ];
  byId("environment").append(
    make("p", { class: "lead" }, runs.length > 1 ? "The same for all runs:" : "This run:"),
    make(
      "dl",
      { class: "facts" },
      same.map((key) => fact(title(key), text(runs[0], key))),
    ),
    table("When each run was computed, how long it took, and where the runs differ", columns, [[null, runs]]),
    sideBySide
      ? make("p", { class: "notes" }, "“time” of a parallel run is its share of the machine’s time.")
      : "",
  );
}

function classLists() {
  byId("class-lists").append(
    ...content.classes.map((list, index) => {
      const users = runs.filter((run) => run.classes === index);
      const sizes = distinct(users.map((run) => run.sizes.join(" + ")));
      const names = list.class_names.map((name, label) => {
        const id = list.class_ids[label];
        return id === name ? name : `${name} [${id}]`;
      });
      return make(
        "article",
        {},
        make("h3", {}, `${list.name}, order ${list.class_order}`),
        make(
          "p",
          {},
          `${names.length} classes, ${list.train_images} training and ${list.test_images} test images; ` +
            `used by ${plural(users.length, "run")}. The sha256 of the ordered class list: `,
          make("code", {}, list.class_hash),
        ),
        make("p", { class: "notes" }, `Classes by phase: ${sizes.join("; ")}`),
        folded(
          "The classes in order",
          make(
            "ol",
            { start: "0", class: "names" },
            names.map((name) => make("li", {}, name)),
          ),
        ),
      );
    }),
  );
}

function configurations() {
  if (content.settings.length) {
    const columns = [
      { name: "setting", value: ([key]) => make("code", {}, key) },
      ...groups.map((group, at) => ({ name: group.label, value: ([, values]) => values[at] ?? "–" })),
    ];
    byId("configuration-list").append(
      folded(
        `The ${plural(content.settings.length, "setting")} in which they differ`,
        table("Settings that are not the same in all groups", columns, [[null, content.settings]]),
      ),
    );
  }
  byId("configuration-list").append(
    ...runs.map((run) => folded(runName(run), make("pre", { tabindex: "0" }, run.config))),
  );
}
