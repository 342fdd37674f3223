// One photo, large: its facts, its history, and what can be done with it.
import { json, make, say, words } from "./dom.js";

const dialog = document.getElementById("photo");
const names = { uploaded: "date", place: "from", page_url: "page", class: "class", bucket: "time bucket", reason: "dropped at" };
let actions = {};

export async function open(n, position = null) {
  try {
    const known = await json(`photo/${n}`);
    const facts = make("dl");
    for (const [name, value] of Object.entries(known.facts)) {
      const text = Array.isArray(value) ? value.join(", ") : String(value);
      const link = name === "page_url" && /^https?:\/\//.test(text);
      facts.append(make("dt", { textContent: names[name] || name }), make("dd", {}, link ? make("a", { href: text, textContent: text, rel: "noreferrer noopener", target: "_blank" }) : name === "reason" ? words(text) : text));
    }
    const history = make("div");
    const button = (text, act, kind = "") => {
      const made = make("button", { type: "button", textContent: text, className: kind });
      made.addEventListener("click", act);
      return made;
    };
    const close = button("Close", () => dialog.close(), "end");
    const bar = make("nav", {},
      position === null ? null : button("← Previous", () => actions.step(-1)),
      position === null ? null : button("Next →", () => actions.step(1)),
      close);
    bar.setAttribute("aria-label", "This photo");
    const picture = make("img", { src: `picture/${n}`, alt: known.facts.title || known.facts.id });
    picture.addEventListener("error", () => { picture.alt = "No image on this machine."; });
    const side = make("div", {}, facts, history);
    side.tabIndex = 0;
    dialog.replaceChildren(bar, make("div", { className: "photo" }, picture, side));
    if (!dialog.open) dialog.showModal();
    close.focus();
    const { lines } = await json(`trace/${n}`);
    if (lines.length) history.append(make("h3", { textContent: "History" }), make("pre", { textContent: lines.join("\n") }));
  } catch (error) { say(error.message); }
}

export function start(given) {
  actions = given;
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") actions.step(1);
    else if (event.key === "ArrowLeft") actions.step(-1);
    else return;
    event.preventDefault();
  });
}
