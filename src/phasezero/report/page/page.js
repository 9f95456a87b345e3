// Put the page together.

function theme() {
  const choose = (value) => {
    document.documentElement.dataset.theme = value;
    confusion.paint();
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
    matchMedia(query).addEventListener("change", confusion.paint);
}

function sectionLinks() {
  const headings = [...document.querySelectorAll("main section:not([hidden], .panel) > h2")];
  byId("sections").replaceChildren(
    make(
      "ul",
      {},
      headings.map((heading) =>
        make(
          "li",
          {},
          make("a", { href: `#${heading.parentElement.id}` }, heading.dataset.short ?? heading.textContent),
        ),
      ),
    ),
  );
}

facts();
choices();
spectra();
compare();
byId("which").append(...runs.map((run, index) => make("option", { value: index }, runName(run))));
const chooseRun = () => {
  details();
  confusion.show(runs[Number(byId("which").value)]);
};
byId("which").addEventListener("change", chooseRun);
chooseRun();
environment();
classLists();
configurations();
theme();
