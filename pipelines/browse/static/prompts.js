// Prompts: the best photos of each time bucket, marked as right or wrong; prompts are saved for the next run.
import { classify, json, make, say } from "./dom.js";
import { change, state } from "./state.js";

const area = document.getElementById("prompts");
const form = area?.querySelector("form");
const results = area?.querySelector("section");
const verdicts = { y: true, n: false, u: null };
let drawn = null;
let actions = {};

const post = (path, content) => json(path, null, { method: "POST", body: JSON.stringify({ concept: state.concept, text: state.prompt, ...content }) });
const fail = (error) => say(error.message);

export async function draw() {
  [form.concept.value, form.prompt.value] = [state.concept, state.prompt];
  const asked = new URLSearchParams({ concept: state.concept, text: state.prompt }).toString();
  if (asked === drawn || asked === "concept=&text=") return;
  drawn = asked;
  results.replaceChildren("Searching …");
  try {
    const found = await json("prompts", asked);
    if (asked !== drawn) return;
    if (!state.prompt) change({ prompt: found.text }, true);
    form.prompt.value = state.prompt;
    drawn = new URLSearchParams({ concept: state.concept, text: state.prompt }).toString();
    show(found);
  } catch (error) { drawn = null; results.replaceChildren(); fail(error); }
}

function show(found) {
  results.replaceChildren(
    ...found.unread.map((tail) => make("p", { className: "warn", textContent: `A prompt is too long for the model, which ignores its end: ${tail}` })),
    make("p", {}, "Precision of the photos below: ", make("span", { className: "share" })),
    ...found.buckets.flatMap(({ name, photos }) => [
      make("h2", {}, `${name} `, make("span", { className: "share soft" })),
      make("ol", { className: "shots" }, ...photos.map(shot)),
    ]),
  );
  paint(found);
}

function shot(tile) {
  const { n, score, title } = classify(tile);
  const made = make("li", { tabIndex: 0, className: "shot" }, make("img", { src: `thumb/${n}`, alt: title, loading: "lazy" }), score.toFixed(3));
  made.dataset.n = n;
  made.addEventListener("click", () => actions.open(n));
  return made;
}

function paint(found) {
  [found.share, ...found.buckets.map((bucket) => bucket.share)].forEach((text, i) => { results.querySelectorAll(".share")[i].textContent = text; });
  const marks = found.buckets.flatMap((bucket) => bucket.marks);
  results.querySelectorAll(".shot").forEach((made, i) => {
    made.classList.toggle("right", marks[i] === true);
    made.classList.toggle("wrong", marks[i] === false);
  });
}

function neighbour(from, key) {
  const shots = [...results.querySelectorAll(".shot")];
  if (key === "ArrowRight" || key === "ArrowLeft") return shots[shots.indexOf(from) + (key === "ArrowRight" ? 1 : -1)];
  const at = from.getBoundingClientRect();
  const far = (other) => Math.abs(other.top - at.top) * 10 + Math.abs(other.left - at.left);
  const boxes = shots.map((made) => [made, made.getBoundingClientRect()]);
  const others = boxes.filter(([, box]) => (key === "ArrowDown" ? box.top > at.top + 5 : box.top < at.top - 5));
  return others.sort(([, a], [, b]) => far(a) - far(b))[0]?.[0];
}

export function start(given) {
  if (!area) return;
  actions = given;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    drawn = null;
    change({ concept: form.concept.value.trim(), prompt: form.prompt.value.trim() });
  });
  form.concept.addEventListener("change", () => { if (form.prompt.value === state.prompt) form.prompt.value = ""; });
  form.save.addEventListener("click", () => {
    post("save", { concept: form.concept.value.trim(), text: form.prompt.value }).then(({ message }) => say(message)).catch(fail);
  });
  results.addEventListener("keydown", (event) => {
    const from = event.target.closest(".shot");
    if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) neighbour(from, event.key)?.focus();
    else if (event.key === "Enter") actions.open(Number(from.dataset.n));
    else if (event.key in verdicts) {
      post("mark", { number: Number(from.dataset.n), right: verdicts[event.key] }).then(paint).catch(fail);
      if (event.key !== "u") neighbour(from, "ArrowRight")?.focus();
    } else return;
    event.preventDefault();
  });
}
