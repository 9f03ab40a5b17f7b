// The report page: readings, table, CSV, controls.
"use strict";

function readings() {
  const sla = report.slas[state.sla];
  if (!sla) return;
  const heads = ["policy", "best [tok/s/GPU]", `vs ${report.baseline}`, "at users", "speed at that throughput [tok/s/user]", ""];
  const rows = sla.rows.filter(shown).sort((a, b) => (b.gpu[0] ?? -1) - (a.gpu[0] ?? -1));
  const body = rows.map((row, i) =>
    el(
      "tr",
      { class: i === 0 && row.gpu[0] !== null ? "best" : null },
      el("td", { class: `left named ${armOf[row.key].look}` }, swatch(armOf[row.key]), ` ${armOf[row.key].name}`),
      el("td", {}, spread(row.gpu)),
      el("td", {}, signed(row.vs)),
      el("td", {}, number(row.concurrency, Number.isInteger(row.concurrency) ? 0 : 1)),
      el("td", {}, row.matched_user === null ? NONE : `${number(row.matched_user, 1)} (${signed(row.matched_vs)})`),
      el("td", { class: "left" }, row.gpu[0] === null ? `not met: fastest is ${number(row.fastest, 1)}` : row.at_end ? "highest load simulated" : ""),
    ),
  );
  const head = el("tr", {}, ...heads.map((name, i) => el("th", { scope: "col", class: i ? null : "left" }, name)));
  const caption = `Read at ${sla.sla} tok/s/user; last number: each user's best speed at the throughput of ${report.baseline} there`;
  byId("readings").replaceChildren(
    el("div", { class: "wide", tabindex: 0 }, el("table", {}, el("caption", {}, el("span", {}, caption)), el("thead", {}, head), el("tbody", {}, ...body))),
  );
}

const sortValue = (row, id) => (id === "name" ? armOf[row.key].name : id === "load" ? row.load : id === "lossless" ? armOf[row.key].lossless : row[id][0]);

function sorted() {
  const turn = state.down ? -1 : 1;
  return report.points.filter(shown).sort((a, b) => {
    const [x, y] = [sortValue(a, state.sort), sortValue(b, state.sort)];
    if (x === y) return 0;
    if (x === null) return 1;
    if (y === null) return -1;
    return (x < y ? -1 : 1) * turn;
  });
}

const FIXED = [
  { id: "load", name: "users", unit: "" },
  { id: "name", name: "policy", unit: "", left: true },
];
const LAST = [{ id: "lossless", name: "lossless", unit: "", left: true }];
const headings = () => [...FIXED, ...report.columns, ...LAST];

function table() {
  const heads = headings().map((column) => {
    const button = el("button", { type: "button", onclick: () => sortBy(column.id) }, column.name);
    const unit = column.id === "vs" ? `% vs ${report.baseline}` : column.unit;
    const sort = column.id === state.sort ? (state.down ? "descending" : "ascending") : null;
    return el("th", { scope: "col", class: column.left ? "left" : null, "aria-sort": sort }, button, el("small", {}, unit || "\u00a0"));
  });
  const rows = sorted().map((row) => {
    const arm = armOf[row.key];
    const cells = report.columns.map(({ id, digits }) => el("td", {}, id === "vs" ? signed(row.vs).replace(" %", "") : spread(row[id], digits)));
    return el(
      "tr",
      {},
      el("td", {}, number(row.load)),
      el("td", { class: `left named ${arm.look}` }, swatch(arm), ` ${arm.name}`),
      ...cells,
      el("td", { class: "left" }, arm.lossless),
    );
  });
  byId("table").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)));
}

function sortBy(id) {
  state.down = state.sort === id ? !state.down : id !== "load" && id !== "name" && id !== "lossless";
  state.sort = id;
  const place = headings().findIndex((column) => column.id === id);
  table();
  byId("table").querySelectorAll("th button")[place].focus();
}

function csv() {
  const quote = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const label = ({ id, name, unit }) => (id === "vs" ? `change against ${report.baseline} [%]` : unit ? `${name} [${unit}]` : name);
  const head = ["users", "drafter", "policy", "seeds"];
  for (const column of report.columns) head.push(label(column), `${label(column)} low95`, `${label(column)} high95`);
  const lines = [[...head, "lossless"]];
  for (const row of sorted()) {
    const arm = armOf[row.key];
    const values = report.columns.flatMap(({ id }) => row[id].map((value) => (value === null ? "" : String(value))));
    lines.push([String(row.load), arm.drafter, arm.policy, String(row.seeds), ...values, arm.lossless]);
  }
  return `${lines.map((line) => line.map(quote).join(",")).join("\n")}\n`;
}

function chips() {
  const buttons = arms.map((arm) => {
    const button = el("button", { type: "button", class: `chip ${arm.look}`, "aria-pressed": "true", title: arm.verdict }, swatch(arm), arm.name);
    button.addEventListener("click", () => {
      if (!state.hidden.delete(arm.key)) state.hidden.add(arm.key);
      if (state.hidden.size === arms.length) state.hidden.clear();
      refresh();
    });
    return button;
  });
  byId("chips").replaceChildren(...buttons);
}

function selectSla(index) {
  state.sla = index;
  refresh();
}

function refresh() {
  [...byId("chips").children].forEach((chip, i) => chip.setAttribute("aria-pressed", String(!state.hidden.has(arms[i].key))));
  document.querySelectorAll("button.sla").forEach((button, i) => button.setAttribute("aria-pressed", String(i === state.sla)));
  charts.forEach((chart) => chart.draw());
  readings();
  table();
}

function start() {
  themeButton(byId("theme"));
  chips();
  byId("load").append(...report.loads.map((load) => el("option", { value: load }, `${number(load)} users`)));
  byId("load").value = String(state.load);
  byId("load").addEventListener("change", (event) => {
    state.load = Number(event.target.value);
    refresh();
  });
  document.querySelectorAll("button.sla").forEach((button, i) => button.addEventListener("click", () => selectSla(i)));
  byId("csv").addEventListener("click", () => download("dspark-sim.csv", csv()));
  const all = {
    frontier,
    throughput: () => againstLoad("gpu", "Throughput per GPU against users"),
    budget: () => againstLoad("budget", "Verification budget against users"),
    share, stairs, conditional, positions, reliability, latency,
  };
  for (const [id, spec] of Object.entries(all)) if (byId(id)) charts.push(new Chart(byId(id), spec));
  refresh();
}

start();
