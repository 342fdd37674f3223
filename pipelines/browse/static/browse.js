// The page: the state in the address decides what is shown; every part draws itself from one answer of the server.
import { ask, json, number, say } from "./dom.js";
import * as facets from "./facets.js";
import * as grid from "./grid.js";
import * as photo from "./photo.js";
import * as prompts from "./prompts.js";
import { change, clear, onChange, query, state } from "./state.js";
import * as timeline from "./timeline.js";

const by = (id) => document.getElementById(id);
const plural = (n) => `${number(n)} ${n === 1 ? "photo" : "photos"}`;
let latest = 0;

async function refresh(changed) {
  for (const name of ["text", "find"]) if (by(name) && document.activeElement !== by(name)) by(name).value = state[name];
  by("sort").value = state.sort || (state.text || state.like ? "nearest" : "oldest");
  by("size").value = state.size;
  const trying = Boolean(state.view === "prompts" && by("prompts"));
  by("show-prompts")?.setAttribute("aria-pressed", trying);
  document.body.classList.toggle("trying", trying);
  if (changed) {
    const mine = (latest += 1);
    const slow = setTimeout(() => { by("total").textContent = "Searching …"; }, 250);
    try {
      const view = await json("view", query());
      if (mine !== latest) return;
      by("total").textContent = view.total === view.size ? plural(view.total) : `${number(view.total)} of ${plural(view.size)}`;
      by("nothing").hidden = view.total > 0;
      facets.draw(view.facets);
      timeline.draw(view, view.total !== view.size);
      grid.show(view.total, view.photos);
      selection();
      document.body.dataset.ready = "yes";
    } catch (error) { say(error.message); return; } finally { clearTimeout(slow); }
  }
  by("grid").hidden = trying || grid.count() === 0;
  if (by("prompts")) by("prompts").hidden = !trying;
  if (trying) prompts.draw();
  else grid.resize();
}

function selection() {
  const n = grid.selected.size;
  by("selected").querySelector("output").textContent = n ? `${plural(n)} selected` : `No selection: saves all ${number(grid.count())}`;
  by("deselect").hidden = !n;
  document.body.classList.toggle("selecting", n > 0);
}

async function save(form) {
  try {
    const answer = await ask("export", null, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ query: query().toString(), form, rows: [...grid.selected] }),
    });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = { csv: "photos.csv", ids: "ids.txt", withdrawn: "withdrawn.csv" }[form];
    link.click();
    URL.revokeObjectURL(link.href);
    if (form === "withdrawn") say("Saved. In a run: driftline run DIR --set filter.withdrawn=withdrawn.csv leaves them out.");
  } catch (error) { say(error.message); }
}

const open = (position) => {
  const shown = grid.photoAt(position);
  if (shown) photo.open(shown.n, position);
};
grid.start({ open, selected: selection, failed: (error) => say(error.message) });
photo.start({
  step: (by_) => { grid.move(grid.active + by_); open(grid.active); },
  choose: (position = grid.active) => grid.choose(position),
});
prompts.start({ open: (n) => photo.open(n) });
facets.start();
timeline.start();
onChange(refresh);

by("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = by("text") ? by("text").value.trim() : "";
  change({ text, find: by("find").value.trim(), like: text ? "" : state.like, sort: text ? "" : state.sort });
  grid.focus();
});
for (const name of ["text", "find"]) by(name)?.addEventListener("search", () => { if (!by(name).value && state[name]) change({ [name]: "" }); });
by("sort").addEventListener("change", (event) => change({ sort: event.target.value }));
by("size").addEventListener("input", (event) => { change({ size: event.target.value }, true); grid.resize(); });
by("clear").addEventListener("click", clear);
by("deselect").addEventListener("click", grid.deselect);
by("show-prompts")?.addEventListener("click", () => change({ view: state.view === "prompts" ? "grid" : "prompts", prompt: state.prompt || state.text }));
by("show-help").addEventListener("click", () => by("help").showModal());
by("selected").addEventListener("click", (event) => { if (event.target.dataset.form) save(event.target.dataset.form); });
if (innerWidth < 900) by("filters").open = false;

addEventListener("keydown", (event) => {
  const writing = event.target.closest("input:not([type=checkbox]):not([type=range]), textarea, select");
  if (writing && event.key === "Escape") { grid.focus(); return; }
  if (writing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const resized = (by_) => { change({ size: String(Math.max(72, Math.min(320, Number(state.size) + by_))) }, true); by("size").value = state.size; grid.resize(); };
  const keys = {
    "/": () => (by("text") || by("find")).focus(),
    "?": () => by("help").showModal(),
    p: () => by("show-prompts")?.click(),
    l: () => { const shown = grid.photoAt(grid.active); if (shown && by("sort").namedItem("nearest")) change({ like: String(shown.n), text: "", sort: "" }); },
    "+": () => resized(24),
    "-": () => resized(-24),
    Escape: () => { if (grid.selected.size) grid.deselect(); else clear(); },
  };
  if (keys[event.key]) { keys[event.key](); event.preventDefault(); } else if (event.key.startsWith("Arrow") && document.activeElement === document.body) grid.focus();
});

refresh(true).then(grid.focus);
