// Values of each facet with counts, and the chips of what is chosen.
import { json, make, number, say, words } from "./dom.js";
import { change, facetNames, query, state, toggle } from "./state.js";

const sections = Object.fromEntries(facetNames.map((name) => [name, document.querySelector(`.facet[data-facet="${name}"]`)]));
const chips = document.getElementById("chips");

export function draw(facets) {
  for (const [name, counts] of Object.entries(facets)) fill(name, counts);
  drawChips();
}

function fill(name, { values, more }) {
  const section = sections[name];
  section.hidden = !values.length;
  const most = Math.max(1, ...values.map(([, n]) => n));
  const focused = document.activeElement && document.activeElement.dataset && section.contains(document.activeElement) ? document.activeElement.value : null;
  section.querySelector("ul").replaceChildren(...values.map(([value, n]) => {
    const tick = make("input", { type: "checkbox", value, checked: (state.facets[name] || []).includes(value) });
    tick.addEventListener("change", () => toggle(name, value));
    const shown = value === "" ? "none" : words(value);
    const bar = make("i", { className: "bar" });
    bar.style.width = `${(100 * n) / most}%`;
    return make("li", {}, make("label", { title: shown }, tick, make("span", { textContent: shown }), make("span", { className: "count", textContent: number(n) }), bar));
  }));
  section.querySelector(".more").hidden = !more;
  if (focused !== null) [...section.querySelectorAll("input")].find((tick) => tick.value === focused)?.focus();
}

function chip(text, remove) {
  const made = make("button", { type: "button", className: "chip", title: "Remove" }, make("span", { textContent: text }), "×");
  made.addEventListener("click", remove);
  return made;
}

function drawChips() {
  const made = [];
  for (const [name, values] of Object.entries(state.facets)) {
    for (const value of values) made.push(chip(value === "" ? `no ${name}` : words(value), () => toggle(name, value)));
  }
  if (state.find) made.push(chip(`has “${state.find}”`, () => change({ find: "" })));
  if (state.since || state.until) made.push(chip(`${state.since || "…"} to ${state.until || "…"}`, () => change({ since: "", until: "" })));
  chips.replaceChildren(...made);
}

export function start() {
  for (const [name, section] of Object.entries(sections)) {
    section.querySelector(".more").addEventListener("click", () => {
      const asked = query();
      asked.set("facet", name);
      json("values", asked).then((counts) => fill(name, { ...counts, more: false })).catch((error) => say(error.message));
    });
  }
}
