// Sections of single runs: confusion, forgotten classes, phases, machine, classes and settings.

const MOST_FORGOTTEN = 12;

function runSection() {
  const confusion = confusionView();
  byId("which").addEventListener("change", (event) => change({ run: event.target.value, phase: "" }));
  byId("phase").addEventListener("input", (event) => change({ phase: event.target.value }));
  let listed = "";
  return () => {
    const keys = view.runs.map(runKey);
    if (listed !== keys.join()) {
      byId("which").replaceChildren(...view.runs.map((run, at) => option(keys[at], runName(run))));
      listed = keys.join();
    }
    const run = view.runs[Math.max(keys.indexOf(state.run), 0)];
    for (const element of byId("run").children)
      element.classList.toggle("absent", !run && element.tagName !== "SUMMARY");
    if (!run) return;
    byId("which").value = runKey(run);
    confusion.show(run, state.phase);
    forgotten(run);
    byPhase(run);
    time(run);
  };
}

// From the last confusion matrix and each class's best phase.
async function forgotten(run) {
  const box = byId("forgotten");
  const names = content.classes[run.classes].class_names;
  const last = run.matrices.at(-1);
  if (!last || !UNPACKS)
    return box.replaceChildren(make("p", { class: "notes" }, "This page has no confusion matrices."));
  const entries = await unpackConfusion(last, sum(run.sizes));
  const phaseOf = run.sizes.flatMap((size, phase) => new Array(size).fill(phase));
  const rows = phaseOf.map((phase, label) => {
    const own = entries.filter(([row]) => row === label);
    const total = sum(own.map(([, , count]) => count)) || 1;
    const right = own.find(([, column]) => column === label)?.[2] ?? 0;
    const taken = own.filter(([, column]) => column !== label).sort((a, b) => b[2] - a[2]);
    const called = taken.slice(0, 3).map(([, column, count]) => `${names[column]} (${percent(count, total)})`);
    const share = (count) => (100 * count) / total;
    return {
      label,
      phase,
      best: share(run.best[label]),
      end: share(right),
      lost: share(run.best[label] - right),
      called,
    };
  });
  const most = rows.filter(({ lost }) => lost > 0).sort((a, b) => b.lost - a.lost);
  const columns = [
    { name: "class", get: ({ label }) => names[label] },
    { name: "phase", number: true, get: ({ phase }) => phase },
    { name: "best %", number: true, digits: 1, get: ({ best }) => best },
    { name: "at the end %", number: true, digits: 1, get: ({ end }) => end },
    { name: "lost, points", number: true, digits: 1, get: ({ lost }) => lost },
    { name: "now taken for", kind: "words", get: ({ called }) => called.join(", ") },
  ];
  refill(
    box,
    make(
      "p",
      {},
      `${most.length} of ${rows.length} classes are recognized less often after the last phase than after their best phase (head classifier).`,
    ),
    most.length
      ? table("The most forgotten classes", columns, [[null, most.slice(0, MOST_FORGOTTEN)]], {
          csv: columns,
          id: "forgotten-rows",
        })
      : "",
  );
}

function byPhase(run) {
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
        { name: "after phase", get: ({ phase }) => phase },
        ...run.sizes.map((_, of) => ({
          name: String(of),
          number: true,
          get: ({ row }) => row[of] ?? null,
          show: ({ row }) => (of < row.length ? shade(row[of]) : ""),
        })),
      ],
      [[null, rows.map((row, phase) => ({ row, phase }))]],
      { kind: "shaded", sortable: false },
    );
  refill(
    byId("by-phase"),
    matrix || make("p", {}, "This run was not measured with the chosen classifier."),
    make("p", { class: "notes" }, "Rows: after which phase. Columns: the phase in which the classes came."),
  );
}

function time(run) {
  const stages = distinct(run.seconds.flatMap((seconds) => Object.keys(seconds))).filter((stage) => stage !== "total");
  const most = Math.max(...run.seconds.map((seconds) => seconds.total), 1e-9);
  const bar = (seconds) => {
    const parts = stages.map((stage, place) => {
      const part = make("span", { class: `part-${place % 6}`, title: `${stage}: ${duration(seconds[stage] ?? 0)}` });
      part.style.width = `${(100 * (seconds[stage] ?? 0)) / most}%`;
      return part;
    });
    return make("span", { class: "stages", "aria-hidden": "true" }, parts);
  };
  const stageBars = { name: "stages", get: () => null, show: ({ seconds }) => bar(seconds) };
  const phase = { name: "phase", get: ({ phase }) => phase };
  const columns = [
    ...[...stages, "total"].map((stage) => ({
      name: stage,
      number: true,
      digits: 2,
      get: ({ seconds }) => seconds[stage] ?? 0,
    })),
    { name: "training images", number: true, get: ({ phase }) => run.train_images[phase] },
    { name: "exemplars kept", number: true, get: ({ phase }) => run.exemplars[phase] },
  ];
  const { share_seconds: share, seconds_total: total, reused_phase_zero: reused } = run.timing;
  refill(
    byId("time"),
    make(
      "p",
      { class: "key" },
      stages.map((stage, place) => make("span", {}, make("span", { class: `part-${place % 6}` }), stage)),
    ),
    table(
      "Seconds of each phase and stage",
      [phase, stageBars, ...columns],
      [[null, run.seconds.map((seconds, phase) => ({ seconds, phase }))]],
      { csv: [phase, ...columns], sortable: false },
    ),
    share === undefined
      ? ""
      : make(
          "p",
          { class: "notes" },
          `This run took ${duration(total)} from start to end. It trained side by side with other runs; its share of the machine’s time is ${duration(share)}.`,
        ),
    reused
      ? make("p", { class: "notes" }, "Phase 0 came out of the store; its seconds are not in the run’s total.")
      : "",
  );
}

