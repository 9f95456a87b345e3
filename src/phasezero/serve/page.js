"use strict";
// The page of a served model. All text goes in as text, never as markup.

const byId = (id) => document.getElementById(id);
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
const plural = (count, noun, nouns = `${noun}s`) => `${count} ${count === 1 ? noun : nouns}`;
const percent = (share) => `${(100 * share).toFixed(1)} %`;

const SHOWN = 24; // answers; older ones are removed
const AT_ONCE = 2; // requests for predictions
const IMAGE = /^image\/(jpeg|png|webp|bmp|tiff)$/;
let known = { classes: [], phases: [], limits: {} };

// The token comes in the address's fragment, which is never sent, and leaves the address at once.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    remember(given);
    history.replaceState(null, "", location.pathname);
  }
}
function remember(token) {
  try {
    sessionStorage.setItem("token", token);
  } catch {
    remember.token = token; // storage is switched off
  }
}
function token() {
  try {
    return sessionStorage.getItem("token") ?? remember.token;
  } catch {
    return remember.token;
  }
}

async function ask(path, options = {}) {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({ error: `The server answered with status ${response.status}.` }));
  if (response.status === 401) showTokenForm();
  const error = new Error(told.error.charAt(0).toUpperCase() + told.error.slice(1) + (/[.!?]$/.test(told.error) ? "" : "."));
  error.status = response.status;
  throw error;
}
const json = async (path, options) => (await ask(path, options)).json();
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// A busy server is asked again.
async function patiently(path, options) {
  for (let left = 6; ; left--) {
    try {
      return await json(path, options);
    } catch (error) {
      if (left === 0 || ![429, 503].includes(error.status)) throw error;
      await wait(1500);
    }
  }
}

function showTokenForm() {
  byId("token-form").hidden = false;
  byId("main").hidden = true;
  byId("token").focus();
}

async function showClasses() {
  known = await json("classes");
  byId("main").hidden = false;
  byId("token-form").hidden = true;
  const { classes, phases } = known;
  byId("summary").textContent = `${plural(classes.length, "class", "classes")} · ${plural(phases.length, "phase")} · ` +
    `${known.method} · version ${known.version}`;
  const open = phases.length <= 6 && classes.length <= 60;
  byId("phases").replaceChildren(...phases.map((phase) => phaseDetails(phase, open)).reverse());
  const change = known.last_change.classes ?? Object.keys(known.last_change.added ?? {});
  byId("undo").hidden = !known.can_undo;
  byId("undo").textContent = `Undo: ${change.length > 2 ? `${change.length} classes` : change.map(shorter).join(", ")}`;
}
const shorter = (name) => (name.length > 30 ? `${name.slice(0, 29)}…` : name);

function phaseDetails(phase, open) {
  const own = known.classes.filter((one) => one.phase === phase.phase);
  const items = own.map((one) =>
    make("li", {},
      make("span", { class: "name" }, one.name),
      make("span", { class: "faint number", title: `${one.images} learned, ${one.exemplars} kept` },
        plural(one.images, "photo") + (one.exemplars ? ` (${one.exemplars} kept)` : "")),
      known.can_add_examples
        ? make("button", { type: "button", "aria-label": `Add photos of ${one.name}`, onclick: () => extend(one.name) }, "Add")
        : null));
  const accuracy = phase.accuracy === null ? "" : `, ${percent(phase.accuracy)} right when learned`;
  return make("details", { class: "phase", open: open || phase.phase === known.phases.length - 1 ? "" : null },
    make("summary", {}, make("h3", {}, `Phase ${phase.phase}`),
      make("span", { class: "faint", title: "On photos that were set aside, among all classes known then" },
        plural(phase.classes, "class", "classes") + accuracy)),
    make("ul", {}, items));
}

function extend(name) {
  byId("name").value = name;
  updateLesson();
  byId("name").scrollIntoView({ block: "center" });
  byId("teach-files").focus();
}

// Naming photos

const queue = [];
let asking = 0;

