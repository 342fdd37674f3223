// What is shown, as an object and as the fragment of the address.
const single = ["since", "until", "find", "sort"];
const looks = { view: "grid", concept: "", prompt: "", size: innerWidth < 600 ? "104" : "152" };

export const facetNames = [...document.querySelectorAll(".facet")].map((f) => f.dataset.facet);
export let state = read();

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = { facets: {} };
  for (const name of facetNames) if (given.has(name)) found.facets[name] = given.getAll(name);
  for (const name of single) found[name] = given.get(name) || "";
  for (const [name, usual] of Object.entries(looks)) found[name] = given.get(name) || usual;
  return found;
}

// The query that the server reads: filters and order.
export function query(of = state) {
  const out = new URLSearchParams();
  for (const [name, values] of Object.entries(of.facets)) for (const value of values) out.append(name, value);
  for (const name of single) if (of[name]) out.set(name, of[name]);
  return out;
}

function fragment(of) {
  const out = query(of);
  for (const [name, usual] of Object.entries(looks)) if (of[name] !== usual) out.set(name, of[name]);
  return `#${out}`;
}

let listener = () => {};
export function onChange(callback) { listener = callback; }

// Change what is shown. quiet: the address changes, and the caller shows it.
export function change(changes, quiet = false) {
  const before = query().toString();
  state = { ...state, ...changes };
  history[quiet ? "replaceState" : "pushState"](null, "", fragment(state));
  if (!quiet) listener(query().toString() !== before);
}

export function toggle(name, value) {
  const values = state.facets[name] || [];
  const facets = { ...state.facets, [name]: values.includes(value) ? values.filter((v) => v !== value) : [...values, value] };
  if (!facets[name].length) delete facets[name];
  change({ facets });
}

export function clear() {
  change({ facets: {}, ...Object.fromEntries(single.map((name) => [name, ""])) });
}

for (const name of ["popstate", "hashchange"]) addEventListener(name, () => { state = read(); listener(true); });
