// What a page of a report does beyond showing: interactive charts, tables that sort and filter, and a link to the
// state of the page. Text from data becomes text nodes only.
(() => {
  "use strict";

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  };
  const islands = (kind) => [...document.querySelectorAll(`script.${kind}`)];
  const button = (text, press, more = {}) => make("button", { type: "button", onclick: press, ...more }, text);

  // ---- state, kept in the address behind "#~" -------------------------------------------------------------------
  const state = new URLSearchParams(location.hash.startsWith("#~") ? location.hash.slice(2) : "");
  const keep = (key, value) => {
    if (value === "" || value === null) state.delete(key);
    else state.set(key, value);
    const text = state.toString();
    history.replaceState(null, "", text ? `#~${text}` : location.pathname.split("/").pop() || "#");
  };
  const hidden = new Set(JSON.parse(state.get("hide") || "[]").map(String));

  // ---- charts ---------------------------------------------------------------------------------------------------
  const charts = [];
  const owned = (chart) => [...chart.svg.querySelectorAll("[data-n]")];
  const names = (chart) => [...new Set([...chart.svg.querySelectorAll(".series")].map((one) => one.dataset.n))];
  const paintChips = () => {
    for (const chip of document.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", String(!hidden.has(chip.dataset.name)));
    for (const chart of charts.filter((one) => one.chips)) for (const part of owned(chart)) part.style.display = hidden.has(part.dataset.n) ? "none" : "";
  };
  const toggled = () => {
    keep("hide", hidden.size ? JSON.stringify([...hidden]) : "");
    paintChips();
  };
  const legend = (chart, all) => {
    const chips = all.map((name) => {
      const stroke = owned(chart).find((part) => part.dataset.n === name && part.matches(".series")).querySelector("polyline");
      const colour = stroke.getAttribute("stroke"), [dash, gap] = (stroke.getAttribute("stroke-dasharray") || "1 0").split(" ").map(Number);
      const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = gap ? `repeating-linear-gradient(90deg, ${colour} 0 ${dash}px, transparent 0 ${dash + gap}px)` : colour;
      const chip = button("", () => { if (!hidden.delete(name)) hidden.add(name); toggled(); },
        { class: "chip", "data-name": name, "aria-pressed": "true", title: "Show or hide; double click: only this" });
      chip.append(swatch, name);
      chip.addEventListener("dblclick", () => { hidden.clear(); all.filter((other) => other !== name).forEach((other) => hidden.add(other)); toggled(); });
      return chip;
    });
    const show = button("all", () => { all.forEach((name) => hidden.delete(name)); toggled(); }, { class: "quiet" });
    const hide = button("none", () => { all.forEach((name) => hidden.add(name)); toggled(); }, { class: "quiet" });
    return make("div", { class: "chips", role: "group", "aria-label": "Lines to show" }, ...chips, ...(all.length > 3 ? [show, hide] : []));
  };

  // The numbers of the point that is nearest to the pointer.
  const tip = make("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  document.body.append(tip);
  const spots = (chart) => owned(chart).filter((part) => part.style.display !== "none").flatMap((part) => [...part.querySelectorAll("[data-row]")].flatMap((mark) => {
    const at = mark.points ? [...mark.points] : [{ x: mark.cx.baseVal.value, y: mark.cy.baseVal.value }];
    const matrix = mark.getScreenCTM();
    return at.map(({ x, y }, k) => ({ name: part.dataset.n, row: Number(mark.dataset.row) + k, x: matrix.a * x + matrix.e, y: matrix.d * y + matrix.f }));
  }));
  const leave = (chart) => {
    tip.hidden = true;
    chart.svg.classList.remove("lit");
    for (const part of chart.svg.querySelectorAll(".on")) part.classList.remove("on");
  };
  const hover = (chart, { clientX, clientY }) => {
    let best = null, least = 40 ** 2;
    for (const spot of spots(chart)) {
      const distance = (spot.x - clientX) ** 2 + (spot.y - clientY) ** 2;
      if (distance < least) [best, least] = [spot, distance];
    }
    leave(chart);
    if (!best) return;
    chart.svg.classList.add("lit");
    for (const part of owned(chart)) part.classList.toggle("on", part.dataset.n === best.name);
    const show = (value) => (typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 4 }) : value);
    const lines = chart.about.rows[best.row].map((value, i) => [chart.about.columns[i], value]).filter(([, value]) => value !== null);
    tip.replaceChildren(...lines.map(([column, value], i) => (i ? make("div", {}, `${column}: ${show(value)}`) : make("strong", {}, String(value)))));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(best.x + 12, innerWidth - width - 8))}px`;
    tip.style.top = `${best.y + 12 + height > innerHeight ? best.y - height - 12 : best.y + 12}px`;
  };

  const table = (columns, rows) =>
    make("div", { class: "scroll", tabindex: "0" },
      make("table", { class: "plain" },
        make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, value === null ? "–" : String(value))))))));
  const tools = (chart) => {
    const { about } = chart;
    const details = make("details", { class: "data" }, make("summary", {}, "Data"));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(table(about.columns, about.rows.slice(0, 2000)));
    });
    return make("div", { class: "tools" }, details);
  };

  for (const island of islands("chart-data")) {
    const about = JSON.parse(island.textContent), plot = island.previousElementSibling, svg = plot.querySelector("svg");
    const chart = { about, plot, svg, chips: false };
    const all = names(chart);
    if (all.length > 1) {
      chart.chips = true;
      plot.before(legend(chart, all));
    }
    island.after(tools(chart));
    plot.addEventListener("pointermove", (event) => hover(chart, event));
    plot.addEventListener("pointerdown", (event) => hover(chart, event));
    plot.addEventListener("pointerleave", () => leave(chart));
    charts.push(chart);
  }
  paintChips();
  addEventListener("scroll", () => charts.forEach(leave), { passive: true, capture: true });
  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details.data, details.part")) details.open = details.matches(".part"); });

  // ---- tables ---------------------------------------------------------------------------------------------------
  const number = (cell) => {
    const text = (cell ? cell.textContent : "").trim().replaceAll(",", "").replace("−", "-");
    const match = /^[<>±]?\s*(-?\d+(\.\d+)?)/.exec(text);
    return match ? Number(match[1]) : null;
  };
  const sort = (grid, column, down) => {
    const heads = [...grid.tHead.rows[0].cells];
    heads.forEach((head, i) => (i === column ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    for (const body of grid.tBodies) {
      const rows = [...body.rows];
      const words = rows.every((row) => number(row.cells[column]) === null);
      const key = (row) => (words ? row.cells[column]?.textContent.trim() ?? "" : number(row.cells[column]));
      rows.sort((a, b) => {
        const [one, two] = [key(a), key(b)];
        if (one === null || two === null) return (one === null) - (two === null);
        const order = words ? one.localeCompare(two) : one - two;
        return down ? -order : order;
      });
      body.append(...rows);
    }
  };
  [...document.querySelectorAll("table.scores")].forEach((grid, index) => {
    const heads = grid.tHead ? [...grid.tHead.rows[0].cells] : [];
    const many = [...grid.tBodies].reduce((sum, body) => sum + body.rows.length, 0);
    if (many < 2) return;
    const key = `t${index}`;
    heads.forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const link = head.querySelector("a");
      const press = button(link ? "↕" : "", () => {
        const down = head.getAttribute("aria-sort") !== "descending" && column > 0 || (column === 0 && head.getAttribute("aria-sort") === "ascending");
        sort(grid, column, down);
        keep(`${key}s`, `${column}${down ? "d" : "a"}`);
      }, { class: "sort", "aria-label": link ? `Sort by ${head.textContent}` : null });
      if (!link) press.append(...head.childNodes);
      head.append(press);
    });
    const stored = /^(\d+)([ad])$/.exec(state.get(`${key}s`) || "");
    if (stored && Number(stored[1]) < heads.length) sort(grid, Number(stored[1]), stored[2] === "d");
    if (many < 8) return;
    const apply = (text) => {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      for (const body of grid.tBodies) for (const row of body.rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    };
    const field = make("input", { type: "search", placeholder: "Filter rows", "aria-label": "Filter the rows of this table", class: "filter", oninput: () => { apply(field.value); keep(`${key}f`, field.value); } });
    field.value = state.get(`${key}f`) || "";
    apply(field.value);
    (grid.closest(".scroll") || grid).before(field);
  });

  // ---- a link into a part opens it ---------------------------------------------------------------------------------
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // ---- a link to this state -----------------------------------------------------------------------------------------
  const foot = document.querySelector("footer");
  if (foot) foot.append(" ", button("Copy a link to this view", async (event) => {
    await navigator.clipboard?.writeText(location.href).catch(() => {});
    event.target.textContent = "Copied";
  }, { class: "quiet" }));
})();
