// The page itself: what is switched on, and every section from it. Numbers come ready from content.py.

const CLASSIFIERS = { head: "head", nearest_mean: "nearest mean of exemplars", uncorrected: "head without its correction" };
const { groups, runs } = content;
groups.forEach((group, index) => { group.index = index; });
const runName = (run) => `${groups[run.group].label}, seed ${run.seed}`;
const conditionsText = (group) => Object.values(group.conditions).join(" · ");

// Groups that may be compared with each other, by what they have in common.
const sets = distinct(groups.map(conditionsText)).map((text) => [text, groups.filter((group) => conditionsText(group) === text)]);
const MANY = 10;
const state = { shown: new Set((groups.length > MANY ? sets[0][1] : groups).map((group) => group.index)), classifier: "head" };

const accuracyChart = lineChart(byId("accuracy-chart"), {
  title: "Accuracy", xName: "Number of classes seen", yName: "Accuracy on all seen classes, %", xWord: "classes seen",
});
const forgettingChart = lineChart(byId("forgetting-chart"), {
  title: "Forgetting", xName: "Phase in which the classes came", yName: "Accuracy lost by the end, points", xWord: "phase of origin",
});
const confusion = confusionView();

function facts() {
  const of = (values) => distinct(values).join(", ");
  const seconds = runs.reduce((sum, run) => sum + run.timing.seconds_total, 0);
  const entries = [
    ["runs", `${runs.length}` + (groups.length < runs.length ? ` in ${plural(groups.length, "group")}` : "")],
    ["data", of(content.classes.map((list) => list.data))],
    ["protocol", of(groups.map((group) => group.conditions.protocol))],
    ["memory", of(groups.map((group) => group.conditions.memory))],
    ["device", of(runs.map((run) => run.environment.device_name))],
    ["computed in", duration(seconds)],
  ];
  byId("facts").append(...entries.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  byId("made").textContent = `Made by phasezero ${content.version} from ${plural(runs.length, "run record")}. `
    + "This file is complete: it loads nothing.";
}

function warnings() {
  const items = [
    ...content.differences.map(({ what, owners }) => make("li", {}, make("strong", {}, `Runs differ in ${what}:`),
      make("ul", {}, owners.map(([value, labels]) => make("li", {}, make("b", {}, value), ` – ${labels.join(", ")}`))))),
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
      if (on(index)) state.shown.add(index); else state.shown.delete(index);
    });
    charts();
  };
  const everything = groups.map((group) => group.index);
  byId("switches").append(...sets.map(([text, members]) => make("fieldset", {},
    make("legend", sets.length < 2 ? { class: "hidden" } : {}, text),
    sets.length < 2 ? null : make("p", { class: "buttons" }, make("button", {
      type: "button", "aria-label": `Only ${text}`,
      onclick: () => toggle(everything, (index) => members.some((group) => group.index === index)),
    }, "Only these")),
    members.map((group) => {
      const box = make("input", {
        type: "checkbox", id: `switch-${group.index}`, checked: state.shown.has(group.index),
        onchange: (event) => toggle([group.index], () => event.target.checked),
      });
      boxes.set(group.index, box);
      return make("p", { class: "switch" }, box, make("label", { for: box.id }, swatch(group.index), make("span", {}, group.label)));
    }))));
  byId("all").addEventListener("click", () => toggle(everything, () => true));
  byId("none").addEventListener("click", () => toggle(everything, () => false));
  const measured = Object.keys(CLASSIFIERS).filter((name) => groups.some((group) => group.results[name]));
  byId("classifier").append(...measured.map((name) => make("option", { value: name }, CLASSIFIERS[name])));
  byId("classifier-field").hidden = measured.length < 2;
  byId("classifier").addEventListener("change", (event) => { state.classifier = event.target.value; charts(); results(); details(); });
  const published = groups.filter((group) => group.paper);
  byId("published-field").hidden = published.length === 0;
  byId("published").checked = published.length <= 4;
  byId("published").addEventListener("change", charts);
}

function charts() {
  const measured = groups.filter((group) => state.shown.has(group.index) && group.results[state.classifier]);
  const levels = byId("published").checked
    ? measured.filter((group) => group.paper && group.paper.by === state.classifier)
      .map((group) => ({ index: group.index, label: group.label, value: group.paper.mean })) : [];
  const series = (points) => measured.map((group) => ({ index: group.index, label: group.label, points: points(group) }));
  accuracyChart.show(series((group) => group.results[state.classifier].curve.map((pair, at) => [group.seen[at], ...pair])), levels);
  forgettingChart.show(series((group) => group.results[state.classifier].lost.map((pair, at) => [at, ...pair])));
}

