"use strict";
// Keys: 1–9, 0 and then letters select options, n: none (alone), s: sensitive, Enter: next, u: undo, v: view a blurred
// image. In the grid: arrows and x.
const question = document.getElementById("question");
const grid = document.getElementById("grid");
const letters = "1234567890abcdefghijklmopqrtwxyz"; // without n, s, u, v

if (question) {
  const boxes = [...question.querySelectorAll("input[name=labels]")];
  const none = boxes[boxes.length - 1];
  const keys = new Map();
  boxes.slice(0, -1).forEach((box, i) => {
    if (letters[i]) {
      keys.set(letters[i], box);
      box.parentElement.append(Object.assign(document.createElement("span"), { className: "key", textContent: ` [${letters[i]}]` }));
    }
  });
  question.querySelector("input[name=sensitive][value=no]").checked = true;
  const exclusive = (box) => { // "none" deselects the others, and the others deselect "none"
    if (box === none && none.checked) boxes.forEach((b) => { if (b !== none) b.checked = false; });
    else if (box.checked) none.checked = false;
  };
  boxes.forEach((box) => box.addEventListener("change", () => exclusive(box)));
  const flip = (box) => { box.checked = !box.checked; exclusive(box); };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (keys.has(event.key)) flip(keys.get(event.key));
    else if (event.key === "n") flip(none);
    else if (event.key === "s") {
      const yes = question.querySelector("input[name=sensitive][value=yes]");
      question.querySelector(`input[name=sensitive][value=${yes.checked ? "no" : "yes"}]`).checked = true;
    } else if (event.key === "v") document.body.classList.toggle("blurred");
    else if (event.key === "u") document.getElementById("undo").submit();
    else if (event.key === "Enter") {
      event.preventDefault();
      if (boxes.some((b) => b.checked)) question.requestSubmit();
    } else return;
    event.preventDefault();
  });
}

if (grid) {
  const boxes = [...grid.querySelectorAll("input[type=checkbox]")];
  if (boxes[0]) boxes[0].focus();
  document.addEventListener("keydown", (event) => {
    const current = boxes.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step && boxes[current + step]) { boxes[current + step].focus(); event.preventDefault(); }
    if (event.key === "x" && current >= 0) { boxes[current].checked = !boxes[current].checked; event.preventDefault(); }
  });
}
