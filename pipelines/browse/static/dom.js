// Elements from text (never from HTML), and requests.
export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

export const words = (text) => String(text).replaceAll("upload_date", "date").replaceAll("_", " "); // own photos have no uploader
export const number = (n) => n.toLocaleString("en");

const line = document.querySelector(".message");
let timer;
export function say(text) {
  line.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(() => { line.textContent = ""; }, 5000);
}

export async function ask(path, query, options) {
  const answer = await fetch(query ? `${path}?${query}` : path, options);
  if (!answer.ok) {
    const { error } = await answer.json().catch(() => ({}));
    throw new Error(error || "The server does not answer as expected. Is it still running?");
  }
  return answer;
}

export const json = async (path, query, options) => (await ask(path, query, options)).json();

export function classify(photo) {
  const [n, date, name, reason, score, pictured, title] = photo;
  return { n, date, name, reason, score, pictured, title };
}