function results() {
  const of = (group) => group.results[state.classifier];
  const comparable = (group) => group.paper && of(group) && group.paper.by === state.classifier;
  const gap = (group) => (comparable(group) ? of(group).average[0] - group.paper.mean : null);
  const metric = (name, get) => ({
    name, number: true, value: (group) => (of(group) ? spread(get(of(group))) : "–"), key: (group) => (of(group) && get(of(group)) ? get(of(group))[0] : null),
  });
  const notes = distinct(groups.filter((group) => group.paper).map((group) => `${group.paper.table}: ${group.paper.note}`));
  const note = (group) => notes.indexOf(`${group.paper.table}: ${group.paper.note}`) + 1;
  const columns = [
    { name: "run", value: (group) => [swatch(group.index), " ", group.label], key: (group) => group.label },
    { name: "n", number: true, value: (group) => String(group.n), key: (group) => group.n },
    metric("phase 0", (found) => found.curve[0]),
    metric("last", (found) => found.last),
    metric("average", (found) => found.average),
    ...(notes.length ? [{
      name: "paper", number: true, key: (group) => (group.paper ? group.paper.mean : null),
      value: (group) => (group.paper ? [spread([group.paper.mean, group.paper.sd]),
        group.paper.by === state.classifier ? "" : ` (${group.paper.by.replace("_", " ")})`, make("sup", {}, String(note(group)))] : "–"),
    }, { name: "gap", number: true, key: gap, value: (group) => (gap(group) === null ? "–" : signed(gap(group))) }] : []),
    metric("forgetting", (found) => found.forgetting),
  ];
  const caption = `Accuracy in percent, classifier: ${CLASSIFIERS[state.classifier]}; mean ± sample standard deviation over n runs`;
  byId("results-table").replaceChildren(table(caption, columns, sets.map(([text, members]) => [sets.length > 1 ? text : null, members]), { id: "results-rows" }));
  const missing = groups.filter((group) => !of(group));
  byId("results-notes").replaceChildren(
    make("p", {}, "“average” is the average incremental accuracy: the mean over all phases, phase 0 included. "
      + (notes.length ? "“gap” is ours less the paper’s, where both come from the same classifier."
        : "The paper has no number for these runs.")),
    notes.length ? make("ol", {}, notes.map((text) => make("li", {}, text.replaceAll("_", " ")))) : "",
    missing.length ? make("p", {}, `Not measured with this classifier: ${missing.map((group) => group.label).join(", ")}.`) : "");
}

function details() {
  const run = runs[Number(byId("which").value)];
  const rows = run.by_phase[state.classifier];
  const starts = phaseStarts(run.sizes);
  const shade = (value) => {
    const cell = make("span", { class: "heat" }, fixed(value, 1));
    cell.style.setProperty("--share", `${value}%`);
    return cell;
  };
  const matrix = rows && table(`Accuracy in percent on the classes of each phase, classifier: ${CLASSIFIERS[state.classifier]}`, [
    { name: "after phase", value: ({ phase }) => String(phase) },
    ...run.sizes.map((size, of) => ({
      name: `${of}`, number: true, value: ({ row }) => (of < row.length ? shade(row[of]) : ""),
    })),
  ], [[null, rows.map((row, phase) => ({ row, phase }))]], { total: true });
  byId("by-phase").replaceChildren(matrix || make("p", {}, "This run was not measured with the chosen classifier."),
    make("p", { class: "notes" }, `Columns are the phases the classes came in: ${run.sizes.map((size, phase) =>
      `${phase}: ${size > 1 ? `${starts[phase]}–${starts[phase] + size - 1}` : starts[phase]}`).slice(0, 6).join(", ")}${run.sizes.length > 6 ? ", …" : ""}.`));
  time(run);
}