function tryPhotos(files) {
  const photos = images(files, byId("try-status"));
  for (const file of photos) {
    const address = URL.createObjectURL(file);
    const text = make("div", {}, make("p", { class: "faint" }, "…"));
    const preview = make("img", { src: address, alt: file.name || "the photo", onerror: () => preview.remove() });
    const item = make("li", { class: "answer" }, preview, text);
    item.free = () => URL.revokeObjectURL(address);
    byId("answers").prepend(item);
    queue.push({ file, text });
  }
  while (byId("answers").children.length > SHOWN) {
    byId("answers").lastElementChild.free();
    byId("answers").lastElementChild.remove();
  }
  while (asking < AT_ONCE && queue.length) work();
}

async function work() {
  asking += 1;
  while (queue.length) {
    const { file, text } = queue.shift();
    if (!text.isConnected) continue;
    try {
      const form = new FormData();
      form.append("image", file, "photo");
      const found = await patiently("predict?top=5&similar=4", { method: "POST", body: form });
      text.replaceChildren(...(await answer(found.predictions[0])));
      byId("try-said").textContent = `${file.name || "The photo"}: ${found.predictions[0].name}, ` +
        percent(found.predictions[0].top[0].probability);
    } catch (error) {
      text.replaceChildren(make("p", { class: "note bad" }, `${file.name || "The photo"}: ${error.message}`));
    }
  }
  asking -= 1;
}

async function answer(found) {
  const bars = found.top.map((one) => {
    const amount = make("span", { class: "amount" });
    amount.style.width = `${100 * one.probability}%`;
    return make("li", {}, amount, make("span", {}, one.name), make("span", { class: "number" }, percent(one.probability)));
  });
  const kept = await Promise.all(found.similar.map(keptPhoto));
  const shown = kept.filter((item) => item !== null);
  return [
    make("p", { class: "said" }, found.name),
    make("ul", { class: "bars", "aria-label": "Probabilities" }, bars),
    shown.length
      ? make("div", { class: "similar" }, make("h3", {}, "Most similar kept photos"), make("ul", { class: "thumbs" }, shown))
      : null,
  ].filter((part) => part !== null);
}

// With the token, which an address in an <img> could not have.
async function keptPhoto(one) {
  try {
    const photo = await (await ask(`exemplars/${one.class}/${one.n}`)).blob();
    const address = URL.createObjectURL(photo);
    const image = make("img", { src: address, alt: `a kept photo of ${one.name}`, onload: () => URL.revokeObjectURL(address) });
    return make("li", { title: `cosine of features: ${one.cosine.toFixed(3)}` }, image, one.name);
  } catch {
    return null; // undone in the meantime
  }
}

function images(files, status) {
  const all = [...files];
  const found = all.filter((file) => IMAGE.test(file.type) && file.size <= known.limits.file_bytes);
  const wrong = all.length - found.length;
  const wanted = `JPEG, PNG, WebP, BMP or TIFF images of at most ${known.limits.file_bytes / 1e6} MB are read`;
  if (all.length) status.textContent = wrong ? `${plural(wrong, "file")} left out: ${wanted}.` : "";
  return found;
}

// Teaching

let lesson = [];

function addToLesson(files) {
  byId("teach-result").hidden = true;
  const note = { textContent: "" };
  const { learn_files: most, learn_bytes: room } = known.limits;
  const size = (file) => file.size + 200; // with the headers of its part of the form
  let used = lesson.reduce((total, one) => total + size(one.file), 1000);
  for (const file of images(files, note)) {
    used += size(file);
    if (lesson.length === most || used > room) {
      note.textContent = `Some photos were left out: at most ${most} photos and ${room / 1e6} MB are taught at once.`;
      break;
    }
    lesson.push({ file, address: URL.createObjectURL(file) });
  }
  if (note.textContent) tell(note.textContent, true);
  updateLesson();
}

function updateLesson() {
  byId("lesson").replaceChildren(...lesson.map((one) =>
    make("li", {}, make("img", { src: one.address, alt: one.file.name }),
      make("button", { type: "button", class: "remove", "aria-label": `Remove ${one.file.name}`, onclick: () => drop(one) }, "×"))));
  const ready = lesson.length > 0 && byId("name").value.trim() !== "";
  byId("teach-button").disabled = !ready || teach.running;
  byId("teach-button").textContent = lesson.length ? `Teach ${plural(lesson.length, "photo")}` : "Teach";
  byId("teach-clear").hidden = lesson.length === 0;
}

