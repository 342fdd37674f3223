"use strict";
// Keys on images: arrows move, y: right, n: wrong, u: undo. A mark is on the server's disk before it is shown.
const page = document.body.dataset;
const verdicts = { y: true, n: false, u: null };
const line = document.querySelector(".message");
const first = document.querySelector(".shot");

function say(text) {
  line.textContent = text;
  setTimeout(() => { if (line.textContent === text) line.textContent = ""; }, 5000);
}

async function send(address, content) {
  const answer = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(content),
  });
  const result = await answer.json();
  if (!answer.ok) throw new Error(result.error || "The server refused the request.");
  return result;
}

function neighbour(shot, key) {
  const shots = [...shot.closest(".view").querySelectorAll(".shot")];
  const current = shots.indexOf(shot);
  if (key === "ArrowRight") return shots[current + 1];
  if (key === "ArrowLeft") return shots[current - 1];
  const box = shot.getBoundingClientRect();
  const down = key === "ArrowDown";
  const others = shots.filter((s) => {
    const top = s.getBoundingClientRect().top;
    return down ? top > box.top + 5 : top < box.top - 5;
  });
  const distance = (s) => {
    const b = s.getBoundingClientRect();
    return Math.abs(b.top - box.top) * 10 + Math.abs(b.left - box.left);
  };
  return others.sort((a, b) => distance(a) - distance(b))[0];
}

async function mark(shot, right) {
  const result = await send("mark", {
    concept: page.concept, id: shot.dataset.id, right, a: page.a, b: page.b, k: Number(page.k),
  });
  for (const same of document.querySelectorAll(".shot")) {
    if (same.dataset.id === shot.dataset.id) {
      same.classList.toggle("right", right === true);
      same.classList.toggle("wrong", right === false);
    }
  }
  document.querySelectorAll(".view").forEach((view, i) => {
    view.querySelector("p .share").textContent = result.shares[i].all;
    view.querySelectorAll("h3 .share").forEach((span, j) => { span.textContent = result.shares[i].buckets[j]; });
  });
}

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    document.querySelector("textarea[name=a]").focus();
    event.preventDefault();
    return;
  }
  const shot = event.target.closest(".shot") || first;
  if (!shot) return;
  if (event.key.startsWith("Arrow")) {
    const next = shot === event.target.closest(".shot") ? neighbour(shot, event.key) : first;
    if (next) next.focus();
    event.preventDefault();
  } else if (event.key in verdicts) {
    if (!page.concept) { say("Enter a concept first: marks belong to a concept."); return; }
    mark(shot, verdicts[event.key]).then(() => {
      const next = neighbour(shot, "ArrowRight");
      if (next && event.key !== "u") next.focus();
    }).catch((error) => say(error.message));
  }
});
if (first) first.focus({ preventScroll: true, focusVisible: true });

for (const button of document.querySelectorAll(".save")) {
  button.addEventListener("click", () => {
    send("save", { concept: page.concept, prompt: button.dataset.prompt })
      .then(() => { button.nextElementSibling.textContent = "saved"; })
      .catch((error) => { button.nextElementSibling.textContent = error.message; });
  });
}
