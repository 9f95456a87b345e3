// The comparison: which groups of runs are shown, by which classifier, and how they differ.

const OWN = "own";
const CLASSIFIERS = {
  [OWN]: "each method’s own",
  head: "head",
  nearest_mean: "nearest mean of exemplars",
  uncorrected: "head without its correction",
};
const MANY = 10;
const { groups, runs } = content;
// A plug-in's method may have its own classifier.
for (const name of groups.flatMap((group) => Object.keys(group.results))) CLASSIFIERS[name] ??= name.replaceAll("_", " ");
groups.forEach((group, index) => {
  group.index = index;
});
const state = { shown: new Set(), classifier: OWN };
const classifierOf = (group) => (state.classifier === OWN ? group.own : state.classifier);
const resultsOf = (group) => group.results[classifierOf(group)];
const classifierName = () => {
  const used = distinct(groups.map(classifierOf));
  return used.length > 1 ? `${CLASSIFIERS[OWN]}, as the headings say` : CLASSIFIERS[used[0]];
};

// If all runs use the same classifier, a method's own classifier does not matter.
const matters = (what) => state.classifier === OWN || what !== content.classification;
const differing = (members) =>
  Object.keys(members[0]?.conditions ?? {}).filter(
    (what) => matters(what) && distinct(members.map((group) => group.conditions[what])).length > 1,
  );

function sharedEnding(members) {
  const tail = members[0]?.label.match(/\/.*$/)?.[0] ?? "";
  const shared = members.length > 1 && members.every(({ label }) => label.endsWith(tail) && label !== tail);
  return shared ? tail : "";
}

// Sets of comparable groups, under their differences from the other sets.
function comparableSets() {
  const apart = differing(groups);
  const setName = (group) => apart.map((what) => group.conditions[what]).join(" · ");
  const alike = (name) => groups.filter((group) => setName(group) === name);
  const found = distinct(groups.map(setName)).map((name) => [name, alike(name)]);
  // Within such a set, or in all, the names often end alike ("/cifar100/b50s10"), which headings say already.
  const everywhere = sharedEnding(groups);
  for (const [, members] of found) {
    const ending = sharedEnding(members) || everywhere;
    members.forEach((group) => {
      group.short = ending ? group.label.slice(0, -ending.length) : group.label;
    });
  }
  return found;
}
let sets = comparableSets();

const analysedPhases = distinct(groups.flatMap((group) => Object.keys(group.spectra)))
  .map(Number)
  .sort((a, b) => a - b);
// Of many groups one set is shown at first, if possible a set with spectra, so that no chart is empty.
const analysedSet = sets.find(([, members]) => members.some((group) => group.spectra[analysedPhases[0]]));
const shownAtFirst = groups.length > MANY ? (analysedSet ?? sets[0])[1] : groups;
shownAtFirst.forEach((group) => state.shown.add(group.index));

function toggle(indices, on) {
  indices.forEach((index) => {
    byId(`switch-${index}`).checked = on(index);
    if (on(index)) state.shown.add(index);
    else state.shown.delete(index);
  });
  charts();
}

function warnings() {
  const items = [
    ...content.differences.filter(([what]) => matters(what)).map(([what, owners]) =>
      make(
        "li",
        {},
        make("strong", {}, `Runs differ in ${what}:`),
        make(
          "ul",
          {},
          Object.entries(owners).map(([value, labels]) =>
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
  byId("warning-list").replaceChildren(...items);
  byId("warnings").hidden = items.length === 0;
}

const allGroups = groups.map((group) => group.index);

function switches() {
  byId("switches").replaceChildren(
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
                onclick: () => toggle(allGroups, (index) => members.some((group) => group.index === index)),
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
          return make("p", { class: "switch" }, box, make("label", { for: box.id }, named(group.index, group.short)));
        }),
      ),
    ),
  );
}

function choices() {
  byId("all").addEventListener("click", () => toggle(allGroups, () => true));
  byId("none").addEventListener("click", () => toggle(allGroups, () => false));
  byId("switch-buttons").hidden = groups.length < 3;
  const measured = Object.keys(CLASSIFIERS).filter((name) => groups.some((group) => group.results[name]));
  byId("classifier").append(
    ...[OWN, ...measured].map((name) => make("option", { value: name }, CLASSIFIERS[name])),
  );
  byId("classifier-field").hidden = measured.length < 2;
  byId("switches").hidden = groups.length < 2;
  byId("shown").hidden = groups.length < 2 && measured.length < 2;
  byId("classifier").addEventListener("change", (event) => {
    state.classifier = event.target.value;
    sets = comparableSets();
    compare();
    details();
  });
  const published = groups.filter((group) => group.paper);
  byId("published-field").hidden = published.length === 0;
  byId("published").checked = published.length <= 4;
  byId("published").addEventListener("change", charts);
}
