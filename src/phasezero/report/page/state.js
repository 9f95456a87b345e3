// What is shown: the search, the filters and the choices. A link to the page has them after its #.

const OWN = "own";
const CLASSIFIERS = {
  [OWN]: "each method’s own",
  head: "head",
  nearest_mean: "nearest mean of exemplars",
  uncorrected: "head without its correction",
};
const MANY = 12; // lines that are drawn without being asked for
const { groups, runs } = content;
// A plug-in's method may have its own classifier.
for (const name of groups.flatMap((group) => Object.keys(group.all.results)))
  CLASSIFIERS[name] ??= name.replaceAll("_", " ");

// What a group of runs is filtered by; a group without strategies, or with listed phase sizes, can be chosen too.
const FILTERS = {
  data: (group) => [group.data],
  method: (group) => [group.method],
  strategy: (group) => [group.strategies || "none"],
  S: (group) => [group.step === null ? "other" : String(group.step)],
  seed: (group) => group.seeds.map(String),
};
const choicesOf = (name) => {
  const found = distinct(groups.flatMap(FILTERS[name]));
  return found.every((value) => !Number.isNaN(Number(value))) ? found.sort((a, b) => a - b) : found.sort();
};
const runKey = (run) => `${groups[run.group].key}.${run.seed}`;

const START = {
  q: "", // the search
  data: "",
  method: "",
  strategy: "",
  S: "",
  seed: "",
  by: OWN, // the classifier
  shown: null, // keys of the groups that are drawn; null chooses some
  paper: null, // whether the paper's averages are drawn; null draws few
  rows: "", // "all" rows of the first table
  run: "", // the run in detail
  phase: "", // of its confusion matrix; the last if empty
  after: "", // the phase of the spectra
  split: "train",
  // Sections. A single run is what its page is about, and without B and S there is no table of methods and S.
  open: runs.length === 1 ? ["run"] : groups.some((group) => group.step !== null) ? [] : ["results"],
};
const state = { ...START };
const LISTS = ["shown", "open"];

function writtenState() {
  const written = new URLSearchParams();
  const text = (name, value) => (LISTS.includes(name) ? (value?.join(".") ?? null) : value);
  for (const [name, value] of Object.entries(state))
    if (text(name, value) !== text(name, START[name])) written.set(name, text(name, value) || "none");
  return written.toString();
}

// Whatever does not exist on this page is left out, so that a damaged link still opens.
function readState(text) {
  const read = new URLSearchParams(text);
  const offered = {
    by: Object.keys(CLASSIFIERS),
    paper: ["true", "false"],
    rows: ["all"],
    run: runs.map(runKey),
    phase: distinct(runs.flatMap((run) => run.sizes.map((_, phase) => String(phase)))),
    after: groups.flatMap((group) => Object.keys(group.all.spectra)),
    split: ["train", "test"],
    shown: groups.map((group) => group.key),
    open: SECTIONS.map(({ id }) => id),
  };
  for (const name of Object.keys(FILTERS)) offered[name] = choicesOf(name);
  Object.assign(state, START);
  for (const [name, value] of read) {
    if (name === "q") state.q = value;
    else if (!Object.hasOwn(offered, name)) continue;
    else if (LISTS.includes(name)) {
      const known = distinct(value.split(".")).filter((one) => offered[name].includes(one));
      if (known.length || value === "none") state[name] = known;
    } else if (offered[name].includes(value)) state[name] = name === "paper" ? value === "true" : value;
  }
}

const classifierOf = (group) => (state.by === OWN ? group.own : state.by);
const numbersOf = (group) => group.by_seed[state.seed] ?? group.all;
const resultsOf = (group) => numbersOf(group).results[classifierOf(group)] ?? null;
const averageOf = (group) => resultsOf(group)?.average[0] ?? null;
// The paper's number is compared only with the classifier that it was published with.
const paperOf = (group) => (group.paper?.by === classifierOf(group) ? group.paper : null);

// If all runs use the same classifier, a method's own classifier does not matter.
const matters = (what) => state.by === OWN || what !== content.classification;
const conditionsOf = (group) => Object.entries(group.conditions).filter(([what]) => matters(what));
const differing = (members) =>
  Object.keys(members[0]?.conditions ?? {}).filter(
    (what) => matters(what) && distinct(members.map((group) => group.conditions[what])).length > 1,
  );

// What the page shows at the moment: groups and runs that match, in sets of comparable groups with the largest set
// first, and the groups that are drawn.
let view = null;
function derive() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const names = Object.keys(FILTERS).filter((name) => state[name]);
  const found = (group) => {
    const text = `${group.label} ${group.strategies} ${Object.values(group.conditions).join(" ")}`.toLowerCase();
    return (
      words.every((word) => text.includes(word)) && names.every((name) => FILTERS[name](group).includes(state[name]))
    );
  };
  const matching = groups.filter(found);
  const apart = differing(matching);
  const bySet = Map.groupBy(matching, (group) => JSON.stringify(conditionsOf(group)));
  const published = (members) => members.filter(paperOf).length;
  const bySize = (a, b) => b.length - a.length || published(b) - published(a);
  const sets = [...bySet.values()].sort(bySize).map((members) => ({
    name: apart.map((what) => members[0].conditions[what]).join(" · "),
    members,
  }));
  for (const { members } of sets) {
    const short = shortNames(members.map((group) => group.label));
    members.forEach((group, at) => (group.short = short[at]));
  }
  const chosen = state.shown === null ? null : matching.filter((group) => state.shown.includes(group.key));
  const best = [...(sets[0]?.members ?? [])].sort((a, b) => !paperOf(a) - !paperOf(b) || averageOf(b) - averageOf(a));
  const automatic = matching.length > MANY ? best.slice(0, MANY) : matching;
  // In the order of the page, so that a line keeps its place when another is switched off.
  const shown = matching.filter((group) => (chosen ?? automatic).includes(group));
  const short = shortNames(shown.map((group) => group.label));
  const looks = looksAmong(shown);
  const mixed = differing(shown);
  const lines = shown.map((group, at) => {
    // No heading names the classifier of a line.
    const which = mixed.includes(content.classification) && group.own !== "head" ? ` (${CLASSIFIERS[group.own]})` : "";
    return { group, look: looks.get(group), label: short[at] + which, name: group.label + which };
  });
  view = {
    matching,
    sets,
    shown,
    mixed,
    lines,
    runs: runs.filter((run) => matching.includes(groups[run.group]) && [String(run.seed), ""].includes(state.seed)),
    filtered: words.length + names.length,
    lookOf: (group) => looks.get(group) ?? null,
  };
}

let writing = 0;
// Change the state and show it. Links are written a moment later: browsers allow few changes a second.
function change(changes) {
  Object.assign(state, changes);
  derive();
  render();
  clearTimeout(writing);
  writing = setTimeout(() => history.replaceState(null, "", `#${writtenState()}`), 150);
}
