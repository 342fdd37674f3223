// The map: each photo a point, similar ones near each other; coloured by time or class; drag to choose a region.
import { json, make, say, words } from "./dom.js";
import { change, query, state } from "./state.js";

const area = document.getElementById("map");
const canvas = area && area.querySelector("canvas");
const tip = area && area.querySelector(".tip");
const ramp = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis
const classes = ["#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#8899a6"];
const EDGE = 24; // pixels around the points
let points = [];
let start_ = null;
let actions = {};

function colour(c) {
  if (c < 0) return "#8a949a";
  if (state.colour === "class") return classes[c % classes.length];
  const place = (Math.max(0, Math.min(100, c)) / 100) * (ramp.length - 1);
  const low = Math.min(ramp.length - 2, Math.floor(place));
  return `rgb(${ramp[low].map((v, i) => Math.round(v + (ramp[low + 1][i] - v) * (place - low))).join(" ")})`;
}

const across = (x) => EDGE + (x / 1000) * (area.clientWidth - 2 * EDGE);
const down = (y) => EDGE + (1 - y / 1000) * (area.clientHeight - 2 * EDGE);

function paint(region) {
  const dense = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [area.clientWidth * dense, area.clientHeight * dense];
  const pen = canvas.getContext("2d");
  pen.scale(dense, dense);
  const size = points.length > 3000 ? 2.2 : points.length > 600 ? 3 : 4.5;
  pen.globalAlpha = 0.8;
  for (const [, x, y, c] of points) {
    pen.fillStyle = colour(c);
    pen.beginPath();
    pen.arc(across(x), down(y), size, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
  if (region) {
    pen.strokeStyle = getComputedStyle(area).getPropertyValue("--accent");
    pen.lineWidth = 2;
    pen.strokeRect(...region);
  }
}

export async function draw() {
  const asked = query();
  asked.set("colour", state.colour);
  document.getElementById("colour").value = state.colour;
  try {
    const found = await json("map", asked);
    points = found.points;
    legend(found.legend);
    paint();
  } catch (error) { say(error.message); }
}

function legend(names) {
  const place = area.querySelector(".legend span");
  if (state.colour === "class") {
    place.replaceChildren(...names.map((name, i) => {
      const dot = make("i");
      dot.style.background = classes[i];
      const entry = make("span", {}, dot, `${words(name)} `);
      return entry;
    }));
    return;
  }
  const bar = make("i", { className: "ramp" });
  bar.style.background = `linear-gradient(90deg, ${ramp.map((c) => `rgb(${c.join(" ")})`).join(", ")})`;
  place.replaceChildren(`${names[0]} `, bar, names[1]);
}

function nearest(x, y) {
  let best = null;
  let least = 14 * 14;
  for (const point of points) {
    const d = (across(point[1]) - x) ** 2 + (down(point[2]) - y) ** 2;
    if (d < least) [best, least] = [point, d];
  }
  return best;
}

export function start(given) {
  if (!area) return;
  actions = given;
  document.getElementById("colour").addEventListener("change", (event) => change({ colour: event.target.value }));
  canvas.addEventListener("pointerdown", (event) => { start_ = [event.offsetX, event.offsetY]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (start_) {
      tip.hidden = true;
      paint([Math.min(start_[0], event.offsetX), Math.min(start_[1], event.offsetY), Math.abs(event.offsetX - start_[0]), Math.abs(event.offsetY - start_[1])]);
      return;
    }
    const point = nearest(event.offsetX, event.offsetY);
    tip.hidden = !point;
    if (!point) return;
    if (tip.dataset.n !== String(point[0])) {
      tip.dataset.n = point[0];
      tip.replaceChildren(make("img", { src: `thumb/${point[0]}`, alt: "" }));
    }
    tip.style.left = `${Math.max(4, Math.min(event.offsetX + 14, area.clientWidth - 160))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.offsetY + 14, area.clientHeight - 170))}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = start_ || [event.offsetX, event.offsetY];
    start_ = null;
    if (Math.abs(x - event.offsetX) < 5 && Math.abs(y - event.offsetY) < 5) {
      const point = nearest(x, y);
      if (point) actions.open(point[0]);
      return;
    }
    const part = (value, length) => Math.max(0, Math.min(1, (value - EDGE) / (length - 2 * EDGE)));
    const xs = [x, event.offsetX].map((v) => part(v, area.clientWidth)).sort((a, b) => a - b);
    const ys = [y, event.offsetY].map((v) => 1 - part(v, area.clientHeight)).sort((a, b) => a - b);
    change({ box: [xs[0], ys[0], xs[1], ys[1]].map((v) => v.toFixed(3)).join(",") });
  });
  new ResizeObserver(() => { if (!area.hidden) paint(); }).observe(area);
}