function drop(one) {
  URL.revokeObjectURL(one.address);
  lesson = lesson.filter((other) => other !== one);
  updateLesson();
  (byId("lesson").querySelector("button") ?? byId("teach-files")).focus();
}

function clearLesson() {
  for (const one of lesson) URL.revokeObjectURL(one.address);
  lesson = [];
  updateLesson();
}

function tell(text, bad = false) {
  byId("teach-result").textContent = text;
  byId("teach-result").classList.toggle("bad", bad);
  byId("teach-result").hidden = false;
}

// Do something to the model, show how far it is, and show the classes afterwards.
async function change(first, act) {
  teach.running = true;
  byId("undo").disabled = true;
  byId("teach-result").hidden = true;
  byId("teach-progress").hidden = false;
  byId("teach-what").textContent = first;
  byId("bar").removeAttribute("value");
  updateLesson();
  const watching = setInterval(watch, 300);
  let text;
  let bad = false;
  try {
    text = await act();
  } catch (error) {
    text = error.message;
    bad = true;
  }
  clearInterval(watching);
  try {
    await showClasses(); // also after an error: another process may have changed the model
  } catch (error) {
    text = bad ? text : error.message;
    bad = true;
  }
  teach.running = false;
  byId("undo").disabled = false;
  byId("teach-progress").hidden = true;
  updateLesson();
  tell(text, bad);
}

async function watch() {
  const { learning } = await json("progress").catch(() => ({ learning: null }));
  if (learning === null || !teach.running) return;
  byId("teach-what").textContent = learning.total ? `${learning.what}: ${learning.done} of ${learning.total}` : learning.what;
  if (learning.total) byId("bar").value = learning.done / learning.total;
  else byId("bar").removeAttribute("value");
}

async function teach(event) {
  event.preventDefault();
  if (teach.running || lesson.length === 0) return;
  const name = byId("name").value;
  await change("sending photos", async () => {
    const form = new FormData();
    form.append("name", name);
    for (const { file } of lesson) form.append("image", file, "photo");
    const found = await json("learn", { method: "POST", body: form });
    clearLesson();
    byId("name").value = "";
    return `${found.new ? "Learned" : "Extended"} ${found.name} with ${plural(found.images, "photo")} in ` +
      `${found.seconds.toFixed(1)}\u00a0s. Try it with other photos.`;
  });
}

const undo = () =>
  change("undoing", async () => {
    const found = await json("undo", { method: "POST" });
    return `Back to ${plural(found.classes, "class", "classes")}.`;
  });

// Dropping and pasting

function takesFiles(zone, input, take) {
  input.addEventListener("change", () => {
    take(input.files);
    input.value = "";
  });
  zone.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    zone.classList.remove("over");
    take(event.dataTransfer.files);
  });
}

takesFiles(byId("try-drop"), byId("try-files"), tryPhotos);
takesFiles(byId("teach-drop"), byId("teach-files"), addToLesson);
// A photo that misses its zone does not replace the page.
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => event.preventDefault());
document.addEventListener("paste", (event) => {
  if (!event.clipboardData.files.length) return;
  event.preventDefault();
  (byId("teach").contains(document.activeElement) ? addToLesson : tryPhotos)(event.clipboardData.files);
});
byId("name").addEventListener("input", updateLesson);
byId("teach").addEventListener("submit", teach);
byId("teach-clear").addEventListener("click", clearLesson);
byId("undo").addEventListener("click", undo);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  remember(byId("token").value.trim());
  start();
});

async function start() {
  try {
    await showClasses();
  } catch (error) {
    if (error.status !== 401) {
      byId("main").hidden = false;
      byId("try-status").textContent = error.message;
    }
  }
}
takeToken();
window.addEventListener("hashchange", () => {
  takeToken();
  start();
});
start();
