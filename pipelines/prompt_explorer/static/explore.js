"use strict";
// Keys on pictures: arrows move, y right, n wrong, u takes back. Every mark is on the server's disk before it shows.
const page = document.body.dataset;
const verdicts = { y: true, n: false, u: null };

async function send(address, content) {
  const answer = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(content),
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error || "The server refused.");
  return told;
}

function neighbour(shot, key) {
  const shots = [...shot.closest(".view").querySelectorAll(".shot")];
  const here = shots.indexOf(shot);
  if (key === "ArrowRight") return shots[here + 1];
  if (key === "ArrowLeft") return shots[here - 1];
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
  const told = await send("/mark", {
    concept: page.concept, id: shot.dataset.id, right, a: page.a, b: page.b, k: Number(page.k),
  });
  for (const same of document.querySelectorAll(".shot")) {
    if (same.dataset.id === shot.dataset.id) {
      same.classList.toggle("right", right === true);
      same.classList.toggle("wrong", right === false);
    }
  }
  document.querySelectorAll(".view").forEach((view, i) => {
    view.querySelector("p .share").textContent = told.shares[i].all;
    view.querySelectorAll("h3 .share").forEach((span, j) => { span.textContent = told.shares[i].buckets[j]; });
  });
}

document.addEventListener("keydown", (event) => {
  const shot = event.target.closest && event.target.closest(".shot");
  if (!shot || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.startsWith("Arrow")) {
    const next = neighbour(shot, event.key);
    if (next) next.focus();
    event.preventDefault();
  } else if (event.key in verdicts) {
    if (!page.concept) return alert("Give the concept a name first: marks belong to it.");
    mark(shot, verdicts[event.key]).then(() => {
      const next = neighbour(shot, "ArrowRight");
      if (next && event.key !== "u") next.focus();
    }).catch((error) => alert(error.message));
  }
});

for (const button of document.querySelectorAll(".save")) {
  button.addEventListener("click", () => {
    send("/save", { concept: page.concept, prompt: button.dataset.prompt })
      .then(() => { button.nextElementSibling.textContent = "saved"; })
      .catch((error) => { button.nextElementSibling.textContent = error.message; });
  });
}
