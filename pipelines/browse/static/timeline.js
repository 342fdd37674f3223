// Bars over time; drag to choose a span.
import { change, state } from "./state.js";

const plot = document.querySelector("#time .plot");
const svg = plot && plot.querySelector("svg");
const axis = document.querySelector("#time .axis");
const DAY = 86400;
let span = [0, 1];
let bins = 1;
let every = null; // counts without filters, behind those with filters
let brush = null;

const box = (x, y, w, h, kind) => {
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ x, y, width: w, height: h, class: kind })) rect.setAttribute(name, value);
  return rect;
};
const iso = (seconds) => {
  const date = new Date(seconds * 1000);
  return `${String(date.getUTCFullYear()).padStart(4, "0")}-${String(date.getUTCMonth() + 1).padStart(2, "0")}-${String(date.getUTCDate()).padStart(2, "0")}`;
};
const seconds = (text) => Date.parse(`${text}T00:00:00Z`) / 1000;
const across = (time) => ((time - span[0]) / (span[1] - span[0] + 1)) * bins;

export function draw(view, filtered) {
  if (!plot) return;
  [span, bins] = [view.span, view.bins];
  const now = view.timeline;
  if (!filtered || !every) every = filtered ? every : now;
  const top = Math.sqrt(Math.max(1, ...(every || []), ...now)); // roots: rare times stay visible
  const tall = (n) => (n ? Math.max(0.8, (40 * Math.sqrt(n)) / top) : 0);
  svg.replaceChildren();
  (every || []).forEach((n, i) => { if (n) svg.append(box(i + 0.08, 40 - tall(n), 0.84, tall(n), "all")); });
  now.forEach((n, i) => { if (n) svg.append(box(i + 0.08, 40 - tall(n), 0.84, tall(n), "now")); });
  if (state.since || state.until) {
    const from = state.since ? Math.max(0, across(seconds(state.since))) : 0;
    const to = state.until ? Math.min(bins, across(seconds(state.until) + DAY)) : bins;
    svg.append(box(from, 0, Math.max(0.4, to - from), 40, "brush"));
  }
  for (const name of ["since", "until"]) document.getElementById(name).value = state[name];
  years();
}

function years() {
  const first = new Date(span[0] * 1000).getUTCFullYear();
  const last = new Date(span[1] * 1000).getUTCFullYear();
  const most = Math.max(2, Math.floor(plot.clientWidth / 60));
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((s) => (last - first) / s <= most) || 1000;
  axis.replaceChildren();
  for (let year = Math.ceil(first / step) * step; year <= last; year += step) {
    const at = across(Date.UTC(2000, 0, 1) / 1000 + (year - 2000) * 365.2425 * DAY) / bins;
    if (at * plot.clientWidth < 14 || (1 - at) * plot.clientWidth < 16) continue; // half of a label
    const label = Object.assign(document.createElement("span"), { textContent: year });
    label.style.left = `${100 * at}%`;
    axis.append(label);
  }
  if (!axis.children.length) {
    for (const [at, time] of [[0.06, span[0]], [0.94, span[1]]]) {
      const label = Object.assign(document.createElement("span"), { textContent: iso(time) });
      label.style.left = `${100 * at}%`;
      axis.append(label);
    }
  }
}

export function start() {
  if (!plot) return;
  const at = (event) => {
    const area = plot.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - area.left) / area.width));
  };
  plot.addEventListener("pointerdown", (event) => { brush = at(event); plot.setPointerCapture(event.pointerId); });
  plot.addEventListener("pointermove", (event) => {
    if (brush === null) return;
    svg.querySelectorAll(".brush").forEach((rect) => rect.remove());
    const [low, high] = [Math.min(brush, at(event)), Math.max(brush, at(event))];
    svg.append(box(low * bins, 0, (high - low) * bins, 40, "brush"));
  });
  plot.addEventListener("pointerup", (event) => {
    const [low, high] = [Math.min(brush, at(event)), Math.max(brush, at(event))];
    brush = null;
    if (high - low < 0.004) change({ since: "", until: "" });
    else change({ since: iso(span[0] + low * (span[1] - span[0])), until: iso(span[0] + high * (span[1] - span[0])) });
  });
  for (const name of ["since", "until"]) {
    document.getElementById(name).addEventListener("change", (event) => change({ [name]: event.target.value }));
  }
}
