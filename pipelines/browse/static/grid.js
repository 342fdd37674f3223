// Millions of tiles in one scrolling box: only those in sight exist.
import { classify, json, make, words } from "./dom.js";
import { query, state } from "./state.js";

const PAGE = 120; // as on the server
const GAP = 8;
const TALLEST = 8_000_000; // pixels: browsers draw no taller box
const box = document.getElementById("grid");
const sheet = document.getElementById("sheet");
const tiles = new Map(); // position → element
let pages = new Map(); // page → photos
let waiting = new Set();
let total = 0;
let age = 0;
let top = 0; // pixels above the box, of the full height
let fromScript = false;
let actions = {};
export let active = 0;

const side = () => Number(state.size);
const columns = () => Math.max(1, Math.floor((box.clientWidth - padding() + GAP) / (side() + GAP)));
const padding = () => parseFloat(getComputedStyle(box).paddingLeft) * 2;
const width = () => (box.clientWidth - padding() + GAP) / columns() - GAP;
const height = () => width() + GAP;
const full = () => Math.ceil(total / columns()) * height();
const scale = () => Math.max(1, full() / TALLEST);

export function photoAt(position) {
  const page = pages.get(Math.floor(position / PAGE));
  return page && page[position % PAGE] ? classify(page[position % PAGE]) : null;
}

export function show(count, first) {
  age += 1;
  [total, pages, waiting, top, active] = [count, new Map([[0, first]]), new Set(), 0, 0];
  for (const tile of tiles.values()) tile.remove();
  tiles.clear();
  resize();
}

export function resize() {
  for (const tile of tiles.values()) tile.remove();
  tiles.clear();
  sheet.style.height = `${Math.min(full(), TALLEST)}px`;
  place(top);
}

function place(wanted) {
  top = Math.max(0, Math.min(wanted, full() - box.clientHeight));
  const there = Math.round(top / scale());
  if (there !== box.scrollTop) { fromScript = true; box.scrollTop = there; }
  draw();
}

async function load(page) {
  if (pages.has(page) || waiting.has(page)) return;
  waiting.add(page);
  const mine = age;
  try {
    const asked = query();
    asked.set("at", page * PAGE);
    const rows = await json("rows", asked);
    if (mine !== age) return;
    pages.set(page, rows);
    draw();
  } catch (error) { actions.failed(error); } finally { waiting.delete(page); }
}

function draw() {
  const [wide, tall, edge] = [columns(), height(), width()];
  const first = Math.max(0, Math.floor(top / tall) - 1) * wide;
  const last = Math.min(total, (Math.ceil((top + box.clientHeight) / tall) + 1) * wide);
  for (const [position, tile] of tiles) if (position < first || position >= last) { tile.remove(); tiles.delete(position); }
  const shift = box.scrollTop - top; // the sheet is shorter than all tiles
  for (let position = first; position < last; position += 1) {
    const photo = photoAt(position);
    if (!photo) { load(Math.floor(position / PAGE)); continue; }
    let tile = tiles.get(position);
    if (!tile) { tile = build(position, photo); tiles.set(position, tile); sheet.append(tile); }
    tile.style.width = tile.style.height = `${edge}px`;
    tile.style.left = `${(position % wide) * (edge + GAP)}px`;
    tile.style.top = `${Math.floor(position / wide) * tall + shift}px`;
    tile.classList.toggle("active", position === active && document.activeElement === box);
  }
  box.setAttribute("aria-activedescendant", tiles.has(active) ? `tile-${active}` : "");
}

function build(position, photo) {
  const { n, date, name, reason, pictured, title } = photo;
  const tile = make("div", { id: `tile-${position}`, className: "tile" });
  const what = [date || "no date", name && words(name), reason && `dropped at ${words(reason)}`].filter(Boolean).join(", ");
  tile.setAttribute("role", "option");
  tile.setAttribute("aria-label", what);
  tile.setAttribute("aria-posinset", position + 1);
  tile.setAttribute("aria-setsize", total);
  tile.title = what;
  tile.classList.toggle("dropped", Boolean(reason));
  const none = () => {
    tile.classList.add("none");
    tile.append(make("span", { className: "title", textContent: title }));
  };
  if (pictured) {
    const picture = make("img", { src: `thumb/${n}`, alt: "", decoding: "async", draggable: false });
    picture.addEventListener("error", none);
    tile.append(picture);
  } else none();
  if (reason) tile.append(make("span", { className: "why", textContent: words(reason) }));
  const right = name ? words(name) : "";
  tile.append(make("div", { className: "caption" }, make("span", { textContent: date || "no date" }), make("span", { textContent: right })));
  tile.addEventListener("click", (event) => {
    active = position;
    actions.open(position);
    box.focus({ preventScroll: true });
    draw();
  });
  return tile;
}

export function move(position) {
  active = Math.max(0, Math.min(position, total - 1));
  const line = Math.floor(active / columns()) * height();
  if (line < top) place(line);
  else if (line + height() > top + box.clientHeight) place(line + height() - box.clientHeight);
  else draw();
}

export const count = () => total;
export const focus = () => box.focus({ preventScroll: true });

const moves = {
  ArrowRight: () => active + 1, ArrowLeft: () => active - 1,
  ArrowDown: () => active + columns(), ArrowUp: () => active - columns(),
  PageDown: () => active + columns() * Math.max(1, Math.floor(box.clientHeight / height())),
  PageUp: () => active - columns() * Math.max(1, Math.floor(box.clientHeight / height())),
  Home: () => 0, End: () => total - 1,
};

export function start(given) {
  actions = given;
  box.addEventListener("scroll", () => {
    if (fromScript) { fromScript = false; return; }
    top = scale() > 1 ? Math.min(box.scrollTop * scale(), full() - box.clientHeight) : box.scrollTop;
    draw();
  });
  box.addEventListener("wheel", (event) => {
    if (scale() === 1 || event.ctrlKey) return; // the sheet has its full height: the browser scrolls
    event.preventDefault();
    place(top + event.deltaY);
  }, { passive: false });
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) move(moves[event.key]());
    else if (event.key === "Enter") actions.open(active);
    else return;
    event.preventDefault();
  });
  for (const name of ["focus", "blur"]) box.addEventListener(name, draw);
  new ResizeObserver(resize).observe(box);
}