function time(run) {
  const stages = distinct(run.seconds.flatMap((seconds) => Object.keys(seconds))).filter((stage) => stage !== "total");
  const most = Math.max(...run.seconds.map((seconds) => seconds.total), 1e-9);
  const bar = (seconds) => {
    const parts = stages.map((stage, place) => {
      const part = make("span", { class: `part part-${place % 6}`, title: `${stage}: ${duration(seconds[stage] ?? 0)}` });
      part.style.width = `${(100 * (seconds[stage] ?? 0)) / most}%`;
      return part;
    });
    return make("span", { class: "bar", "aria-hidden": "true" }, parts);
  };
  const columns = [
    { name: "phase", value: ({ phase }) => String(phase) },
    { name: "", value: ({ seconds }) => bar(seconds) },
    ...stages.map((stage) => ({ name: stage, number: true, value: ({ seconds }) => fixed(seconds[stage] ?? 0) })),
    { name: "total", number: true, value: ({ seconds }) => fixed(seconds.total) },
    { name: "training images", number: true, value: ({ phase }) => String(run.train_images[phase]) },
    { name: "exemplars kept", number: true, value: ({ phase }) => String(run.exemplars[phase]) },
  ];
  byId("time").replaceChildren(
    make("p", { class: "key" }, stages.map((stage, place) => make("span", {}, make("span", { class: `part part-${place % 6}` }), stage))),
    table("Seconds of each phase and stage", columns, [[null, run.seconds.map((seconds, phase) => ({ seconds, phase }))]]),
    run.timing.reused_phase_zero ? make("p", { class: "notes" }, "Phase 0 came out of the store; its seconds are not in the run’s total.") : "");
}

function environment() {
  const kept = (name, get) => ({ name, value: (run) => String(get(run) ?? "–"), key: (run) => String(get(run) ?? "") });
  const columns = [
    { name: "run", value: (run) => [swatch(run.group), " ", groups[run.group].label], key: (run) => groups[run.group].label },
    { name: "seed", number: true, value: (run) => String(run.seed), key: (run) => run.seed },
    { name: "time", number: true, value: (run) => duration(run.timing.seconds_total), key: (run) => run.timing.seconds_total },
    kept("started (UTC)", (run) => run.timing.started.slice(0, 16).replace("T", " ")),
    ...["device_name", "precision", "engine", "threads", "torch", "cuda", "cudnn", "python", "numpy", "phasezero", "platform"]
      .map((key) => kept(key.replace("_name", ""), (run) => run.environment[key])),
  ];
  byId("environment").append(table("Where and with what each run was computed", columns, [[null, runs]]));
}

function classLists() {
  byId("class-lists").append(...content.classes.map((list, index) => {
    const users = runs.filter((run) => run.classes === index);
    const sizes = distinct(users.map((run) => run.sizes.join(" + ")));
    return make("article", {},
      make("h3", {}, `${list.data}, order ${list.order}`),
      make("p", {}, `${list.names.length} classes, ${list.train_images} training and ${list.test_images} test images; used by `
        + `${plural(users.length, "run")}. The sha256 of the ordered class list: `, make("code", {}, list.hash)),
      make("p", { class: "notes" }, `Classes by phase: ${sizes.join("; ")}`),
      folded("The classes in order", make("ol", { start: "0", class: "names" },
        list.names.map((name, label) => make("li", {}, list.ids.length ? `${name} [${list.ids[label]}]` : name)))));
  }));
}

function configurations() {
  byId("configuration-list").append(...runs.map((run) => folded(runName(run), make("pre", { tabindex: "0" }, run.config))));
}

function theme() {
  const choose = (value) => { document.documentElement.dataset.theme = value; confusion.paint(); };
  const remembered = (() => { try { return localStorage.getItem("phasezero-theme"); } catch { return null; } })();
  byId("theme").value = ["light", "dark"].includes(remembered) ? remembered : "auto";
  choose(byId("theme").value);
  byId("theme").addEventListener("change", (event) => {
    choose(event.target.value);
    try { localStorage.setItem("phasezero-theme", event.target.value); } catch { /* a page from a file may have no store */ }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", confusion.paint);
}

function sectionLinks() {
  const headings = [...document.querySelectorAll("main > section:not([hidden]) > h2")];
  byId("sections").append(make("ul", {}, headings.map((heading) =>
    make("li", {}, make("a", { href: `#${heading.parentElement.id}` }, heading.textContent)))));
}

facts();
warnings();
switches();
charts();
results();
byId("which").append(...runs.map((run, index) => make("option", { value: index }, runName(run))));
const chooseRun = () => { details(); confusion.show(runs[Number(byId("which").value)]); };
byId("which").addEventListener("change", chooseRun);
chooseRun();
environment();
classLists();
configurations();
theme();
sectionLinks();
