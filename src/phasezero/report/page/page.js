// Put the page together: sections that are built when they are opened, links to them, and the theme.

const SECTIONS = [
  { id: "results", build: resultsSection },
  { id: "old-new", build: oldNewSection },
  { id: "forgetting", build: forgettingSection },
  { id: "cost", build: costSection },
  { id: "spectra", build: spectraSection },
  { id: "run", build: runSection },
  { id: "setup", build: setupSection },
  { id: "classes", build: classesSection },
  { id: "configurations", build: configurationsSection },
];
byId("spectra").hidden = groups.every((group) => Object.keys(group.all.spectra).length === 0);

function showSection(section) {
  section.update ??= section.build();
  section.update();
}

function render() {
  showFilters();
  warnings();
  accuracy();
  headline();
  for (const section of SECTIONS) {
    const part = byId(section.id);
    const open = state.open.includes(section.id);
    if (part.open !== open) part.open = open;
    if (open) showSection(section);
  }
}

function sections() {
  const shown = SECTIONS.filter(({ id }) => !byId(id).hidden);
  for (const section of shown) {
    const part = byId(section.id);
    part.addEventListener("toggle", () => {
      if (part.open === state.open.includes(section.id)) return; // the state opened it
      change({ open: part.open ? [...state.open, section.id] : state.open.filter((id) => id !== section.id) });
    });
  }
  const link = ({ id }) => make("li", {}, make("a", { href: `#${id}` }, byId(id).querySelector("h2").textContent));
  byId("sections").append(make("ul", {}, shown.map(link)));
}

// The part of the address after the # is either a section's name or a state.
function follow() {
  const fragment = location.hash.slice(1);
  const section = SECTIONS.find(({ id }) => id === fragment);
  if (section) {
    change({ open: distinct([...state.open, section.id]) });
    byId(section.id).scrollIntoView();
    byId(section.id).querySelector("summary").focus({ preventScroll: true });
  } else if (fragment.includes("=")) {
    readState(fragment);
    derive();
    render();
  }
}

function theme() {
  const choose = (value) => {
    document.documentElement.dataset.theme = value;
    dispatchEvent(new Event("repaint")); // the matrix
  };
  const remembered = (() => {
    try {
      return localStorage.getItem("phasezero-theme");
    } catch {
      return null;
    }
  })();
  byId("theme").value = ["light", "dark"].includes(remembered) ? remembered : "auto";
  choose(byId("theme").value);
  byId("theme").addEventListener("change", (event) => {
    choose(event.target.value);
    try {
      localStorage.setItem("phasezero-theme", event.target.value);
    } catch {
      /* a page from a file may have no store */
    }
  });
  for (const query of ["(prefers-color-scheme: dark)", "print"])
    matchMedia(query).addEventListener("change", () => dispatchEvent(new Event("repaint")));
}

facts();
filters();
sections();
theme();
derive();
render();
follow();
addEventListener("hashchange", follow);
