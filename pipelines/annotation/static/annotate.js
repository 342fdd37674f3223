"use strict";
// Keys: 1–9, 0 and then letters select options, n: none (alone), s: sensitive, Enter: next, u: undo, k: skip. In the grid: arrows, x or Space: wrong, Enter: next, u: undo.
const question = document.getElementById("question");
const grid = document.getElementById("grid");
const line = document.querySelector(".message");
function say(text) {
  line.textContent = text;
  setTimeout(() => { if (line.textContent === text) line.textContent = ""; }, 4000);
}
const letters = "1234567890abcdefghijlmopqrtwxyz"; // without k, n, s, u, v

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
  if (matchMedia("(max-width: 45rem)").matches) question.querySelector("details").open = false; // a phone has room for the picture alone
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
    } else if (event.key === "u") document.getElementById("undo").submit();
    else if (event.key === "k") document.getElementById("skip").requestSubmit();
    else if (event.key === "Enter") {
      event.preventDefault();
      if (boxes.some((b) => b.checked)) question.requestSubmit();
      else say("Tick what you see first, or press n: none of the above.");
    } else return;
    event.preventDefault();
  });
}

if (grid) {
  const boxes = [...grid.querySelectorAll("input[type=checkbox]")];
  const told = grid.querySelector("output");
  const count = () => {
    const wrong = boxes.filter((box) => box.checked).length;
    told.textContent = `${wrong} ${grid.querySelector("ol").dataset.marked}, ${boxes.length - wrong} right`;
  };
  const columns = () => boxes.filter((box) => box.parentElement.offsetTop === boxes[0].parentElement.offsetTop).length;
  count();
  grid.addEventListener("change", count);
  if (boxes[0]) boxes[0].focus({ preventScroll: true, focusVisible: true });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("button, a")) return;
    const current = boxes.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(), ArrowUp: -columns() }[event.key];
    if (step) (boxes[current + step] || document.activeElement).focus();
    else if (event.key === "x" && current >= 0) { boxes[current].checked = !boxes[current].checked; count(); }
    else if (event.key === "u") document.getElementById("undo").submit();
    else if (event.key === "Enter") grid.requestSubmit();
    else return;
    event.preventDefault();
  });
}
