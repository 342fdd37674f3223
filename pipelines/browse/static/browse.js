// The page: the state in the address decides what is shown; every part draws itself from one answer of the server.
import { json, number, say } from "./dom.js";
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
  if (document.activeElement !== by("find")) by("find").value = state.find;
  by("sort").value = state.sort || "oldest";
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
      document.body.dataset.ready = "yes";
    } catch (error) { say(error.message); return; } finally { clearTimeout(slow); }
  }
  by("grid").hidden = trying || grid.count() === 0;
  if (by("prompts")) by("prompts").hidden = !trying;
  if (trying) prompts.draw();
  else grid.resize();
}

const open = (position) => {
  const shown = grid.photoAt(position);
  if (shown) photo.open(shown.n, position);
};
grid.start({ open, failed: (error) => say(error.message) });
photo.start({
  step: (by_) => { grid.move(grid.active + by_); open(grid.active); },
});
prompts.start({ open: (n) => photo.open(n) });
facets.start();
timeline.start();
onChange(refresh);

by("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  change({ find: by("find").value.trim() });
  grid.focus();
});
by("find").addEventListener("search", () => { if (!by("find").value && state.find) change({ find: "" }); });
by("sort").addEventListener("change", (event) => change({ sort: event.target.value }));
by("size").addEventListener("input", (event) => { change({ size: event.target.value }, true); grid.resize(); });
by("clear").addEventListener("click", clear);
by("show-prompts")?.addEventListener("click", () => change({ view: state.view === "prompts" ? "grid" : "prompts" }));
by("show-help").addEventListener("click", () => by("help").showModal());
if (innerWidth < 900) by("filters").open = false;

addEventListener("keydown", (event) => {
  const writing = event.target.closest("input:not([type=checkbox]):not([type=range]), textarea, select");
  if (writing && event.key === "Escape") { grid.focus(); return; }
  if (writing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const resized = (by_) => { change({ size: String(Math.max(72, Math.min(320, Number(state.size) + by_))) }, true); by("size").value = state.size; grid.resize(); };
  const keys = {
    "/": () => by("find").focus(),
    "?": () => by("help").showModal(),
    p: () => by("show-prompts")?.click(),
    "+": () => resized(24),
    "-": () => resized(-24),
    Escape: clear,
  };
  if (keys[event.key]) { keys[event.key](); event.preventDefault(); } else if (event.key.startsWith("Arrow") && document.activeElement === document.body) grid.focus();
});

refresh(true).then(grid.focus);