function setupSection() {
  const names = distinct(runs.flatMap((run) => Object.keys(run.environment))).filter((key) => key !== "device"); // the device's name says more
  const text = (run, key) => {
    const value = run.environment[key] ?? "–";
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  };
  const title = (key) => key.replace("_name", "");
  return () => {
    const own = view.runs;
    const shared = own.some((run) => run.timing.share_seconds !== undefined);
    const same = names.filter((key) => distinct(own.map((run) => text(run, key))).length === 1);
    const time = (name, get) => ({ name, number: true, get, show: (run) => duration(get(run)) });
    const columns = [
      {
        name: "run",
        get: (run) => groups[run.group].label,
        show: (run) => named(null, groups[run.group].short, groups[run.group].label),
      },
      { name: "seed", number: true, get: (run) => run.seed },
      time("machine time", machineSeconds),
      ...(shared ? [time("start to end", (run) => run.timing.seconds_total)] : []),
      { name: "phase 0", get: (run) => (run.timing.reused_phase_zero ? "from the store" : "trained") },
      {
        name: "started (UTC)",
        get: (run) => run.timing.started.slice(0, 16).replace("T", " "),
        show: (run) => run.timing.started.slice(0, 16).replace("T", "\u00a0"),
      },
      ...names.filter((key) => !same.includes(key)).map((key) => ({ name: title(key), get: (run) => text(run, key) })),
    ];
    refill(
      byId("environment"),
      make("p", { class: "lead" }, own.length > 1 ? "The same for all runs:" : "This run:"),
      make("dl", { class: "facts" }, own.length ? same.map((key) => fact(title(key), text(own[0], key))) : []),
      table("When each run was computed, how long it took, and where the runs differ", columns, [[null, own]], {
        id: "setup-rows",
      }),
      shared
        ? make(
            "p",
            { class: "notes" },
            "Runs that trained side by side share the machine’s time: the machine time of such a run is its share.",
          )
        : "",
    );
  };
}

function classesSection() {
  const shown = (list, index) => {
    const users = view.runs.filter((run) => run.classes === index);
    if (!users.length) return null;
    const sizes = distinct(users.map((run) => run.sizes.join(" + ")));
    const names = list.class_names.map((name, label) => {
      const id = list.class_ids[label];
      return id === name ? name : `${name} [${id}]`;
    });
    return make(
      "article",
      {},
      make("h3", {}, `${list.name}, order ${brief(list.class_order)}`),
      make(
        "p",
        {},
        `${names.length} classes, ${list.train_images} training and ${list.test_images} test images; ` +
          `used by ${plural(users.length, "run")}. The sha256 of the ordered class list: `,
        make("code", {}, list.class_hash),
      ),
      make("p", { class: "notes" }, `Classes by phase: ${sizes.join("; ")}`),
      folded("The classes in order", () =>
        make(
          "ol",
          { start: "0", class: "names" },
          names.map((name) => make("li", {}, name)),
        ),
      ),
    );
  };
  return () => refill(byId("class-lists"), content.classes.map(shown));
}

function configurationsSection() {
  return () => {
    const compared = view.shown.length > 1 ? view.shown : [];
    const settings = content.settings.filter(
      ([, values]) => distinct(compared.map((group) => values[groups.indexOf(group)])).length > 1,
    );
    const columns = [
      { name: "setting", get: ([key]) => key, show: ([key]) => make("code", {}, key) },
      ...view.lines.map(({ group, label }) => ({
        name: label,
        get: ([, values]) => values[groups.indexOf(group)],
        show: ([, values]) => brief(values[groups.indexOf(group)] ?? "–"),
      })),
    ];
    refill(
      byId("configuration-list"),
      settings.length
        ? folded(`The ${plural(settings.length, "setting")} in which the lines of the chart differ`, () =>
            table("Settings that are not the same in all of them", columns, [[null, settings]], { sortable: false }),
          )
        : null,
      view.runs.map((run) => folded(runName(run), () => make("pre", { tabindex: "0" }, run.config))),
    );
  };
}
